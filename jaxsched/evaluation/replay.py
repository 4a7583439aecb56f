"""Replaying a user's jobs on a user's nodes: what ``jaxsched.replay`` and the ``simulate`` command do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jaxsched.errors import InputError
from jaxsched.evaluation.compare import host_worlds
from jaxsched.evaluation.metrics import COLUMNS, schedule_metrics
from jaxsched.evaluation.plots import Run
from jaxsched.evaluation.records import decimal_text, job_records
from jaxsched.evaluation.timeline import cut
from jaxsched.policies.library import get_policy
from jaxsched.sim.rollout import run
from jaxsched.types import NEVER, EnvConfig, EnvParams, Schedule
from jaxsched.workloads import load
from jaxsched.workloads.demand import report_on
from jaxsched.workloads.pool import WorldInfo, build_pool
from jaxsched.workloads.readers.native import read_nodes_csv
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.speeds import get_speeds

FIRST_QUEUE = 256
ROWS_PER_GPU = 4
GROWTH = 4

Say = Callable[[str], None]


@dataclass(frozen=True)
class Replay:
    """What ``replay`` found out."""

    schedule: pd.DataFrame  # a row per policy and job, as text: ``records.SCHEDULE_COLUMNS``
    summary: pd.DataFrame  # a row per policy: ``metrics.COLUMNS``
    runs: Mapping[str, Run]  # per policy, for plots
    info: WorldInfo
    report: LoadReport


@dataclass(frozen=True)
class Tables:
    """How large the queue and the running table are, and which of them may grow."""

    config: EnvConfig
    queue_is_fixed: bool

    def grown(self, schedule: Schedule) -> Tables | None:
        """Tables four times as large where one bound in ``schedule``; None when none did."""
        queue, running = self.config.queue, self.config.running
        if schedule.queue_bound > 0 and not self.queue_is_fixed:
            queue *= GROWTH
        if schedule.running_bound > 0:
            running *= GROWTH
        if (queue, running) == (self.config.queue, self.config.running):
            return None
        return Tables(replace(self.config, queue=queue, running=running), self.queue_is_fixed)


def replay(
    nodes: str | Path | NodeTable,
    jobs: str | Path | JobTable,
    policies: Sequence[str] | Mapping[str, tuple[Any, Any]] = ("fifo+best_fit",),
    *,
    format: str = "auto",
    max_jobs: int | None = None,
    until: Fraction | float | str | None = None,
    queue: int | None = None,
    speeds: str = "uniform",
    seed: int = 0,
    say: Say = lambda line: None,
) -> Replay:
    """Every job of a list, on every node of an inventory, under one or several policies.

    Results are those of an unbounded queue and running table: a run in which one of them was full is repeated
    with larger ones.

    Args:
        nodes: CSV with ``sn,cpu_milli,memory_mib,gpu,model``, or a table.
        jobs: job list in any known ``format``, or a table.
        policies: names, or name -> (policy, policy_params).
        max_jobs: take only this many jobs, the first by arrival.
        until: stop at this moment of the trace's own clock, in seconds; what runs then is unfinished.
        queue: number of visible jobs; the others wait outside in arrival order. Never enlarged.
        speeds: name of a speed table or a CSV file.
        seed: of random policies.
        say: called with one line for each thing that the user should know.

    Raises InputError for anything wrong with the files, names or numbers.
    """
    chosen = _named(policies)
    (config, params, (info,)), report = _world(nodes, jobs, format, max_jobs, speeds, say)
    if any(name.endswith("+fgd") for name in chosen):
        say("fgd: the class table is counted on the given jobs")
    tables = Tables(first_tables(config, params, queue), queue_is_fixed=queue is not None)
    end = NEVER if until is None else until_tick(until, info)
    (world,) = host_worlds(params)
    runs, rows, records = {}, [], []
    for name, (policy, policy_params) in chosen.items():
        schedule = unbounded_run(name, policy, policy_params, params, tables, end, seed, say)
        schedule = schedule if until is None else cut(schedule, end)
        runs[name] = Run(schedule, world, float(info.tick_s))
        fgd_class = np.asarray(params.fgd_class)
        rows.append(schedule_metrics(schedule, world, info.tick_s, name, len(info.impossible), fgd_class))
        records.append(job_records(schedule, world, info, name))
    summary = pd.DataFrame(rows, columns=list(COLUMNS))
    return Replay(pd.concat(records, ignore_index=True), summary, runs, info, report)


def _world(
    nodes: str | Path | NodeTable,
    jobs: str | Path | JobTable,
    format: str,
    max_jobs: int | None,
    speeds: str,
    say: Say,
) -> tuple[tuple[EnvConfig, EnvParams, list[WorldInfo]], LoadReport]:
    """The one-window pool, and the report of reading it, which is also said."""
    node_table = nodes if isinstance(nodes, NodeTable) else read_nodes_csv(nodes)
    job_table, report = _loaded(jobs, format)
    job_table = first_jobs(job_table, max_jobs, say)
    report = report_on(report, job_table, node_table, get_speeds(speeds))
    say(str(report))
    pool = build_pool([(node_table, job_table)], speeds=get_speeds(speeds))
    if not pool[2][0].exact:
        say(f"times are rounded to ticks of {decimal_text(pool[2][0].tick_s)} s")
    return pool, report


def unbounded_run(
    name: str,
    policy: Any,
    policy_params: Any,
    params: EnvParams,
    tables: Tables,
    end: int,
    seed: int,
    say: Say,
) -> Schedule:
    """The schedule of a one-window pool up to tick ``end``, on the host, repeated until no table binds."""
    key, world = jax.random.key(seed), np.int32(0)
    while True:
        schedule = jax.device_get(
            run(policy, policy_params, key, params, world, tables.config, until=np.int32(end))
        )
        larger = tables.grown(schedule)
        if larger is None:
            if schedule.queue_bound > 0:
                say(f"{name}: {schedule.queue_bound} arrivals found the queue of {tables.config.queue} full")
            return schedule
        say(
            f"{name}: tables were full; repeating with a queue of {larger.config.queue} (was "
            f"{tables.config.queue}) and {larger.config.running} running rows (was {tables.config.running})"
        )
        tables = larger


def first_tables(config: EnvConfig, params: EnvParams, queue: int | None) -> EnvConfig:
    """The sizes to begin with: 256 queue slots and four running rows a GPU."""
    gpus = int(np.maximum(np.asarray(params.pool.node_gpus), 0).sum())
    return replace(
        config,
        queue=queue or FIRST_QUEUE,
        running=max(ROWS_PER_GPU * gpus, FIRST_QUEUE),
    )


def first_jobs(jobs: JobTable, limit: int | None, say: Say) -> JobTable:
    """The first ``limit`` jobs by arrival (ties by row), in the order of the table."""
    if limit is None or limit >= len(jobs):
        return jobs
    order = np.argsort(jobs.frame["arrival_s"].to_numpy(), kind="stable")
    say(f"using {limit} of {len(jobs)} jobs (first by arrival)")
    return jobs.take(np.sort(order[:limit]))


def until_tick(until: Fraction | float | str, info: WorldInfo) -> int:
    """The tick of a moment on the trace's own clock."""
    moment, origin = Fraction(str(until)), info.origin_s
    if moment < origin:
        raise InputError(
            f"until {decimal_text(moment)}: before the first arrival at {decimal_text(origin)} "
            "on the trace's own clock"
        )
    return min(int((moment - origin) / info.tick_s), 2**31 - 2)


def _loaded(jobs: str | Path | JobTable, format: str) -> tuple[JobTable, LoadReport]:
    if isinstance(jobs, JobTable):
        return jobs, LoadReport(jobs.source, len(jobs), len(jobs))
    return load(jobs, format)


def _named(policies: Sequence[str] | Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    if isinstance(policies, Mapping):
        return dict(policies)
    found = {name: get_policy(name) for name in policies}
    return {name: (policy, policy.default_params) for name, policy in found.items()}
