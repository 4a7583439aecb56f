"""What each node held at each moment of a schedule, rebuilt on the host in 64 bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxsched.types import MILLI, NEVER, Request, Schedule, World


class Timeline(NamedTuple):
    """One row for each node and moment at which something on it changed, and one per node at tick 0.

    Row k holds for ``duration[k]`` ticks from ``time[k]`` on; rows are sorted by node, then time. Padding
    nodes have none.
    """

    node: np.ndarray  # i64[K]
    time: np.ndarray  # i64[K] ticks
    duration: np.ndarray  # i64[K] ticks, up to the end of the timeline
    free_gpu: np.ndarray  # i64[K, G] free milli of each device; 0 beyond the node's devices
    free_cpu: np.ndarray  # i64[K] milli-cores


class Parts(NamedTuple):
    """The started parts of a schedule: who held what, where, from when to when."""

    job: np.ndarray  # i64[L]
    node: np.ndarray  # i64[L]
    devices: np.ndarray  # i64[L, G] instances on each device
    milli: np.ndarray  # i64[L, G] milli held on each device
    cpu: np.ndarray  # i64[L] milli-cores held
    start: np.ndarray  # i64[L] ticks
    finish: np.ndarray  # i64[L] ticks, clipped to the end of the timeline


def end_tick(schedule: Schedule) -> int:
    """When the schedule is over: its last finish if all jobs ended, else the moment at which it stopped."""
    finish = np.asarray(schedule.finish, np.int64)
    ended = finish[finish < NEVER]
    if bool(schedule.complete):
        return int(ended.max(initial=0))
    return int(max(int(schedule.time), ended.max(initial=0)))


def cut(schedule: Schedule, tick: int) -> Schedule:
    """The schedule as it stood at ``tick``: what starts later has not started, what ends later has not ended.

    No policy sees the future, so this is the run that stops there.
    """
    start, finish = np.asarray(schedule.start), np.asarray(schedule.finish)
    return schedule._replace(
        start=np.where(start <= tick, start, NEVER),
        finish=np.where(finish <= tick, finish, NEVER),
        time=np.int32(tick),
        complete=np.bool_(bool(schedule.complete) and end_tick(schedule) <= tick),
    )


def started_parts(schedule: Schedule, world: World) -> Parts:
    """The parts of jobs that started, with what each held."""
    start, finish = np.asarray(schedule.start, np.int64), np.asarray(schedule.finish, np.int64)
    job = np.asarray(schedule.part_job, np.int64)[: int(schedule.num_parts)]
    kept = np.flatnonzero(start[job] < NEVER)
    job = job[kept]
    request = np.asarray(world.request, np.int64)[job]
    devices = np.asarray(schedule.part_devices, np.int64)[kept]
    instances = np.asarray(schedule.part_instances, np.int64)[kept]
    return Parts(
        job=job,
        node=np.asarray(schedule.part_node, np.int64)[kept],
        devices=devices,
        milli=devices * request[:, Request.GPU_MILLI, None],
        cpu=instances * request[:, Request.CPU_MILLI],
        start=start[job],
        finish=np.minimum(finish[job], max(end_tick(schedule), 0)),
    )


def node_timeline(schedule: Schedule, world: World) -> Timeline:
    """The timeline of all real nodes from tick 0 to ``end_tick``."""
    parts, end = started_parts(schedule, world), end_tick(schedule)
    nodes = np.flatnonzero(np.asarray(world.node_cpu) >= 0)
    gpus = np.asarray(world.node_gpus, np.int64)[nodes]
    capacity = np.where(np.arange(parts.milli.shape[1]) < gpus[:, None], MILLI, 0)

    node = np.concatenate([nodes, parts.node, parts.node])
    time = np.concatenate([np.zeros_like(nodes), parts.start, parts.finish])
    gpu = np.concatenate([capacity, -parts.milli, parts.milli])
    cpu = np.concatenate([np.asarray(world.node_cpu, np.int64)[nodes], -parts.cpu, parts.cpu])
    # A part held to the end of the timeline is given back there, which no positive duration sees.
    rows = np.lexsort((time, node))
    node, time, gpu, cpu = node[rows], time[rows], gpu[rows], cpu[rows]

    first = np.searchsorted(node, node)
    until = np.append(time[1:], end)
    until[np.append(node[1:] != node[:-1], True)] = end
    return Timeline(node, time, until - time, _running_sum(gpu, first), _running_sum(cpu, first))


def _running_sum(change: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Cumulative sums over axis 0 that begin anew at each row's group, which starts at row ``first``."""
    total = np.cumsum(change, axis=0)
    return total - total[first] + change[first]
