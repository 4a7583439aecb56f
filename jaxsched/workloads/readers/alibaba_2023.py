"""Alibaba cluster-trace-gpu-v2023 ("openb"): pod lists and node lists of the FGD paper (ATC'23).

Arrival is ``creation_time``, run time ``deletion_time - scheduled_time``: the phase is only the last one seen
before deletion, so Running, Succeeded and Failed pods all have a true run time, and Pending ones have none.
Node lists have the native columns (``native.read_nodes_csv``).
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from jaxsched.workloads.readers.csv_text import read_text_table, require_columns
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, job_table
from jaxsched.workloads.times import exact_array, parse_exact

REQUEST_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIME_COLUMNS = ("creation_time", "deletion_time", "scheduled_time")
PHASE = "pod_phase"
NO_TIMES = (
    "; lists without times (multigpu*) cannot be replayed: the default, cpu, gpushare and gpuspec lists can"
)


def read_pods(
    path: str | Path, *, keep_failed: bool = True, keep_censored: bool = True
) -> tuple[JobTable, LoadReport]:
    """Jobs of a pod list, in file order. The job class is "cpu", "fraction", "single" or "multi" by request.

    Dropped and counted: Pending pods, rows without times or with impossible ones and, where asked for, Failed
    pods and censored ones (Running until the last instant of the file). Raises ``InputError``.
    """
    table = read_text_table(path, "jobs")
    require_columns(table, REQUEST_COLUMNS, path)
    require_columns(table, (*TIME_COLUMNS, PHASE), path, NO_TIMES)
    source = str(path)
    phase = table[PHASE].str.strip().to_numpy()
    why = np.full(len(table), "", dtype=object)
    _mark(why, phase == "Pending", "pending: it never ran")
    for column in TIME_COLUMNS:
        _mark(why, table[column].str.strip().eq("").to_numpy(dtype=bool), f"no {column}")
    created, deleted, scheduled = (_times(table, column, why == "", source) for column in TIME_COLUMNS)
    _mark(why, created < 0, "arrived before the trace began")
    _mark(why, deleted < scheduled, "ended before it started")
    censored = (why == "") & (phase == "Running") & (deleted == _last_deletion(table, source))
    if not keep_failed:
        _mark(why, phase == "Failed", "failed")
    if not keep_censored:
        _mark(why, censored, "censored: still running when the trace ended")
    rows = np.flatnonzero(why == "")
    duration = (deleted - scheduled)[rows].tolist()
    jobs, renamed = job_table(_columns(table.iloc[rows]), exact_array(duration), source, rows + 1)
    warnings = (f"{renamed} repeated pod names: later ones become name#2, name#3, ...",) if renamed else ()
    dropped = dict(Counter(why[why != ""].tolist()))
    return jobs, LoadReport(source, len(table), len(jobs), dropped, int(censored.sum()), warnings)


def read_requests(path: str | Path) -> JobTable:
    """What every pod of a list asks for, in file order: Pending ones too, and lists without times (all 0).

    For studies that place pods without running them.
    """
    table = read_text_table(path, "jobs")
    require_columns(table, REQUEST_COLUMNS, path)
    columns = _columns(table.assign(creation_time="0"))
    size = len(table)
    return job_table(columns, np.zeros(size, dtype=np.int64), str(path), np.arange(1, size + 1))[0]


def _mark(why: np.ndarray, wrong: np.ndarray, reason: str) -> None:
    """Gives the rows that are ``wrong`` and have no reason yet this one."""
    why[(why == "") & np.asarray(wrong, dtype=bool)] = reason


def _times(table: pd.DataFrame, column: str, use: np.ndarray, source: str) -> np.ndarray:
    """object[rows]: exact times of the rows in ``use``, 0 elsewhere."""
    rows = np.flatnonzero(use)
    result = np.zeros(len(table), dtype=object)
    result[rows] = parse_exact(
        [t.strip() for t in table[column].iloc[rows]], column, source, rows + 1
    ).tolist()
    return result


def _last_deletion(table: pd.DataFrame, source: str) -> Fraction | int:
    rows = np.flatnonzero(table["deletion_time"].str.strip().ne("").to_numpy(dtype=bool))
    times = parse_exact(
        [t.strip() for t in table["deletion_time"].iloc[rows]], "deletion_time", source, rows + 1
    )
    return max(times.tolist(), default=0)


def _columns(pods: pd.DataFrame) -> dict[str, list[str]]:
    """Native text columns of pods. Blank requests mean none of that resource."""
    text = {c: [t.strip() for t in pods[c]] for c in pods.columns if c != "name"}
    return {
        "job": list(pods["name"]),
        "arrival_s": text["creation_time"],
        "num_gpu": text["num_gpu"],
        "gpu_milli": text["gpu_milli"],
        "cpu_milli": text["cpu_milli"],
        "memory_mib": text["memory_mib"],
        "gpu_spec": text.get("gpu_spec", [""] * len(pods)),
        "class": [_job_class(g, m) for g, m in zip(text["num_gpu"], text["gpu_milli"], strict=True)],
    }


def _job_class(num_gpu: str, gpu_milli: str) -> str:
    """Class by request, for speed tables: the trace itself names none."""
    if num_gpu in ("", "0"):
        return "cpu"
    if num_gpu != "1":
        return "multi"
    return "single" if gpu_milli in ("", "1000") else "fraction"
