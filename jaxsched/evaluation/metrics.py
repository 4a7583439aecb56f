"""Numbers of one schedule, computed on the host in 64 bits from its records.

Definitions (see DESIGN names): JCT = finish - arrival; wait = start - arrival; bounded slowdown =
max(1, JCT / max(run, 10 s)); makespan = last finish - first arrival. Means and percentiles (linear
interpolation) are over completed jobs and always stand beside the counts; ``censored_mean_jct_s`` lets each
arrived but unfinished job count with the time it has spent so far, a lower bound of its JCT.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from jaxsched.evaluation.timeline import Timeline, end_tick, node_timeline
from jaxsched.types import MILLI, NEVER, Request, Schedule, World

SLOWDOWN_BOUND_S = 10.0

COLUMNS = (
    "policy",
    "jobs",
    "completed",
    "unfinished",
    "impossible",
    "mean_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "max_jct_s",
    "mean_wait_s",
    "p95_wait_s",
    "max_wait_s",
    "mean_bounded_slowdown",
    "makespan_s",
    "throughput_jobs_per_h",
    "gpu_utilisation",
    "fragmentation",
    "jain_slowdown",
    "bound_jct_s",
    "gap_to_bound",
    "censored_mean_jct_s",
    "deadline_misses",
)


class JobTimes(NamedTuple):
    """Times of the completed jobs of a schedule, in seconds."""

    jct: np.ndarray  # f64[C]
    wait: np.ndarray  # f64[C]
    slowdown: np.ndarray  # f64[C] bounded


def completed_jobs(schedule: Schedule, world: World) -> np.ndarray:
    """bool[J]: which jobs have ended."""
    real = np.arange(np.shape(world.arrival)[0]) < int(world.num_jobs)
    return real & (np.asarray(schedule.finish) < NEVER)


def job_times(schedule: Schedule, world: World, tick_s: float | Fraction) -> JobTimes:
    """JCT, wait and bounded slowdown of each completed job, in job order."""
    done = completed_jobs(schedule, world)
    arrival, start, finish = (
        np.asarray(ticks, np.int64)[done] for ticks in (world.arrival, schedule.start, schedule.finish)
    )
    tick = float(tick_s)
    return JobTimes(
        jct=(finish - arrival) * tick,
        wait=(start - arrival) * tick,
        slowdown=bounded_slowdown((start - arrival) * tick, (finish - start) * tick),
    )


def bounded_slowdown(wait_s: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    """max(1, (wait + run) / max(run, 10 s)): a job of no length cannot make it infinite."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, SLOWDOWN_BOUND_S))


def jain_index(values: np.ndarray) -> float | None:
    """Jain's fairness index (sum x)^2 / (n sum x^2): 1 when all are served alike, 1/n at worst."""
    squares = float(np.sum(values**2))
    return float(np.sum(values)) ** 2 / (len(values) * squares) if squares > 0 else None


def schedule_metrics(
    schedule: Schedule,
    world: World,
    tick_s: float | Fraction,
    policy: str,
    impossible: int = 0,
    fgd_class: np.ndarray | None = None,
) -> dict[str, Any]:
    """The row of ``COLUMNS`` for one schedule; None where a number is undefined.

    Args:
        schedule: unbatched, on the host.
        world: the window it ran on, unbatched, on the host.
        tick_s: seconds per tick.
        policy: its name, copied into the row.
        impossible: how many jobs were taken out before the run; they count in ``jobs``.
        fgd_class: i32[C, 6], ``EnvParams.fgd_class``, for ``fragmentation``; without it the cell is empty.
    """
    times = job_times(schedule, world, tick_s)
    completed, feasible = len(times.jct), int(world.num_jobs)
    makespan = end_tick_of_completed(schedule, world) * float(tick_s) if completed else None
    timeline = node_timeline(schedule, world)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "policy": policy,
        "jobs": feasible + impossible,
        "completed": completed,
        "unfinished": feasible - completed,
        "impossible": impossible,
        "makespan_s": makespan,
        "throughput_jobs_per_h": completed / makespan * 3600 if makespan else None,
        "gpu_utilisation": gpu_allocation(timeline, world).get("all"),
        "fragmentation": None if fgd_class is None else fragmentation(timeline, world, fgd_class),
        "jain_slowdown": jain_index(1.0 / times.slowdown),
        "censored_mean_jct_s": _censored_mean_jct(schedule, world, float(tick_s)),
        "deadline_misses": deadline_misses(schedule, world),
    }
    return row | (_time_columns(times) if completed else {})


