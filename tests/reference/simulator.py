"""The event loop: settle, decide, start or wait, until nothing arrives, waits or runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.reference.resources import NEVER, Free, Part, RefJob, RefNode

FgdClass = tuple[int, int, int, int, int]  # count, num_gpu, gpu_milli, cpu_milli, models
Choice = tuple[int, int, int | None]  # job row, node, device (None: the default rule)


@dataclass(slots=True)
class RefResult:
    """What became of one job; ``job`` is its row after the stable sort by arrival."""

    job: int
    name: str
    arrival: int
    start: int | None = None
    finish: int | None = None
    parts: list[Part] = field(default_factory=list)


@dataclass(slots=True)
class Running:
    row: int
    end: int
    estimated_end: int
    parts: list[Part]


class Cluster:
    """State of one run. Job rows are positions after the stable sort by arrival."""

    def __init__(
        self,
        nodes: Sequence[RefNode],
        jobs: Sequence[RefJob],
        *,
        queue: int = 64,
        tick_s: float = 1,
        draws: Sequence[int] | None = None,
        fgd_classes: Sequence[FgdClass] | None = None,
    ) -> None:
        self.nodes = list(nodes)
        self.jobs = sorted(jobs, key=lambda job: job.arrival)  # stable: ties keep their order
        self.tick_s, self.draws, self.fgd_classes = tick_s, draws, fgd_classes
        self.memo: dict = {}  # what policies compute once per run
        self.free = Free(self.nodes)
        for job in self.jobs:
            if not self.free.legal_nodes(job):
                raise ValueError(f"{job.name} can never start: take impossible jobs out before the run")
        self.least_estimate = [least_estimate(job, self.nodes) for job in self.jobs]
        self.results = [RefResult(row, job.name, job.arrival) for row, job in enumerate(self.jobs)]
        self.time = self.jobs[0].arrival if self.jobs else 0
        self.slots = [-1] * queue
        self.running: list[Running] = []
        self.arrived = self.admitted = self.finished = self.decisions = 0
        self.choices = 0  # decisions at which some job could start
        self.job_ticks = 0  # integral over time of the jobs arrived and not finished
        self.settle()

    @property
    def done(self) -> bool:
        return self.finished == len(self.jobs)

    @property
    def backlog(self) -> int:
        """Jobs that have arrived and found no slot yet."""
        return self.arrived - self.admitted

    @property
    def visible(self) -> list[int]:
        """Rows of the jobs in the queue, earliest first."""
        return sorted([row for row in self.slots if row >= 0])

    @property
    def draw(self) -> int:
        """The random integer of this decision."""
        if self.draws is None:
            raise ValueError("a policy that draws needs `draws`, one integer per decision")
        return self.draws[self.choices]

    def settle(self) -> None:
        """End all jobs due, take in all arrivals due, fill free slots from the backlog."""
        due = [run for run in self.running if run.end <= self.time]
        if due:
            self.running = [run for run in self.running if run.end > self.time]
        for run in due:
            self.free.give_back(self.jobs[run.row], run.parts)
            self.finished += 1
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].arrival <= self.time:
            self.arrived += 1
        while self.admitted < self.arrived and -1 in self.slots:
            self.slots[self.slots.index(-1)] = self.admitted
            self.admitted += 1

    def start(self, row: int, node: int, device: int | None = None) -> None:
        """Start a queued job with ``node`` as its first node; then settle."""
        job = self.jobs[row]
        slot = self.slots.index(row)  # ValueError if it is not in the queue
        parts = self.free.allocate(job, node, device)
        self.slots[slot] = -1
        self.free.take(job, parts)
        end = self.time + slowest(job.duration_by_model, parts, self.nodes)
        estimated_end = self.time + slowest(job.estimate_by_model, parts, self.nodes)
        self.running.append(Running(row, end, estimated_end, parts))
        result = self.results[row]
        result.start, result.finish, result.parts = self.time, end, parts
        self.decisions += 1
        self.choices += 1
        self.settle()

    def next_event(self) -> int:
        """The next arrival or end, NEVER if there is none."""
        arrival = self.jobs[self.arrived].arrival if self.arrived < len(self.jobs) else NEVER
        return min([arrival, *[run.end for run in self.running]])

    def wait(self) -> None:
        """Move to the next instant at which something happens; then settle."""
        instant = self.next_event()
        if instant == NEVER:
            raise RuntimeError(f"waiting at {self.time} with nothing still to happen")
        if self.draws is not None and self.legal_pairs():
            self.choices += 1  # a forced WAIT is no choice
        self.job_ticks += (self.arrived - self.finished) * (instant - self.time)
        self.time = instant
        self.decisions += 1
        self.settle()

    def legal_pairs(self) -> list[tuple[int, int]]:
        """All (job row, node) that could be started now."""
        return [(row, node) for row in self.visible for node in self.free.legal_nodes(self.jobs[row])]


def least_estimate(job: RefJob, nodes: Sequence[RefNode]) -> int:
    """Estimated run time on the fastest model that the job may use and the world has."""
    models = {node.model for node in nodes if job.models >> node.model & 1 and (node.gpus or not job.num_gpu)}
    return min(job.estimate_by_model[model] for model in models)


def slowest(by_model: Sequence[int], parts: list[Part], nodes: Sequence[RefNode]) -> int:
    """A gang runs at its slowest node."""
    return max([by_model[nodes[node].model] for node, _, _ in parts])


def possible_jobs(nodes: Sequence[RefNode], jobs: Sequence[RefJob]) -> list[RefJob]:
    """Those that fit into the empty cluster."""
    empty = Free(nodes)
    return [job for job in jobs if empty.legal_nodes(job)]


Policy = Callable[[Cluster], Choice | None]  # None is WAIT
Watcher = Callable[[Cluster, Choice | None], None]


def run(
    cluster: Cluster, policy: Policy, *, max_decisions: int | None = None, watch: Watcher | None = None
) -> Cluster:
    """Run ``cluster`` to its end (or ``max_decisions``); ``watch`` sees every decision before it acts."""
    while not cluster.done and cluster.decisions != max_decisions:
        choice = policy(cluster)
        if watch is not None:
            watch(cluster, choice)
        if choice is None:
            cluster.wait()
        else:
            cluster.start(*choice)
    return cluster


def simulate(
    nodes: Sequence[RefNode],
    jobs: Sequence[RefJob],
    policy: Policy,
    *,
    queue: int = 64,
    tick_s: float = 1,
    draws: Sequence[int] | None = None,
    fgd_classes: Sequence[FgdClass] | None = None,
    max_decisions: int | None = None,
) -> list[RefResult]:
    """The schedule, one result per job in row order.

    ``draws`` has an integer per decision at which some job could start (three per job always suffice);
    ``fgd_classes`` defaults to the table counted on ``jobs``.
    """
    cluster = Cluster(nodes, jobs, queue=queue, tick_s=tick_s, draws=draws, fgd_classes=fgd_classes)
    return run(cluster, policy, max_decisions=max_decisions).results
