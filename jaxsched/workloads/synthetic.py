"""A seeded generator of job windows, calibrated on published marginals of real GPU clusters.

Sources: openb = Alibaba cluster-trace-gpu-v2023 (default pod list; FGD, ATC'23), gpuspec33 = its list with
model constraints, PAI = Alibaba cluster-trace-gpu-v2020 (MLaaS, NSDI'22), Philly = msr-fiddle/philly-traces
(ATC'19). One window is one independent random stream, so windows never depend on how many are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd

from jaxsched.errors import InputError
from jaxsched.workloads.schema import JobTable
from jaxsched.workloads.times import TICK_LIMIT

# openb, GPU pods that ran: 41.5 % ask for less than one GPU.
FRACTION_SHARE = 0.415
# Philly, jobs by GPUs (82 247 jobs; openb has only 74 multi-GPU pods): 1, 2, 4 and 8 GPUs.
WHOLE_COUNTS = {1: 76627, 2: 1818, 4: 1870, 8: 1643}
# openb, share of CPU-only pods: 1088 of 8152.
CPU_ONLY_SHARE = 0.133
# gpuspec33: 33.8 % of the GPU pods name models; of those 84.2 % name one.
CONSTRAINED_SHARE = 0.338
ONE_MODEL_SHARE = 0.842
# PAI, instances per task up to 8 (858 of 1000 sampled tasks): 757 have one.
GANG_SHARE = 0.118
GANG_COUNTS = {2: 37, 3: 11, 4: 5, 5: 29, 6: 4, 7: 1, 8: 14}
# openb, lognormal (mu, sigma) of seconds by request class, uncensored pods ("cpu": scheduled CPU-only pods).
DURATION = {
    "cpu": (6.533, 1.724),
    "<0.25": (7.468, 2.044),
    "0.25-0.5": (6.773, 1.796),
    "0.5-1": (5.856, 1.820),
    "1": (6.642, 1.731),
    "2": (7.243, 1.980),
    "4": (5.937, 2.680),
    "8": (7.361, 2.558),
}
# openb, commonest requests (cpu_milli, memory_mib, gpu_milli): pods. Two 8-GPU requests of 120 cores (5 pods)
# are left out: they fit no 96-core node.
REQUESTS = {
    "cpu": {(12500, 57344, 0): 347, (32000, 49152, 0): 281, (8000, 30517, 0): 163, (15400, 51200, 0): 114},
    "<0.25": {(4000, 30517, 230): 55, (4000, 15258, 160): 51, (4000, 15258, 220): 23, (6000, 22888, 160): 19},
    "0.25-0.5": {
        (11908, 47104, 470): 255,
        (8000, 30517, 470): 198,
        (4000, 22888, 320): 92,
        (8000, 30517, 320): 67,
    },
    "0.5-1": {
        (3152, 5600, 810): 988,
        (11908, 47104, 650): 202,
        (4152, 10600, 550): 71,
        (3152, 5600, 590): 62,
    },
    "1": {
        (11300, 49152, 1000): 801,
        (11400, 48128, 1000): 492,
        (3152, 5600, 1000): 463,
        (18708, 64512, 1000): 207,
        (9810, 41560, 1000): 159,
        (12000, 24576, 1000): 155,
        (15700, 58368, 1000): 136,
    },
    "2": {(16200, 66560, 1000): 6, (6000, 65536, 1000): 3, (30200, 160768, 1000): 3, (17400, 43008, 1000): 2},
    "4": {(32200, 132096, 1000): 9, (32000, 131072, 1000): 3, (60200, 320512, 1000): 3},
    "8": {(64200, 263168, 1000): 18, (88000, 327680, 1000): 18, (64000, 262144, 1000): 3},
}
FRACTIONS = {"<0.25": 249, "0.25-0.5": 946, "0.5-1": 1367}  # openb, uncensored pods
# openb, relative arrival rate of the 24 hours of a day (the clock's offset is unknown).
# fmt: off
HOURLY_RATE = (
    1.515, 1.343, 1.073, 1.287, 1.260, 0.934, 0.860, 0.976, 0.706, 0.430, 0.649, 0.599,
    0.448, 0.436, 0.397, 0.786, 0.884, 1.245, 1.628, 1.379, 1.035, 1.275, 1.263, 1.592,
)
# fmt: on
# A two-state arrival chain (Markov-modulated Poisson) of mean gap 1; 75 % of the arrivals come in bursts.
# The gaps' coefficient of variation is 1.4 by itself and 1.6 with the pattern of the day (openb: 1.60).
BURST_GAP, CALM_GAP, BURST_ARRIVALS, CALM_ARRIVALS = 0.6, 2.2, 20, 20 / 3
_HOUR_S, _DAY_S = 3600.0, 86400.0


@dataclass(frozen=True)
class JobMix:
    """What the generator draws; the defaults are the published marginals above."""

    cpu_only: float = CPU_ONLY_SHARE  # share of all jobs
    fraction: float = FRACTION_SHARE  # share of the GPU jobs that ask for less than one device
    whole: Mapping[int, float] = field(
        default_factory=lambda: dict(WHOLE_COUNTS)
    )  # weights of 1, 2, 4, 8 GPUs
    gang: float = GANG_SHARE  # share of the jobs of at most one GPU that come in 2..8 instances
    constrained: float = CONSTRAINED_SHARE  # share of the GPU jobs that name models
    shortest_s: int = 4  # durations are clipped (openb's least is 4 s)
    longest_s: int = 86_400
    estimate_error: float = 0.0  # sigma of a lognormal error of duration estimates; 0: exact

    def __post_init__(self) -> None:
        for name in ("cpu_only", "fraction", "gang", "constrained"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"mix.{name} is a share between 0 and 1, not {getattr(self, name)}")
        if not self.whole or not set(self.whole) <= set(WHOLE_COUNTS) or min(self.whole.values()) < 0:
            raise InputError(f"mix.whole gives weights of 1, 2, 4 and 8 GPUs, not {dict(self.whole)}")
        if sum(self.whole.values()) <= 0 or self.estimate_error < 0:
            raise InputError("mix.whole needs a weight above 0, mix.estimate_error must not be negative")
        if not 1 <= self.shortest_s <= self.longest_s < TICK_LIMIT:
            raise InputError(f"mix: 1 <= shortest_s <= longest_s, not {self.shortest_s}, {self.longest_s}")


def stream(*numbers: int) -> np.random.Generator:
    """An independent random stream for each tuple of non-negative numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))


