"""One reader a trace format: file -> the one job table and a report of what was dropped and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jaxsched.errors import InputError, nearest
from jaxsched.workloads.readers import alibaba_2023
from jaxsched.workloads.readers.csv_text import read_text_table
from jaxsched.workloads.readers.native import read_jobs_csv
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JOB_OPTIONAL, JOB_REQUIRED, JobTable

__all__ = ["FORMATS", "load"]

Reader = Callable[[str | Path], tuple[JobTable, LoadReport]]
FORMATS: dict[str, Reader] = {"jaxsched": read_jobs_csv, "alibaba-2023": alibaba_2023.read_pods}
_COLUMNS = {
    "jaxsched": {*JOB_REQUIRED, *JOB_OPTIONAL},
    "alibaba-2023": {
        *alibaba_2023.REQUEST_COLUMNS,
        *alibaba_2023.TIME_COLUMNS,
        alibaba_2023.PHASE,
        "gpu_spec",
        "qos",
    },
}


def load(path: str | Path, format: str = "auto") -> tuple[JobTable, LoadReport]:
    """Jobs of a trace file and what happened while reading it.

    ``format`` is one of ``FORMATS``, or "auto": the format with which the header has most columns in common.
    Raises ``InputError``.
    """
    if format == "auto":
        format = _recognised(path)
    if format not in FORMATS:
        raise InputError(
            f"unknown format {format!r}; known: auto, {', '.join(FORMATS)}; {nearest(format, FORMATS)}"
        )
    jobs, report = FORMATS[format](path)
    if not len(jobs):
        raise InputError(f"no jobs in {path}: all {report.rows_read} rows were dropped ({_reasons(report)})")
    return jobs, report


def _recognised(path: str | Path) -> str:
    """The format that shares most columns with the file; ``jaxsched`` wins ties."""
    found = set(read_text_table(path, "jobs").columns)
    shared = {name: len(found & columns) for name, columns in _COLUMNS.items()}
    best = max(shared, key=lambda name: shared[name])
    if not shared[best]:
        known = ", ".join(FORMATS)
        raise InputError(
            f"{path} is in no known format ({known}): its columns are {', '.join(sorted(found))}"
        )
    return best


def _reasons(report: LoadReport) -> str:
    return ", ".join(f"{n} {why}" for why, n in report.dropped.items())