def end_tick_of_completed(schedule: Schedule, world: World) -> int:
    """Ticks from the first arrival to the last finish."""
    finish = np.asarray(schedule.finish, np.int64)[completed_jobs(schedule, world)]
    return int(finish.max()) - int(np.asarray(world.arrival)[0])


def _time_columns(times: JobTimes) -> dict[str, float]:
    p50, p95, p99 = np.percentile(times.jct, (50, 95, 99))
    return {
        "mean_jct_s": float(np.mean(times.jct)),
        "p50_jct_s": float(p50),
        "p95_jct_s": float(p95),
        "p99_jct_s": float(p99),
        "max_jct_s": float(np.max(times.jct)),
        "mean_wait_s": float(np.mean(times.wait)),
        "p95_wait_s": float(np.percentile(times.wait, 95)),
        "max_wait_s": float(np.max(times.wait)),
        "mean_bounded_slowdown": float(np.mean(times.slowdown)),
    }


def _censored_mean_jct(schedule: Schedule, world: World, tick_s: float) -> float | None:
    arrival = np.asarray(world.arrival, np.int64)[: int(world.num_jobs)]
    finish = np.asarray(schedule.finish, np.int64)[: int(world.num_jobs)]
    arrived = arrival <= end_tick(schedule)
    if not arrived.any():
        return None
    so_far = np.minimum(finish, end_tick(schedule)) - arrival
    return float(np.mean(so_far[arrived])) * tick_s


def deadline_misses(schedule: Schedule, world: World) -> int | None:
    """Jobs that ended after their deadline, or had not ended when it passed; None without deadlines."""
    deadline = np.asarray(world.deadline, np.int64)[: int(world.num_jobs)]
    if not (deadline < NEVER).any():
        return None
    finish = np.asarray(schedule.finish, np.int64)[: int(world.num_jobs)]
    return int(np.sum(np.minimum(finish, end_tick(schedule) + 1) > deadline))


def gpu_allocation(timeline: Timeline, world: World) -> dict[int | str, float]:
    """Time-weighted share of GPU milli that was held, per model column and under "all".

    Nodes without GPUs count nowhere; empty when there are no GPUs or no time passed.
    """
    gpus = np.asarray(world.node_gpus, np.int64)[timeline.node]
    model = np.asarray(world.node_model)[timeline.node]
    there = gpus * MILLI * timeline.duration
    held = (gpus * MILLI - timeline.free_gpu.sum(axis=1)) * timeline.duration
    shares: dict[int | str, float] = {}
    for name, rows in [("all", gpus > 0), *((int(m), (gpus > 0) & (model == m)) for m in np.unique(model))]:
        if there[rows].sum() > 0:
            shares[name] = int(held[rows].sum()) / int(there[rows].sum())
    return shares


def fragmentation(timeline: Timeline, world: World, fgd_class: np.ndarray) -> float | None:
    """Time average of FGD's F (GPU milli that the typical jobs cannot use) over all GPU milli.

    F of a node is the class-weighted mean of ``unusable_milli`` (Weng et al., ATC'23).
    """
    gpus = np.asarray(world.node_gpus, np.int64)[timeline.node]
    model = np.asarray(world.node_model, np.int64)[timeline.node]
    there = int((gpus * MILLI * timeline.duration).sum())
    counts = np.asarray(fgd_class, np.int64)[:, Request.INSTANCES]
    if there == 0 or counts.sum() == 0:
        return None
    numerator = np.zeros(len(gpus), np.int64)
    for request, count in zip(np.asarray(fgd_class, np.int64), counts, strict=True):
        numerator += count * unusable_milli(request, timeline.free_gpu, timeline.free_cpu, model)
    # Milli x ticks x counts can pass 2^63 on long traces, so the last sum is in float64.
    total = math.fsum(numerator.astype(float) * timeline.duration)
    return total / float(counts.sum()) / there


def unusable_milli(
    request: np.ndarray, free_gpu: np.ndarray, free_cpu: np.ndarray, model: np.ndarray
) -> np.ndarray:
    """i64[K]: free GPU milli on each node that a job like ``request`` (i64[6]) cannot use; memory is ignored.

    All of it when the job takes no GPU, may not run there, or finds too few devices or cores; else what lies
    on devices too full for it.
    """
    fits = free_gpu >= max(int(request[Request.GPU_MILLI]), 1)
    shut_out = (
        (request[Request.NUM_GPU] == 0)
        | ((request[Request.MODELS] >> model) & 1 == 0)
        | (fits.sum(axis=1) < request[Request.NUM_GPU])
        | (free_cpu < request[Request.CPU_MILLI])
    )
    return np.where(shut_out, free_gpu.sum(axis=1), np.where(fits, 0, free_gpu).sum(axis=1))
