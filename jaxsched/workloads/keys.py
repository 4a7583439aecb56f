"""Queue orders made on the host in exact or 64-bit arithmetic: static ranks, and the constants of the two
orders that depend on the clock (formulas: RLScheduler, SC'20, and DESIGN section 4)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from jaxsched.types import NUM_STATIC_ORDERS, Order


def ranks(
    least_estimate: np.ndarray,
    gpu_milli_total: np.ndarray,
    arrival: np.ndarray,
    deadline: np.ndarray,
    tick: Fraction,
) -> np.ndarray:
    """i64[J, 5]: place of each job (rows sorted by arrival) in each static order; ties keep the row order.

    Times are ticks. sjf: ``least_estimate``; saf: that times the total GPU milli; edf: ``deadline``; f1:
    ``log10(max(e, 1)) n + 870 log10(s + 1)`` with seconds e and s and ``n = max(1, GPUs)``.
    """
    seconds = float(tick)
    f1 = np.log10(np.maximum(least_estimate * seconds, 1.0)) * job_size(gpu_milli_total)
    f1 += 870.0 * np.log10(arrival * seconds + 1.0)
    keys = {
        Order.FIFO: np.zeros_like(arrival),
        Order.SJF: least_estimate,
        Order.SAF: least_estimate * gpu_milli_total,
        Order.F1: f1,
        Order.EDF: deadline,
    }
    result = np.empty((len(arrival), NUM_STATIC_ORDERS), dtype=np.int64)
    for order, key in keys.items():
        result[np.argsort(key, kind="stable"), order] = np.arange(len(arrival))
    return result


def urgency(least_estimate: np.ndarray, gpu_milli_total: np.ndarray) -> np.ndarray:
    """f64[J, 2]: ``n / e^3`` (wfp3) and ``1 / (log2(max(n, 2)) e)`` (unicep), e in ticks and at least one."""
    size = job_size(gpu_milli_total)
    ticks = np.maximum(least_estimate, 1).astype(np.float64)
    return np.stack([size / ticks**3, 1.0 / (np.log2(np.maximum(size, 2.0)) * ticks)], axis=1)


def job_size(gpu_milli_total: np.ndarray) -> np.ndarray:
    """f64[J]: ``max(1, GPUs)``, the job size in the orders f1, wfp3 and unicep."""
    return np.maximum(1.0, gpu_milli_total / 1000.0)
