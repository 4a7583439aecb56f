"""Windows of consecutive jobs of a real trace on a small cluster that keeps the shares of the real one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from jaxsched.errors import InputError
from jaxsched.workloads.clusters import sample_by_share
from jaxsched.workloads.readers.alibaba_2023 import read_pods
from jaxsched.workloads.readers.native import read_nodes_csv
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.synthetic import stream

TRACES_VARIABLE = "JAXSCHED_TRACES"
TRACE_FOLDER = "alibaba-gpu-2023"


@dataclass(frozen=True)
class TraceOptions:
    """Which files and jobs, and how time is split. Blank: those in ``$JAXSCHED_TRACES/alibaba-gpu-2023``."""

    jobs: str = ""
    nodes: str = ""
    num_nodes: int = 16
    longest_percent: int = 99  # run times above this percentile of the trace are left out
    first_arrival_s: int = 10_000_000  # openb: only 58 pods arrive before, over 116 days
    split: tuple[int, ...] = (50, 20, 30)  # percent of the jobs, in time: train, validation, test

    def __post_init__(self) -> None:
        if len(self.split) != 3 or sum(self.split) != 100 or min(self.split) < 1:
            raise InputError(f"trace.split gives three percentages that add up to 100, not {self.split}")
        if not 1 <= self.longest_percent <= 100:
            raise InputError(f"trace.longest_percent is between 1 and 100, not {self.longest_percent}")


def trace_windows(
    options: TraceOptions, size: int, split: int, num_windows: int, seed: int
) -> list[tuple[NodeTable, JobTable]]:
    """Windows of ``size`` consecutive jobs of split 0 (train), 1 or 2.

    Train: ``num_windows`` windows at starts drawn by ``seed``; they may overlap. Others: disjoint windows
    from the first job on, as many as exist; the seed changes nothing.
    """
    nodes, jobs, _ = trace_jobs(options)
    first, end = split_rows(jobs, options.split)[split]
    if end - first < size:
        raise InputError(f"{jobs.source}: {end - first} jobs in this split, a window needs {size}")
    if split == 0:
        starts = stream(0, seed).integers(first, end - size + 1, num_windows).tolist()
    else:
        starts = list(range(first, end - size + 1, size))[:num_windows]
    return [(nodes, jobs.take(slice(start, start + size))) for start in starts]


def split_rows(jobs: JobTable, percent: Sequence[int]) -> list[tuple[int, int]]:
    """Row ranges of the splits of jobs sorted by arrival; jobs of one instant never fall into two splits."""
    arrival = jobs.frame["arrival_s"].to_numpy()
    cuts = [len(jobs) * sum(percent[:i]) // 100 for i in range(len(percent))]
    edges = [0, *(int(np.searchsorted(arrival, arrival[cut], side="left")) for cut in cuts[1:]), len(jobs)]
    return list(pairwise(edges))


@lru_cache(maxsize=4)
def trace_jobs(options: TraceOptions) -> tuple[NodeTable, JobTable, LoadReport]:
    """The sampled cluster, the trace's usable jobs sorted by arrival, and the report of what was left out."""
    nodes = sample_by_share(
        read_nodes_csv(_path(options.nodes, "openb_node_list_all_node.csv")), options.num_nodes
    )
    jobs, report = read_pods(_path(options.jobs, "openb_pod_list_default.csv"), keep_censored=False)
    duration, arrival = jobs.frame["duration_s"].to_numpy(), jobs.frame["arrival_s"].to_numpy()
    rank = -(-options.longest_percent * len(jobs) // 100)
    limit = np.sort(duration)[rank - 1]
    long, early = duration > limit, arrival < options.first_arrival_s
    keep = np.flatnonzero(~long & ~early)
    left_out = {
        f"run time above the trace's {options.longest_percent}th percentile ({limit} s)": int(long.sum()),
        f"arrived before {options.first_arrival_s} s": int((early & ~long).sum()),
    }
    dropped = {**report.dropped, **{why: n for why, n in left_out.items() if n}}
    kept = jobs.take(keep[np.argsort(arrival[keep], kind="stable")])
    return nodes, kept, replace(report, kept=len(kept), dropped=dropped)


def _path(given: str, name: str) -> Path:
    if given:
        return Path(given)
    folder = os.environ.get(TRACES_VARIABLE)
    if not folder:
        raise InputError(f"no path to {name} given: set trace.jobs and trace.nodes, or ${TRACES_VARIABLE}")
    path = Path(folder) / TRACE_FOLDER / name
    if not path.is_file():
        raise InputError(f"no file {path} (looked for because ${TRACES_VARIABLE} is {folder})")
    return path
