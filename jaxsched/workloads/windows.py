"""One window: the jobs of a table that a cluster can run, in order of arrival, and their integer arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jaxsched.errors import InputError
from jaxsched.types import NEVER, Request
from jaxsched.workloads import times
from jaxsched.workloads.demand import cluster_work_s, offered_load, total_gpu_milli
from jaxsched.workloads.impossible import allowed_models, find_impossible
from jaxsched.workloads.keys import ranks, urgency
from jaxsched.workloads.report import ImpossibleJob
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.speeds import SpeedTable


@dataclass(frozen=True, eq=False)
class Window:
    """Possible jobs of ``jobs`` sorted by arrival (ties keep the row order) on the cluster ``nodes``."""

    nodes: NodeTable
    jobs: JobTable
    rows: np.ndarray  # i64[n] rows of ``jobs``: world job row -> table row
    origin_s: Fraction  # the first arrival
    arrival_s: np.ndarray  # exact[n] seconds after the origin, before scaling
    factor: Fraction  # arrivals are multiplied by this and rounded down to ticks (1: as they are)
    load: Fraction | None  # offered load after scaling, before rounding
    impossible: tuple[ImpossibleJob, ...]

    def column(self, name: str) -> np.ndarray:
        """Values of a column of the table for the window's jobs."""
        return self.jobs.frame[name].to_numpy()[self.rows]

    def reach_s(self, slowest: Fraction) -> Fraction:
        """Last arrival plus longest run time, with the slowest speed on any model."""
        if not len(self.rows):
            return Fraction(0)
        longest = times.exact(max(self.column("duration_s").max(), self.column("estimate_s").max()))
        return times.exact(self.arrival_s[-1]) * self.factor + longest / min(slowest, Fraction(1))

    def denominator(self) -> int:
        """Least d that makes every time times d whole; scaled arrivals are rounded down and do not count."""
        columns = [self.column("duration_s"), self.column("estimate_s")]
        if self.factor == 1:
            columns.append(self.arrival_s)
        deadlines = [times.exact(d) - self.origin_s for d in self.column("deadline_s") if d is not None]
        columns.append(times.exact_array(deadlines))
        return int(np.lcm.reduce([times.common_denominator(c) for c in columns]))


def make_window(
    nodes: NodeTable, jobs: JobTable, models: list[str], speeds: SpeedTable, load: Fraction | None
) -> Window:
    """Takes impossible jobs out, sorts by arrival and finds the factor that gives the offered ``load``."""
    impossible = find_impossible(jobs, nodes, models)
    possible = np.delete(np.arange(len(jobs)), [job.row for job in impossible])
    arrival = jobs.frame["arrival_s"].to_numpy()
    rows = possible[np.argsort(arrival[possible], kind="stable")]
    origin = times.exact(arrival[rows[0]]) if len(rows) else Fraction(0)
    relative = arrival[rows] - (int(origin) if arrival.dtype == np.int64 else origin)
    work = cluster_work_s(jobs, rows, nodes, speeds)
    span = times.exact(relative[-1]) if len(rows) else Fraction(0)
    offered = offered_load(work, nodes, span)
    factor = Fraction(1)
    if load is not None:
        if not offered:
            why = "no GPU demand, or all jobs arrive at once"
            raise InputError(f"{jobs.source}: cannot scale to load {float(load)}: {why}")
        factor, offered = offered / load, load
    return Window(nodes, jobs, rows, origin, relative, factor, offered, tuple(impossible))


@dataclass(frozen=True)
class Columns:
    """What is common to the worlds of a pool."""

    models: list[str]  # model columns, "" (no GPU) first
    classes: list[str]  # job classes by number
    speeds: SpeedTable
    tick: Fraction  # seconds


def node_arrays(window: Window, columns: Columns) -> dict[str, np.ndarray]:
    """i64[n] fields ``node_*`` of ``types.World`` without padding."""
    frame = window.nodes.frame
    column_of = {m: i for i, m in enumerate(columns.models)}
    return {
        "node_cpu": frame["cpu_milli"].to_numpy(),
        "node_memory": frame["memory_mib"].to_numpy(),
        "node_gpus": frame["gpu"].to_numpy(),
        "node_model": np.array([column_of[m] for m in frame["model"]], dtype=np.int64),
    }