def generate_window(
    rng: np.random.Generator,
    num_jobs: int,
    mix: JobMix,
    classes: Sequence[str],
    gpus_by_model: Mapping[str, int],
    mean_gap_s: float | None = None,
    gpu_load: float = 1.0,
) -> JobTable:
    """A window of jobs in order of arrival, all times whole seconds, the first arrival at 0.

    ``classes`` are drawn evenly, model sets in proportion to ``gpus_by_model``. Arrivals come in bursts and
    follow the day from a random hour on; their mean gap is ``mean_gap_s``, by default such that GPU-seconds
    at speed 1 over GPUs x span is about ``gpu_load``.
    """
    kinds = _request_kinds(mix.cpu_only, mix.fraction, tuple(sorted(mix.whole.items())))
    kind = _draw(rng, kinds["share"], num_jobs)
    num_gpu, milli = kinds["num_gpu"][kind], kinds["gpu_milli"][kind]
    log_s = kinds["mu"][kind] + kinds["sigma"][kind] * rng.standard_normal(num_jobs)
    duration = _clipped(np.exp(log_s), mix)
    error = np.exp(mix.estimate_error * rng.standard_normal(num_jobs))
    instances = _instances(rng, num_gpu, mix.gang)
    if mean_gap_s is None:
        work = float((num_gpu * milli * instances * duration).sum()) / 1000.0
        mean_gap_s = work / (sum(gpus_by_model.values()) * gpu_load * num_jobs)
    frame = {
        "job": _names(num_jobs),
        "arrival_s": _arrivals(rng, num_jobs, mean_gap_s),
        "duration_s": duration,
        "num_gpu": num_gpu,
        "gpu_milli": milli,
        "cpu_milli": kinds["cpu_milli"][kind],
        "memory_mib": kinds["memory_mib"][kind],
        "gpu_spec": _model_sets(rng, num_gpu, mix.constrained, gpus_by_model),
        "num_instances": instances,
        "weight": np.ones(num_jobs),
        "deadline_s": _no_deadlines(num_jobs),
        "estimate_s": _clipped(duration * error, mix),
        "class": pd.Categorical.from_codes(rng.integers(0, len(classes), num_jobs), categories=list(classes)),
    }
    return JobTable(pd.DataFrame(frame), "synthetic jobs")


@lru_cache(maxsize=64)
def _request_kinds(
    cpu_only: float, fraction: float, whole: tuple[tuple[int, float], ...]
) -> dict[str, np.ndarray]:
    """One row for each request of each class: its share of all jobs, what it asks for, how long it runs."""
    shares = {"cpu": cpu_only}
    gpu, fractions, wholes = 1 - cpu_only, sum(FRACTIONS.values()), sum(w for _, w in whole)
    shares |= {name: gpu * fraction * n / fractions for name, n in FRACTIONS.items()}
    shares |= {str(size): gpu * (1 - fraction) * w / wholes for size, w in whole}
    rows = []
    for name, share in shares.items():
        num_gpu = 0 if name == "cpu" else int(name) if name.isdigit() else 1
        pods = sum(REQUESTS[name].values())
        for (cpu, memory, milli), n in REQUESTS[name].items():
            rows.append((share * n / pods, num_gpu, milli, cpu, memory, *DURATION[name]))
    columns = ("share", "num_gpu", "gpu_milli", "cpu_milli", "memory_mib", "mu", "sigma")
    table = dict(zip(columns, np.array(rows).T, strict=True))
    whole_numbers = ("num_gpu", "gpu_milli", "cpu_milli", "memory_mib")
    return {c: v.astype(np.int64) if c in whole_numbers else v for c, v in table.items()}


