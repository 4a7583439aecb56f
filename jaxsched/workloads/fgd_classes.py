"""The class table of the FGD placement (ATC'23): which requests are typical, and its score's cut points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxsched.types import MILLI, Request
from jaxsched.workloads.impossible import allowed_models
from jaxsched.workloads.schema import JobTable

_INT32 = 2**31 - 1
_TYPICAL_PERCENT = 95


def fgd_table(
    jobs: Sequence[JobTable], models: list[str], gpus_per_node: int
) -> tuple[np.ndarray, np.ndarray]:
    """Class table i64[C, 6] (columns of ``Request``, INSTANCES is the count) and thresholds i64[100].

    Requests are counted per instance by (cpu, milli, num_gpu, models), the commonest first, ties by
    (cpu, milli, num_gpu, models) descending, until 95 % are covered. Counts so large that a node's
    fragmentation numerator would leave int32 are all divided by the same least whole number (and stay >= 1).
    """
    counts = _counts(jobs, models)
    classes = _within_int32(_typical(counts), gpus_per_node)
    table = np.zeros((max(1, len(classes)), len(Request)), dtype=np.int64)
    for row, ((cpu, milli, num_gpu, mask), count) in zip(table, classes, strict=False):
        row[Request.NUM_GPU], row[Request.GPU_MILLI], row[Request.CPU_MILLI] = num_gpu, milli, cpu
        row[Request.MODELS], row[Request.INSTANCES] = mask, count
    table = np.minimum(table, _INT32)  # such a request fits nowhere, with the limit as without it
    return table, fgd_thresholds(sum(count for _, count in classes))


def fgd_thresholds(total: int) -> np.ndarray:
    """i64[100]: least integer gain with score >= 1..100, that is trunc(100 sigmoid(gain / (1000 total)))."""
    cuts = [math.ceil(1000 * total * math.log(p / (100 - p))) for p in range(1, 100)]
    return np.clip(np.array([*cuts, _INT32], dtype=np.int64), -_INT32 - 1, _INT32)


def _counts(jobs: Sequence[JobTable], models: list[str]) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for table in jobs:
        frame = table.frame
        columns = [frame[c].tolist() for c in ("cpu_milli", "gpu_milli", "num_gpu")]
        requests = zip(*columns, allowed_models(table, models).tolist(), strict=True)
        for request, instances in zip(requests, frame["num_instances"].tolist(), strict=True):
            counts[request] += instances
    return counts


def _typical(counts: Counter[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]]:
    total, covered, chosen = sum(counts.values()), 0, []
    for request, count in sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True):
        chosen.append((request, count))
        covered += count
        if 100 * covered >= _TYPICAL_PERCENT * total:
            break
    return chosen


def _within_int32(
    classes: list[tuple[tuple[int, ...], int]], gpus_per_node: int
) -> list[tuple[tuple[int, ...], int]]:
    limit = _INT32 // (MILLI * max(1, gpus_per_node))
    divisor = max(1, sum(count for _, count in classes) // limit)
    while sum(max(1, count // divisor) for _, count in classes) > limit:
        divisor += 1
    return [(request, max(1, count // divisor)) for request, count in classes]
