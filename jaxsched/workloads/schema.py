"""The one job table and the one node table, and their validation.

Job columns: ``job, arrival_s, duration_s, num_gpu, gpu_milli, cpu_milli, memory_mib, gpu_spec,
num_instances, weight, deadline_s, estimate_s, class``. Requests are per instance; ``num_gpu`` counts devices
and ``gpu_milli`` is the share of each. Times are exact (``times.parse_exact``); ``deadline_s`` is an
instant of the trace's own clock, like ``arrival_s``, or None. Node columns are openb's:
``sn, cpu_milli, memory_mib, gpu, model``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from jaxsched.errors import InputError
from jaxsched.workloads.times import exact_array, parse_exact, parse_whole

JOB_REQUIRED = ("job", "arrival_s", "duration_s", "num_gpu")
JOB_OPTIONAL = (
    "gpu_milli",
    "cpu_milli",
    "memory_mib",
    "gpu_spec",
    "num_instances",
    "weight",
    "deadline_s",
    "estimate_s",
    "class",
)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
REQUEST_DEFAULTS = (  # column, default, least value
    ("num_gpu", "0", 0),
    ("cpu_milli", "0", 0),
    ("memory_mib", "0", 0),
    ("num_instances", "1", 1),
)
DEFAULT_CLASS = "default"
UNNAMED_MODEL = "GPU"  # model of a node that has GPUs but names none
LEAST_GANG_MILLI = 8  # a device holds at most 125 instances of a gang: int8 counts per device


@dataclass(frozen=True, eq=False)
class JobTable:
    """Validated jobs in the file's row order: ``frame`` has the native columns, ``source`` their origin."""

    frame: pd.DataFrame
    source: str

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: np.ndarray | slice) -> JobTable:
        """The jobs of some rows (positions), in that order."""
        return JobTable(self.frame.iloc[rows].reset_index(drop=True), self.source)


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Validated nodes; ``frame`` has ``sn, cpu_milli, memory_mib, gpu, model`` (model "" without GPUs)."""

    frame: pd.DataFrame
    source: str

    def __len__(self) -> int:
        return len(self.frame)


def normal_spec(spec: str) -> str:
    """A set of allowed GPU models as sorted text without repeats; blank and 'nan' mean any ("")."""
    text = spec.strip()
    return "" if text in ("", "nan", "NaN") else "|".join(sorted({m.strip() for m in text.split("|")} - {""}))


def category(values: list[str]) -> pd.Categorical:
    """Text with few distinct values, stored as codes."""
    return pd.Categorical(values, categories=sorted(set(values)))


def text_column(values: list[str]) -> pd.Series:
    """Exact text ('NA', 'null' and '007' stay what they are)."""
    return pd.Series(np.array(values, dtype=object), dtype=object)


def unique_names(names: list[str]) -> tuple[list[str], int]:
    """Later uses of a name become ``name#2``, ``name#3``...; also how many rows were renamed."""
    taken, result = set(names), []
    used: dict[str, int] = {}
    for name in names:
        if name in used:
            count = used[name] + 1
            while f"{name}#{count}" in taken:
                count += 1
            used[name] = count
            taken.add(f"{name}#{count}")
            result.append(f"{name}#{count}")
        else:
            used[name] = 1
            result.append(name)
    return result, sum(a != b for a, b in zip(names, result, strict=True))


def checked_gpu_request(
    num_gpu: np.ndarray, gpu_milli: np.ndarray, instances: np.ndarray, source: str, rows: np.ndarray
) -> np.ndarray:
    """``gpu_milli`` by the rules of both numbers together; ``rows`` are the row numbers that errors name.

    No devices: 0, whatever the share says. One device: 1..1000. Several: whole devices, written as 1000 or 0.
    """
    gpu_milli = np.where((num_gpu > 1) & (gpu_milli == 0), 1000, gpu_milli)
    contradictions = (
        (num_gpu < 0, "num_gpu must not be negative"),
        ((num_gpu > 0) & (gpu_milli > 1000), "gpu_milli is the share of one device, at most 1000"),
        ((num_gpu > 0) & (gpu_milli < 1), "a job with GPUs needs gpu_milli of at least 1"),
        ((num_gpu > 1) & (gpu_milli != 1000), "several GPUs can only be asked for whole (gpu_milli 1000)"),
        (
            (num_gpu == 1) & (instances > 1) & (gpu_milli < LEAST_GANG_MILLI),
            f"instances of a gang need gpu_milli of at least {LEAST_GANG_MILLI}",
        ),
    )
    for wrong, rule in contradictions:
        if wrong.any():
            at = int(np.argmax(wrong))
            found = f"num_gpu {num_gpu[at]}, gpu_milli {gpu_milli[at]}"
            raise InputError(f"{source}: row {rows[at]}: {found}: {rule}")
    return np.where(num_gpu > 0, gpu_milli, 0)


