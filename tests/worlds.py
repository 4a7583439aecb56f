"""Reference workloads as worlds of the package, so that both simulators can be given the same problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.types import NEVER, EnvConfig, EnvParams, Request, World
from jaxsched.workloads.fgd_classes import fgd_thresholds
from jaxsched.workloads.keys import ranks, urgency
from tests.reference.fgd import build_fgd_classes
from tests.reference.simulator import RefResult, least_estimate
from tests.reference.workloads import RefJob, RefNode, RefWorkload


@dataclass(frozen=True)
class Sizes:
    """Capacities that hold any random workload."""

    nodes: int = 4
    gpus: int = 4
    jobs: int = 10
    models: int = 4
    classes: int = 10
    running: int = 64


def _padded(values: Sequence, length: int, fill: int) -> np.ndarray:
    array = np.full((length, *np.shape(values)[1:]), fill, np.int64)
    array[: len(values)] = values
    return array


def _request(job: RefJob, num_models: int) -> list[int]:
    row = [0] * len(Request)
    row[Request.NUM_GPU], row[Request.GPU_MILLI] = job.num_gpu, job.gpu_milli
    row[Request.CPU_MILLI], row[Request.MEMORY_MIB] = job.cpu_milli, job.memory_mib
    row[Request.INSTANCES], row[Request.MODELS] = job.instances, job.models & (2**num_models - 1)
    return row


def _least(by_model: str, jobs: Sequence[RefJob], nodes: Sequence[RefNode]) -> np.ndarray:
    return np.array(
        [least_estimate(replace(job, estimate_by_model=getattr(job, by_model)), nodes) for job in jobs]
    )


def world_of(nodes: Sequence[RefNode], jobs: Sequence[RefJob], sizes: Sizes) -> World:
    """One world, numpy leaves."""
    jobs = sorted(jobs, key=lambda job: job.arrival)
    origin = jobs[0].arrival
    arrival = np.array([job.arrival - origin for job in jobs])
    deadline = np.array([job.deadline if job.deadline == NEVER else job.deadline - origin for job in jobs])
    milli = np.array([job.total_milli for job in jobs])
    least = _least("estimate_by_model", jobs, nodes)

    def by_model(name: str) -> np.ndarray:
        rows = [list(getattr(job, name)) + [0] * sizes.models for job in jobs]
        return _padded([row[: sizes.models] for row in rows], sizes.jobs, 0)

    fields = {
        "node_cpu": _padded([n.cpu_milli for n in nodes], sizes.nodes, -1),
        "node_memory": _padded([n.memory_mib for n in nodes], sizes.nodes, 0),
        "node_gpus": _padded([n.gpus for n in nodes], sizes.nodes, 0),
        "node_model": _padded([n.model for n in nodes], sizes.nodes, 0),
        "arrival": _padded(arrival, sizes.jobs, NEVER),
        "request": _padded([_request(job, sizes.models) for job in jobs], sizes.jobs, 0),
        "run_time": by_model("duration_by_model"),
        "estimate": by_model("estimate_by_model"),
        "least_estimate": _padded(least, sizes.jobs, 0),
        "least_run_time": _padded(_least("duration_by_model", jobs, nodes), sizes.jobs, 0),
        "rank": _padded(ranks(least, milli, arrival, deadline, Fraction(1)), sizes.jobs, 0),
        "job_class": np.zeros(sizes.jobs, np.int64),
        "deadline": _padded(deadline, sizes.jobs, NEVER),
        "num_jobs": np.array(len(jobs)),
    }
    ints = {name: np.asarray(value, np.int32) for name, value in fields.items()}
    aged = np.zeros((sizes.jobs, 2), np.float32)
    aged[: len(jobs)] = urgency(least, milli)
    weight = np.zeros(sizes.jobs, np.float32)
    weight[: len(jobs)] = [job.weight for job in jobs]
    return World(**ints, urgency=aged, weight=weight)


def params_of(worlds: Sequence[World], jobs: Sequence[RefJob], sizes: Sizes) -> EnvParams:
    """Parameters around a pool of ``worlds``; the FGD table is counted on ``jobs``."""
    classes = build_fgd_classes(jobs)
    table = np.zeros((sizes.classes, len(Request)), np.int32)
    for row, (count, num_gpu, milli, cpu, models) in zip(table, classes, strict=False):
        row[Request.NUM_GPU], row[Request.GPU_MILLI], row[Request.CPU_MILLI] = num_gpu, milli, cpu
        row[Request.INSTANCES], row[Request.MODELS] = count, models & (2**sizes.models - 1)
    return EnvParams(
        pool=jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *worlds),
        tick_s=jnp.float32(1),
        beta=jnp.float32(0),
        reward_scale=jnp.float32(1),
        power_w=jnp.zeros((sizes.models, 2), jnp.float32),
        fgd_class=jnp.asarray(table),
        fgd_threshold=jnp.asarray(fgd_thresholds(sum(count for count, *_ in classes)).astype(np.int32)),
    )


def config_of(sizes: Sizes, queue: int, max_parts: int = 50) -> EnvConfig:
    return EnvConfig(
        num_nodes=sizes.nodes,
        gpus_per_node=sizes.gpus,
        num_jobs=sizes.jobs,
        num_models=sizes.models,
        queue=queue,
        running=sizes.running,
        max_parts=max_parts,
    )


def single(nodes: Sequence[RefNode], jobs: Sequence[RefJob], *, queue: int = 8, sizes: Sizes | None = None):
    """``(config, params)`` of one hand-made world."""
    sizes = sizes or Sizes(
        jobs=max(10, len(jobs)), nodes=max(4, len(nodes)), gpus=max([4, *[n.gpus for n in nodes]])
    )
    world = world_of(nodes, jobs, sizes)
    return config_of(sizes, queue, max_parts=8 * sizes.jobs), params_of([world], jobs, sizes)


def schedule_of(schedule, row: int | None = None) -> list[tuple]:
    """``(start, finish, parts)`` per job of a run, in the form of ``reference_schedule``."""
    s = (
        jax.tree.map(np.asarray, schedule)
        if row is None
        else jax.tree.map(lambda x: np.asarray(x)[row], schedule)
    )
    parts: dict[int, list] = {}
    for i in range(int(s.num_parts)):
        devices = tuple(int(d) for d in s.part_devices[i])
        parts.setdefault(int(s.part_job[i]), []).append(
            (int(s.part_node[i]), int(s.part_instances[i]), devices)
        )
    return [
        (int(a), int(b), sorted(parts.get(j, [])))
        for j, (a, b) in enumerate(zip(s.start, s.finish, strict=True))
    ]


def reference_schedule(results: Sequence[RefResult], sizes: Sizes) -> list[tuple]:
    rows = []
    for result in results:
        parts = [
            (node, count, tuple(list(devices) + [0] * (sizes.gpus - len(devices))))
            for node, count, devices in result.parts
        ]
        rows.append((result.start, result.finish, sorted(parts)))
    return rows + [(NEVER, NEVER, [])] * (sizes.jobs - len(rows))


def workload_params(workload: RefWorkload, sizes: Sizes) -> EnvParams:
    return params_of([world_of(workload.nodes, workload.jobs, sizes)], workload.jobs, sizes)
