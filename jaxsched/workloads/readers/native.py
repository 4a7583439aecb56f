"""The native CSV files: job lists, and node lists with openb's columns (``schema``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxsched.workloads.readers.csv_text import read_text_table, require_columns
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import (
    JOB_OPTIONAL,
    JOB_REQUIRED,
    NODE_COLUMNS,
    JobTable,
    NodeTable,
    job_table,
    node_table,
    refuse_below,
)
from jaxsched.workloads.times import parse_exact, parse_whole


def read_nodes_csv(path: str | Path) -> NodeTable:
    """Nodes from a CSV with openb's columns. A node without GPUs has no model, whatever the cell says."""
    table = read_text_table(path, "nodes")
    require_columns(table, NODE_COLUMNS, path)
    source, rows = str(path), np.arange(1, len(table) + 1)
    numbers = {c: parse_whole(list(table[c]), c, source) for c in ("cpu_milli", "memory_mib", "gpu")}
    for column, values in numbers.items():
        refuse_below(values, 0, column, source, rows)
    return node_table(list(table["sn"]), numbers, [str(m) for m in table["model"]], source)


def read_jobs_csv(path: str | Path) -> tuple[JobTable, LoadReport]:
    """Jobs from a native CSV: ``job, arrival_s, duration_s, num_gpu`` and any of ``JOB_OPTIONAL``.

    Rows without arrival or duration and rows with a negative duration never ran: dropped and counted.
    """
    table = read_text_table(path, "jobs")
    require_columns(table, JOB_REQUIRED, path)
    source = str(path)
    rows = np.arange(1, len(table) + 1)
    dropped: dict[str, int] = {}
    for column in ("arrival_s", "duration_s"):
        blank = table[column].str.strip().eq("").to_numpy(dtype=bool)
        rows = _without(rows, blank[rows - 1], f"no {column}", dropped)
    duration = parse_exact(list(table["duration_s"].iloc[rows - 1]), "duration_s", source, rows)
    rows = _without(rows, np.asarray(duration < 0, dtype=bool), "negative duration_s", dropped)
    kept, duration = table.iloc[rows - 1], duration[duration >= 0]
    columns = {c: [t.strip() for t in kept[c]] for c in kept.columns if c in JOB_OPTIONAL + JOB_REQUIRED}
    jobs, renamed = job_table({**columns, "job": list(kept["job"])}, duration, source, rows)
    warnings = tuple(
        f"unknown column {c!r} is ignored" for c in table.columns if c not in JOB_REQUIRED + JOB_OPTIONAL
    )
    if renamed:
        warnings += (f"{renamed} repeated job names: later ones are renamed to name#2, name#3, ...",)
    return jobs, LoadReport(source, len(table), len(jobs), dropped, warnings=warnings)


def _without(rows: np.ndarray, wrong: np.ndarray, why: str, dropped: dict[str, int]) -> np.ndarray:
    """``rows`` without the ``wrong`` ones, which are counted in ``dropped``."""
    if wrong.any():
        dropped[why] = int(wrong.sum())
    return rows[~wrong]
