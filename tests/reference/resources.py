"""Nodes, jobs and the integer book-keeping of what is free on every device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEVER = 2**31 - 1
WHOLE = 1000  # gpu_milli of one device
ANY_MODEL = 2**30 - 1  # every model column allowed

Part = tuple[int, int, list[int]]  # node, instances there, instances on each of its devices


@dataclass(frozen=True, slots=True)
class RefNode:
    """One machine; ``model`` is its model column, 0 exactly when it has no GPUs."""

    model: int
    gpus: int
    cpu_milli: int = 10**6
    memory_mib: int = 10**6

    def __post_init__(self) -> None:
        if (self.model == 0) != (self.gpus == 0):
            raise ValueError(f"model column 0 means no GPUs, got {self}")


@dataclass(frozen=True, slots=True)
class RefJob:
    """One job. Requests are per instance, times in ticks, one entry per model column."""

    name: str
    arrival: int
    duration_by_model: Sequence[int]
    estimate_by_model: Sequence[int]
    num_gpu: int = 1
    gpu_milli: int = WHOLE
    cpu_milli: int = 0
    memory_mib: int = 0
    instances: int = 1
    models: int = ANY_MODEL
    deadline: int = NEVER
    weight: float = 1.0

    def __post_init__(self) -> None:
        milli_is_right = {0: self.gpu_milli == 0, 1: 0 < self.gpu_milli <= WHOLE}
        if not milli_is_right.get(self.num_gpu, self.gpu_milli == WHOLE) or self.instances < 1:
            raise ValueError(f"not a request: {self}")

    @property
    def is_fraction(self) -> bool:
        return self.num_gpu == 1 and self.gpu_milli < WHOLE

    @property
    def total_milli(self) -> int:
        """GPU milli of the whole gang."""
        return self.instances * self.num_gpu * self.gpu_milli


class Free:
    """What is free on each node: the state that feasibility and placement look at."""

    __slots__ = ("cpu", "gpu", "memory", "nodes")

    def __init__(self, nodes: Sequence[RefNode]) -> None:
        self.nodes = nodes
        self.cpu = [node.cpu_milli for node in nodes]
        self.memory = [node.memory_mib for node in nodes]
        self.gpu = [[WHOLE] * node.gpus for node in nodes]

    def copy(self) -> Free:
        other = Free.__new__(Free)
        other.nodes, other.cpu, other.memory = self.nodes, self.cpu[:], self.memory[:]
        other.gpu = [devices[:] for devices in self.gpu]
        return other

    def capacity(self, job: RefJob, node: int) -> int:
        """Instances of ``job`` that ``node`` could take at once, at most ``job.instances``."""
        if not job.models >> self.nodes[node].model & 1:
            return 0
        room = job.instances
        if job.cpu_milli:
            room = min(room, self.cpu[node] // job.cpu_milli)
        if job.memory_mib:
            room = min(room, self.memory[node] // job.memory_mib)
        if not job.num_gpu or not room:
            return room
        if job.gpu_milli == WHOLE:
            return min(room, self.gpu[node].count(WHOLE) // job.num_gpu)
        milli = job.gpu_milli
        return min(room, sum([free // milli for free in self.gpu[node]]))

    def legal_nodes(self, job: RefJob) -> list[int]:
        """Nodes that could be the first of ``job``; all or none, so empty unless the gang fits."""
        capacities = [self.capacity(job, node) for node in range(len(self.nodes))]
        if sum(capacities) < job.instances:
            return []
        return [node for node, capacity in enumerate(capacities) if capacity]

    def leftover(self, job: RefJob, node: int) -> int:
        """What one instance would leave where it fits most tightly (best_fit's score)."""
        if job.num_gpu == 0:
            return self.cpu[node] - job.cpu_milli
        if job.gpu_milli == WHOLE:
            return self.gpu[node].count(WHOLE) - job.num_gpu
        return min([free for free in self.gpu[node] if free >= job.gpu_milli]) - job.gpu_milli

    def devices_for(self, job: RefJob, node: int, instances: int) -> list[int]:
        """Instances put on each device: tightest that fits, or lowest-indexed wholly free ones."""
        free = self.gpu[node][:]
        taken = [0] * len(free)
        for _ in range(instances * job.num_gpu):
            fitting = [(milli, device) for device, milli in enumerate(free) if milli >= job.gpu_milli]
            device = min(fitting)[1]
            free[device] -= job.gpu_milli
            taken[device] += 1
        return taken

    def allocate(self, job: RefJob, first: int, device: int | None = None) -> list[Part]:
        """The parts of a legal (job, first node), in the order in which the nodes are filled.

        ``device`` overrides the tightest device, for a fraction with one instance only.
        """
        if device is not None:
            if not (job.is_fraction and job.instances == 1 and self.gpu[first][device] >= job.gpu_milli):
                raise ValueError(f"{job.name} cannot be put on device {device} of node {first}")
            return [(first, 1, [int(g == device) for g in range(len(self.gpu[first]))])]
        capacities = {n: c for n in range(len(self.nodes)) if (c := self.capacity(job, n))}
        if first not in capacities or sum(capacities.values()) < job.instances:
            raise ValueError(f"{job.name} cannot start on node {first}")
        others = sorted((self.leftover(job, node), node) for node in capacities if node != first)
        parts, left = [], job.instances
        for node in [first, *(node for _, node in others)]:
            count = min(capacities[node], left)
            if count == 0:
                break
            parts.append((node, count, self.devices_for(job, node, count)))
            left -= count
        return parts

    def _shift(self, job: RefJob, parts: list[Part], sign: int) -> None:
        for node, instances, devices in parts:
            self.cpu[node] += sign * instances * job.cpu_milli
            self.memory[node] += sign * instances * job.memory_mib
            free = self.gpu[node]
            for device, count in enumerate(devices):
                if count:
                    free[device] += sign * count * job.gpu_milli

    def take(self, job: RefJob, parts: list[Part]) -> None:
        self._shift(job, parts, -1)

    def give_back(self, job: RefJob, parts: list[Part]) -> None:
        self._shift(job, parts, +1)
