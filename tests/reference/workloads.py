"""Random tiny workloads that crowd the awkward cases together; every job is possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tests.reference.resources import NEVER, WHOLE, RefJob, RefNode
from tests.reference.simulator import possible_jobs

SPEEDS = (Fraction(1), Fraction(2), Fraction(3, 2), Fraction("0.7"), Fraction(1, 2))
FRACTIONS = (50, 220, 460, 500, 1000)


@dataclass(frozen=True, slots=True)
class RefWorkload:
    """``jobs`` are sorted by arrival, the first at 0; ``num_models`` counts column 0 (no GPU) too."""

    nodes: list[RefNode]
    jobs: list[RefJob]
    queue: int
    num_models: int

    @property
    def draws_needed(self) -> int:
        """Decisions are starts (one a job) and WAITs (at most one per arrival or end)."""
        return 3 * len(self.jobs) + 1


def random_workload(seed: int, *, max_jobs: int = 10, max_nodes: int = 4, max_gpus: int = 4) -> RefWorkload:
    """The workload of ``seed``: the same for ever, and never without a job."""
    rng = np.random.default_rng(seed)
    while True:
        num_models = 1 + int(rng.integers(1, 4))
        nodes = _random_nodes(rng, num_models, int(rng.integers(1, max_nodes + 1)), max_gpus)
        # exact, noisy in both directions, or far off: each workload has one kind of estimate
        noise = [(1,), (0.5, 1, 2), (0, 0.1, 1, 7)][rng.integers(3)]
        speeds = [[SPEEDS[rng.integers(len(SPEEDS))] for _ in range(num_models - 1)] for _ in range(2)]
        horizon = int(rng.choice([1, 10, 40]))
        count = int(rng.integers(min(5, max_jobs), max_jobs + 1))
        # twice as many as needed, because the impossible ones are left out
        arrivals = [int(t) for t in sorted(rng.integers(0, horizon, 2 * count))]
        wanted = [_random_job(rng, i, t, num_models, max_gpus, noise, speeds) for i, t in enumerate(arrivals)]
        jobs = possible_jobs(nodes, wanted)[:count]
        if jobs:
            queue = int(rng.choice([2, 3, 8, 16]))
            return RefWorkload(nodes, _rebased(jobs), queue, num_models)


def _random_nodes(rng: np.random.Generator, num_models: int, count: int, max_gpus: int) -> list[RefNode]:
    tight = bool(rng.integers(2))
    nodes = []
    for _ in range(count):
        model = 0 if rng.random() < 0.15 else int(rng.integers(1, num_models))
        gpus = int(rng.integers(1, max_gpus + 1)) if model else 0
        cpu = int(rng.choice([3000, 8000, 12000])) if tight else 10**6
        nodes.append(RefNode(model, gpus, cpu, cpu * 4))
    return nodes


def _random_request(rng: np.random.Generator, max_gpus: int) -> tuple[int, int, int]:
    """num_gpu, gpu_milli, instances."""
    instances = int(rng.integers(2, 6)) if rng.random() < 0.25 else 1
    kind = rng.random()
    if kind < 0.15:
        return 0, 0, instances
    if kind < 0.4:
        return int(rng.integers(2, max_gpus + 1)) if max_gpus > 1 else 1, WHOLE, instances
    return 1, int(rng.choice(FRACTIONS)), instances


def _random_job(
    rng: np.random.Generator,
    index: int,
    arrival: int,
    num_models: int,
    max_gpus: int,
    noise: tuple[float, ...],
    speeds: list[list[Fraction]],
) -> RefJob:
    num_gpu, milli, instances = _random_request(rng, max_gpus)
    duration = int(rng.choice([0, 1, 3, 5, 5, 8, 13, 21, 34]))
    estimate = int(duration * noise[rng.integers(len(noise))])
    everything = 2**num_models - 1
    models = int(rng.integers(1, 2 ** (num_models - 1))) * 2 if rng.random() < 0.25 else everything
    job_speeds = [Fraction(1), *speeds[rng.integers(len(speeds))]] if num_gpu else [Fraction(1)] * num_models
    return RefJob(
        name=f"j{index}",
        arrival=arrival,
        duration_by_model=[-(-duration // speed) for speed in job_speeds],
        estimate_by_model=[-(-estimate // speed) for speed in job_speeds],
        num_gpu=num_gpu,
        gpu_milli=milli,
        cpu_milli=int(rng.choice([0, 500, 1000, 2000, 3000])),
        memory_mib=int(rng.choice([0, 1000, 4000, 9000])),
        instances=instances,
        models=models,
        deadline=arrival + int(rng.integers(0, 50)) if rng.random() < 0.5 else NEVER,
        weight=float(rng.integers(1, 5)),
    )


def _rebased(jobs: list[RefJob]) -> list[RefJob]:
    """Time starts at the first arrival that is left; deadlines move along."""
    origin = jobs[0].arrival
    return [
        replace(
            job,
            arrival=job.arrival - origin,
            deadline=NEVER if job.deadline == NEVER else job.deadline - origin,
        )
        for job in jobs
    ]
