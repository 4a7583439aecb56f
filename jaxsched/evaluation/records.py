"""The job-by-job record of a schedule, in the trace's own clock and names."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd

from jaxsched.types import NEVER, Schedule, World
from jaxsched.workloads.pool import WorldInfo

SCHEDULE_COLUMNS = (
    "policy",
    "job",
    "arrival_s",
    "start_s",
    "finish_s",
    "wait_s",
    "jct_s",
    "nodes",
    "gpus",
    "status",
)


def job_records(schedule: Schedule, world: World, info: WorldInfo, policy: str) -> pd.DataFrame:
    """``SCHEDULE_COLUMNS`` as text, one row per job of the table and in its order, impossible jobs included.

    Times are exact decimals on the trace's own clock and empty where there is none. ``nodes`` has an entry
    per node that a job's instances ran on, ``gpus`` a ``node:index`` entry per device; both are ``;``-lists.

    Args:
        schedule, world: unbatched, on the host.
        info: of the same window.
    """
    tick, origin = info.tick_s, info.origin_s
    nodes, gpus = _places(schedule, info.node_names)
    rows: dict[int, dict[str, str]] = {}
    for job, name in enumerate(info.job_names):
        arrival, start, finish = (int(t[job]) for t in (world.arrival, schedule.start, schedule.finish))
        row = {"job": name, "arrival_s": decimal_text(origin + arrival * tick), "status": "unfinished"}
        if start < NEVER:
            row |= {
                "start_s": decimal_text(origin + start * tick),
                "wait_s": decimal_text((start - arrival) * tick),
            }
            row |= {"nodes": ";".join(nodes[job]), "gpus": ";".join(gpus[job])}
        if finish < NEVER:
            row |= {
                "finish_s": decimal_text(origin + finish * tick),
                "jct_s": decimal_text((finish - arrival) * tick),
            }
            row["status"] = "completed"
        rows[int(info.table_row[job])] = row
    arrivals = info.jobs.frame["arrival_s"]
    for impossible in info.impossible:
        arrival_s = decimal_text(Fraction(arrivals.iloc[impossible.row]))
        rows[impossible.row] = {"job": impossible.job, "arrival_s": arrival_s, "status": "impossible"}
    ordered = [{"policy": policy, **rows[row]} for row in sorted(rows)]
    return pd.DataFrame(ordered, columns=list(SCHEDULE_COLUMNS), dtype=object).fillna("")


def decimal_text(value: Fraction | int) -> str:
    """The shortest decimal text of a value; exact when it has one, else to 28 digits."""
    fraction = Fraction(value)
    if fraction.denominator == 1:
        return str(fraction.numerator)
    text = f"{Decimal(fraction.numerator) / Decimal(fraction.denominator):f}"
    return text.rstrip("0").rstrip(".")


def _places(schedule: Schedule, node_names: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """For each job of the schedule the names of its nodes, and of its devices."""
    jobs = len(schedule.start)
    nodes: list[list[str]] = [[] for _ in range(jobs)]
    gpus: list[list[str]] = [[] for _ in range(jobs)]
    for part in range(int(schedule.num_parts)):
        job, name = int(schedule.part_job[part]), node_names[int(schedule.part_node[part])]
        nodes[job].append(name)
        gpus[job] += [f"{name}:{device}" for device in np.flatnonzero(schedule.part_devices[part])]
    return nodes, gpus