def refuse_below(values: np.ndarray, least: int, column: str, source: str, rows: np.ndarray) -> None:
    """Raises ``InputError`` naming row and column of the first value under ``least``."""
    if len(values) and values.min() < least:
        at = int(np.argmax(values < least))
        raise InputError(f"{source}: row {rows[at]}, column {column!r}: {values[at]} is less than {least}")


def node_table(
    names: list[str], numbers: Mapping[str, np.ndarray], models: list[str], source: str
) -> NodeTable:
    """Nodes from arrays ``cpu_milli, memory_mib, gpu``; a repeated name becomes ``name#2``."""
    if not names:
        raise InputError(f"no nodes in {source}")
    spelled = [
        normal_spec(m) or UNNAMED_MODEL if g else "" for m, g in zip(models, numbers["gpu"], strict=True)
    ]
    frame = pd.DataFrame({"sn": text_column(unique_names(names)[0]), **numbers, "model": category(spelled)})
    return NodeTable(frame[list(NODE_COLUMNS)], source)


def job_table(
    columns: Mapping[str, list[str]], duration: np.ndarray, source: str, rows: np.ndarray
) -> tuple[JobTable, int]:
    """A job table from texts and exact durations, and how many repeated names were changed.

    ``columns`` has ``job`` and ``arrival_s`` and any other native column; a blank text is the default.
    ``rows`` are the row numbers of the file that errors name.
    """
    blank = [""] * len(rows)
    names, renamed = unique_names(columns["job"])
    estimate = _optional_times(columns.get("estimate_s", blank), "estimate_s", source, rows)
    known = exact_array([d if e is None else e for e, d in zip(estimate, duration.tolist(), strict=True)])
    refuse_below(known, 0, "estimate_s", source, rows)
    weights = parse_exact([t or "1" for t in columns.get("weight", blank)], "weight", source, rows)
    deadlines = _optional_times(columns.get("deadline_s", blank), "deadline_s", source, rows)
    frame = pd.DataFrame(
        {
            "job": text_column(names),
            "arrival_s": parse_exact(columns["arrival_s"], "arrival_s", source, rows),
            "duration_s": duration,
            **_requests(columns, source, rows),
            "gpu_spec": category([normal_spec(t) for t in columns.get("gpu_spec", blank)]),
            "weight": weights.astype(np.float64),
            "deadline_s": pd.Series(deadlines, dtype=object),
            "estimate_s": known,
            "class": category([t or DEFAULT_CLASS for t in columns.get("class", blank)]),
        }
    )
    return JobTable(frame[list(JOB_REQUIRED + JOB_OPTIONAL)], source), renamed


def _requests(columns: Mapping[str, list[str]], source: str, rows: np.ndarray) -> dict[str, np.ndarray]:
    """i64 columns of what one instance asks for and of how many there are."""
    blank = [""] * len(rows)
    result = {}
    for name, default, least in REQUEST_DEFAULTS:
        texts = [t or default for t in columns.get(name, blank)]
        result[name] = parse_whole(texts, name, source, rows)
        refuse_below(result[name], least, name, source, rows)
    num_gpu = result["num_gpu"]
    shares = zip(columns.get("gpu_milli", blank), num_gpu, strict=True)
    milli = parse_whole([t or ("1000" if g else "0") for t, g in shares], "gpu_milli", source, rows)
    result["gpu_milli"] = checked_gpu_request(num_gpu, milli, result["num_instances"], source, rows)
    return result


def _optional_times(texts: list[str], column: str, source: str, rows: np.ndarray) -> np.ndarray:
    """object[rows]: exact times, None where the text is blank."""
    present = [i for i, t in enumerate(texts) if t]
    result = np.full(len(texts), None, dtype=object)
    result[present] = parse_exact([texts[i] for i in present], column, source, rows[present]).tolist()
    return result