def job_arrays(window: Window, columns: Columns) -> dict[str, np.ndarray]:
    """The job fields of ``types.World`` without padding, int64 or float64; times in ticks."""
    arrival = _arrival_ticks(window, columns.tick)
    job_class = _class_numbers(window, columns.classes)
    run_time = _run_table(window, "duration_s", job_class, columns)
    estimate = _run_table(window, "estimate_s", job_class, columns)
    usable = _usable_models(window, columns.models)
    least_estimate = np.where(usable, estimate, NEVER).min(axis=1, initial=NEVER)
    deadline = _deadline_ticks(window, arrival, columns.tick)
    milli = total_gpu_milli(window.jobs)[window.rows]
    return {
        "arrival": arrival,
        "request": _requests(window, columns.models),
        "run_time": run_time,
        "estimate": estimate,
        "least_estimate": least_estimate,
        "least_run_time": np.where(usable, run_time, NEVER).min(axis=1, initial=NEVER),
        "rank": ranks(least_estimate, milli, arrival, deadline, columns.tick),
        "urgency": urgency(least_estimate, milli),
        "job_class": job_class,
        "weight": window.column("weight"),
        "deadline": np.minimum(deadline, NEVER),
    }


def _arrival_ticks(window: Window, tick: Fraction) -> np.ndarray:
    if window.factor == 1:
        return times.floor_ticks(window.arrival_s, tick)
    return times.scaled_floor_ticks(window.arrival_s, window.factor, tick)


def _class_numbers(window: Window, classes: list[str]) -> np.ndarray:
    named = window.jobs.frame["class"].cat
    numbers = np.array([classes.index(c) for c in named.categories], dtype=np.int64)
    return numbers[named.codes.to_numpy()[window.rows]]


def _run_table(window: Window, column: str, job_class: np.ndarray, columns: Columns) -> np.ndarray:
    """i64[n, M]: ceil(ticks / speed of the job's class on the model), computed in integers."""
    ticks = times.nearest_ticks(window.column(column), columns.tick)[:, None]
    over, under = columns.speeds.matrix(columns.classes, columns.models)
    scaled = -(-ticks * under[job_class] // over[job_class])
    return np.where(window.column("num_gpu")[:, None] > 0, scaled, ticks)


def _usable_models(window: Window, models: list[str]) -> np.ndarray:
    """bool[n, M]: models the job may use and some node of the cluster has (for GPU jobs: with GPUs)."""
    present = set(window.nodes.frame["model"])
    on_node = np.array([m in present for m in models])
    allowed = (allowed_models(window.jobs, models)[window.rows][:, None] >> np.arange(len(models))) & 1
    needs_gpu = window.column("num_gpu")[:, None] > 0
    return (allowed == 1) & on_node & (~needs_gpu | (np.arange(len(models)) > 0))


def _deadline_ticks(window: Window, arrival: np.ndarray, tick: Fraction) -> np.ndarray:
    """A deadline keeps its distance from the arrival when arrivals are scaled."""
    result = np.full(len(arrival), NEVER, dtype=np.int64)
    for job, deadline in enumerate(window.column("deadline_s")):
        if deadline is not None:
            since_origin = times.exact(window.arrival_s[job])
            after_arrival = times.exact(deadline) - window.origin_s - since_origin
            start = since_origin / tick if window.factor == 1 else int(arrival[job])
            result[job] = math.floor(start + after_arrival / tick)
    return result


def _requests(window: Window, models: list[str]) -> np.ndarray:
    request = np.empty((len(window.rows), len(Request)), dtype=np.int64)
    request[:, Request.NUM_GPU] = window.column("num_gpu")
    request[:, Request.GPU_MILLI] = window.column("gpu_milli")
    request[:, Request.CPU_MILLI] = window.column("cpu_milli")
    request[:, Request.MEMORY_MIB] = window.column("memory_mib")
    request[:, Request.INSTANCES] = window.column("num_instances")
    request[:, Request.MODELS] = allowed_models(window.jobs, models)[window.rows]
    return request