def _draw(rng: np.random.Generator, weights: np.ndarray, size: int) -> np.ndarray:
    """Indices drawn in proportion to weights."""
    edges = np.cumsum(weights)
    return np.minimum(np.searchsorted(edges, rng.random(size) * edges[-1], side="right"), len(weights) - 1)


def _clipped(seconds: np.ndarray, mix: JobMix) -> np.ndarray:
    return np.clip(np.rint(seconds), mix.shortest_s, mix.longest_s).astype(np.int64)


def _instances(rng: np.random.Generator, num_gpu: np.ndarray, share: float) -> np.ndarray:
    """Instances of each job: gangs only among the jobs that ask for at most one device an instance."""
    sizes = np.array(list(GANG_COUNTS))[_draw(rng, np.array(list(GANG_COUNTS.values())), len(num_gpu))]
    is_gang = (num_gpu == 1) & (rng.random(len(num_gpu)) < share)
    return np.where(is_gang, sizes, 1)


def _model_sets(
    rng: np.random.Generator, num_gpu: np.ndarray, share: float, gpus_by_model: Mapping[str, int]
) -> pd.Categorical:
    """gpu_spec of each job: blank, one model or two, models in proportion to their GPUs."""
    models = sorted(gpus_by_model)
    size = len(num_gpu)
    weights = np.array([gpus_by_model[m] for m in models], dtype=float)
    first = _draw(rng, weights, size)
    second = (first + 1 + rng.integers(0, max(1, len(models) - 1), size)) % len(models)
    second = np.where(rng.random(size) < ONE_MODEL_SHARE, first, second)
    constrained = (num_gpu > 0) & (rng.random(size) < share)
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs = [(a, b) for a in range(len(models)) for b in range(a, len(models))]
    number = np.zeros((len(models), len(models)), dtype=np.int64)
    for i, (a, b) in enumerate(pairs):
        number[a, b] = i + 1
    names = ["", *(models[a] if a == b else f"{models[a]}|{models[b]}" for a, b in pairs)]
    return pd.Categorical.from_codes(np.where(constrained, number[low, high], 0), categories=names)


def _arrivals(rng: np.random.Generator, size: int, mean_gap_s: float) -> np.ndarray:
    """i64[size] whole seconds from 0, bursty and with the pattern of a day."""
    in_burst = _burst_states(rng, size)
    gaps = rng.exponential(mean_gap_s, size) * np.where(in_burst, BURST_GAP, CALM_GAP)
    rates = np.array(HOURLY_RATE) / np.mean(HOURLY_RATE)
    hours = np.arange(25) * _HOUR_S
    passed = np.concatenate([[0.0], np.cumsum(rates) * _HOUR_S])  # of a day at the mean rate
    start = np.interp(rng.random() * _DAY_S, hours, passed)
    busy = start + np.cumsum(gaps)
    clock = np.floor(busy / _DAY_S) * _DAY_S + np.interp(busy % _DAY_S, passed, hours)
    return np.floor(clock - clock[0]).astype(np.int64)


def _burst_states(rng: np.random.Generator, size: int) -> np.ndarray:
    """bool[size]: alternating runs of geometric length, started in equilibrium."""
    burst_first = rng.random() < BURST_ARRIVALS / (BURST_ARRIVALS + CALM_ARRIVALS)
    runs = max(8, size)
    lengths = np.empty(runs, dtype=np.int64)
    odd = int(not burst_first)
    lengths[odd::2] = rng.geometric(1 / BURST_ARRIVALS, len(lengths[odd::2]))
    lengths[1 - odd :: 2] = rng.geometric(1 / CALM_ARRIVALS, len(lengths[1 - odd :: 2]))
    states = np.arange(runs) % 2 == odd
    return np.repeat(states, lengths)[:size]


@lru_cache(maxsize=16)
def _names(size: int) -> pd.Series:
    return pd.Series(np.array([f"job-{i:04d}" for i in range(size)], dtype=object), dtype=object)


@lru_cache(maxsize=16)
def _no_deadlines(size: int) -> pd.Series:
    return pd.Series(np.full(size, None, dtype=object), dtype=object)
