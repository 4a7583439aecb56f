"""Worlds and schedules written out by hand, for tests whose numbers are worked on paper."""

from __future__ import annotations

import numpy as np

from jaxsched.types import MILLI, NEVER, Schedule, World


def make_world(nodes, jobs) -> World:
    """Nodes as (gpus, model column[, cpu]); jobs as (arrival, num_gpu, milli[, instances[, cpu]])."""
    nodes = [(*n, 64_000)[:3] for n in nodes]
    jobs = [(*j, *(1, 0)[len(j) - 3 :])[:5] for j in jobs]
    models = 1 + max(m for _, m, _ in nodes)
    size = len(jobs)
    request = [(gpus, milli, cpu, 0, inst, 2**models - 1) for _, gpus, milli, inst, cpu in jobs]
    table = np.ones((size, models), np.int32)
    return World(
        node_cpu=np.array([c for _, _, c in nodes], np.int32),
        node_memory=np.full(len(nodes), 1 << 20, np.int32),
        node_gpus=np.array([g for g, _, _ in nodes], np.int32),
        node_model=np.array([m for _, m, _ in nodes], np.int32),
        arrival=np.array([a for a, *_ in jobs], np.int32),
        request=np.array(request, np.int32).reshape(size, 6),
        run_time=table,
        estimate=table,
        least_estimate=np.ones(size, np.int32),
        least_run_time=np.ones(size, np.int32),
        rank=np.tile(np.arange(size, dtype=np.int32)[:, None], (1, 5)),
        urgency=np.zeros((size, 2), np.float32),
        job_class=np.zeros(size, np.int32),
        weight=np.ones(size, np.float32),
        deadline=np.full(size, NEVER, np.int32),
        num_jobs=np.int32(size),
    )


def make_schedule(world: World, spans, parts, time=None) -> Schedule:
    """Spans as (start, finish) per job, None for never; parts as (job, node, {device: instances})."""
    gpus = max(1, int(world.node_gpus.max()))
    start = np.array([NEVER if s is None else s for s, _ in spans], np.int32)
    finish = np.array([NEVER if f is None else f for _, f in spans], np.int32)
    devices = np.zeros((len(parts), gpus), np.int8)
    for p, (_, _, held) in enumerate(parts):
        for device, instances in held.items():
            devices[p, device] = instances
    job = np.array([j for j, _, _ in parts], np.int32)
    num_gpu = np.maximum(world.request[job, 0], 1)
    instances = np.maximum(devices.sum(axis=1) // num_gpu, 1).astype(np.int32)
    last = max((int(f) for f in finish if f < NEVER), default=0)
    return Schedule(
        start=start,
        finish=finish,
        part_job=job,
        part_node=np.array([n for _, n, _ in parts], np.int32),
        part_instances=instances,
        part_devices=devices,
        num_parts=np.int32(len(parts)),
        events=np.int32(0),
        time=np.int32(last if time is None else time),
        queue_bound=np.int32(0),
        running_bound=np.int32(0),
        complete=np.bool_(bool((finish < NEVER).all())),
    )


def one_gpu_jobs(spans, arrivals=None, time=None) -> tuple[World, Schedule]:
    """Whole-GPU jobs one after another on a node with one device."""
    arrivals = arrivals or [0] * len(spans)
    world = make_world([(1, 1)], [(a, 1, MILLI) for a in arrivals])
    parts = [(job, 0, {0: 1}) for job, (start, _) in enumerate(spans) if start is not None]
    return world, make_schedule(world, spans, parts, time)
