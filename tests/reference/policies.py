"""Orders, blocking rules and placements, one small function each, and the names that join them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from tests.reference.fgd import fgd
from tests.reference.resources import NEVER, WHOLE, Free, RefJob
from tests.reference.simulator import Choice, Cluster, Policy, slowest

# ---- orders: the smaller key first, ties to the lower row (earlier arrival) ----------------


def _devices_or_one(job: RefJob) -> float:
    return max(1.0, job.total_milli / 1000)


def _f1(cluster: Cluster, row: int) -> float:
    job = cluster.jobs[row]
    estimate_s = cluster.least_estimate[row] * cluster.tick_s
    since_start_s = (job.arrival - cluster.jobs[0].arrival) * cluster.tick_s
    size = math.log10(max(estimate_s, 1)) * _devices_or_one(job)
    return size + 870 * math.log10(since_start_s + 1)


STATIC_KEYS: dict[str, Callable[[Cluster, int], float]] = {
    "fifo": lambda cluster, row: row,
    "sjf": lambda cluster, row: cluster.least_estimate[row],
    "saf": lambda cluster, row: cluster.least_estimate[row] * cluster.jobs[row].total_milli,
    "f1": _f1,
    "edf": lambda cluster, row: cluster.jobs[row].deadline,
}


def _wfp3_urgency(job: RefJob, estimate: int) -> np.float32:
    return np.float32(_devices_or_one(job) / estimate**3)


def _unicep_urgency(job: RefJob, estimate: int) -> np.float32:
    return np.float32(1 / (math.log2(max(_devices_or_one(job), 2)) * estimate))


URGENCIES = {"wfp3": (3, _wfp3_urgency), "unicep": (1, _unicep_urgency)}
ORDERS = (*STATIC_KEYS, *URGENCIES)


def _sort(order: str, cluster: Cluster) -> list[int]:
    """Visible jobs, first to start first. Both kinds of key are prepared once per run."""
    rows = range(len(cluster.jobs))
    if order in STATIC_KEYS:
        if order not in cluster.memo:
            cluster.memo[order] = [(STATIC_KEYS[order](cluster, row), row) for row in rows]
        return sorted(cluster.visible, key=cluster.memo[order].__getitem__)
    power, urgency = URGENCIES[order]
    if order not in cluster.memo:
        estimates = [max(estimate, 1) for estimate in cluster.least_estimate]
        cluster.memo[order] = [urgency(cluster.jobs[row], estimates[row]) for row in rows]

    def key(row: int) -> tuple[np.float32, int]:
        waited = np.float32(cluster.time - cluster.jobs[row].arrival)
        aged = waited if power == 1 else waited * waited * waited
        return -(aged * cluster.memo[order][row]), row

    return sorted(cluster.visible, key=key)


# ---- placements: (cluster, row, legal nodes in index order) -> (node, device or None) -------

Placement = Callable[[Cluster, int, list[int]], tuple[int, int | None]]
NodeScore = Callable[[Free, RefJob, int], int]


def _largest(score: NodeScore) -> Placement:
    def place(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, None]:
        job = cluster.jobs[row]
        return max(nodes, key=lambda node: score(cluster.free, job, node)), None  # max keeps the first

    return place


def _first_fit(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, None]:
    return nodes[0], None


def _random(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, None]:
    return nodes[cluster.draw % len(nodes)], None


def _fastest(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, None]:
    job, free = cluster.jobs[row], cluster.free
    estimate = job.estimate_by_model
    return min(nodes, key=lambda n: (estimate[cluster.nodes[n].model], free.leftover(job, n), n)), None


def _roomiest(free: Free, job: RefJob, node: int) -> int:
    """Leftover where the job fits most loosely: of a fraction, on the emptiest device."""
    return max(free.gpu[node]) - job.gpu_milli if job.is_fraction else free.leftover(job, node)


def _worst_fit(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, int | None]:
    job = cluster.jobs[row]
    node = max(nodes, key=lambda node: _roomiest(cluster.free, job, node))
    devices = cluster.free.gpu[node]
    chooses_device = job.is_fraction and job.instances == 1
    return node, devices.index(max(devices)) if chooses_device else None


def _dot_product(free: Free, job: RefJob, node: int) -> int:
    dot = free.cpu[node] * job.cpu_milli + 256 * sum(free.gpu[node]) * job.num_gpu * job.gpu_milli
    return 100 + (-dot // 327_680_000)  # 100 - ceil


def _best_fit_vector(free: Free, job: RefJob, node: int) -> int:
    gpu_left = sum(free.gpu[node]) - job.num_gpu * job.gpu_milli
    return 100 + (-((free.cpu[node] - job.cpu_milli) + 16 * gpu_left) // 2560)  # 100 - ceil


def _gpu_packing(free: Free, job: RefJob, node: int) -> int:
    """Shared devices before an idle device of a used node before an empty node."""
    if job.num_gpu == 0:
        return 0
    devices = sorted(free.gpu[node])
    idle = devices.count(WHOLE)
    if idle == len(devices):
        return max(33 - idle, idle)
    chosen = [milli for milli in devices if milli >= job.gpu_milli][: job.num_gpu]
    idle_chosen = chosen.count(WHOLE)
    if idle_chosen:
        return max(50 - idle_chosen, 33)
    return max(100 - sum(milli * 100 // 1000 for milli in chosen) // 10, 50)


def _tag(job: RefJob) -> int | str:
    return "share" if job.is_fraction else job.num_gpu


def _gpu_clustering(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, None]:
    """Like with like: nodes that run only jobs of the same GPU count first."""
    job = cluster.jobs[row]
    tags: list[set[int | str]] = [set() for _ in cluster.nodes]
    for running in cluster.running:
        other = cluster.jobs[running.row]
        if other.num_gpu:
            for node, _, _ in running.parts:
                tags[node].add(_tag(other))

    def score(node: int) -> int:
        if job.num_gpu == 0:
            return 0
        base = 25 * (8000 - sum(cluster.free.gpu[node])) // 8000
        if not tags[node]:
            return base + 25
        if _tag(job) not in tags[node]:
            return base
        return base + (75 if len(tags[node]) == 1 else 50)

    return max(nodes, key=score), None


PLACEMENTS: dict[str, Placement] = {
    "first_fit": _first_fit,
    "best_fit": _largest(lambda free, job, node: -free.leftover(job, node)),
    "worst_fit": _worst_fit,
    "fastest": _fastest,
    "random": _random,
    "dot_product": _largest(_dot_product),
    "gpu_packing": _largest(_gpu_packing),
    "gpu_clustering": _gpu_clustering,
    "fgd": fgd,
    "best_fit_vector": _largest(_best_fit_vector),
}


# ---- blocking rules ------------------------------------------------------------------------


def _choose(cluster: Cluster, row: int, place: Placement) -> Choice | None:
    nodes = cluster.free.legal_nodes(cluster.jobs[row])
    return (row, *place(cluster, row, nodes)) if nodes else None


def _skip(cluster: Cluster, rows: list[int], place: Placement) -> Choice | None:
    return next((choice for row in rows if (choice := _choose(cluster, row, place))), None)


def _strict(cluster: Cluster, rows: list[int], place: Placement) -> Choice | None:
    return _choose(cluster, rows[0], place) if rows else None


def shadow(cluster: Cluster, head: RefJob) -> tuple[int, Free]:
    """The earliest estimated end at which ``head`` becomes legal, and what is free then."""
    free = cluster.free.copy()
    ends = [(max(run.estimated_end, cluster.time + 1), run.row, run.parts) for run in cluster.running]
    ends.sort(key=lambda end: end[:2])
    for instant, releases in itertools.groupby(ends, key=lambda end: end[0]):
        for _, row, parts in releases:
            free.give_back(cluster.jobs[row], parts)
        if free.legal_nodes(head):
            return instant, free
    return NEVER, free


def _easy(cluster: Cluster, rows: list[int], place: Placement) -> Choice | None:
    if not rows:
        return None
    if choice := _choose(cluster, rows[0], place):
        return choice
    head = cluster.jobs[rows[0]]
    reserved, free_then = shadow(cluster, head)
    for row in rows[1:]:
        choice = _choose(cluster, row, place)
        if choice is None:
            continue
        job = cluster.jobs[row]
        parts = cluster.free.allocate(job, choice[1], choice[2])
        if cluster.time + slowest(job.estimate_by_model, parts, cluster.nodes) <= reserved:
            return choice
        free_then.take(job, parts)
        harmless = bool(free_then.legal_nodes(head))
        free_then.give_back(job, parts)
        if harmless:
            return choice
    return None


BLOCKINGS = {"": _skip, "-strict": _strict, "-easy": _easy}


def _pair_key(cluster: Cluster, row: int, node: int) -> tuple[int, int, int, int]:
    job = cluster.jobs[row]
    return job.estimate_by_model[cluster.nodes[node].model], row, cluster.free.leftover(job, node), node


def _spt_pair(cluster: Cluster) -> Choice | None:
    """Least estimated run time over legal pairs; earlier job; best_fit among its nodes; lower node."""
    pairs = cluster.legal_pairs()
    return (*min(pairs, key=lambda pair: _pair_key(cluster, *pair)), None) if pairs else None


def _spt_pair_easy(cluster: Cluster) -> Choice | None:
    """spt_pair among pairs of the shortest job, and pairs of one part that do not delay it."""
    if not cluster.visible:
        return None
    first = _sort("sjf", cluster)[0]
    head = cluster.jobs[first]
    reserved, free_then = shadow(cluster, head)

    def delays(row: int, node: int) -> bool:
        job = cluster.jobs[row]
        parts = cluster.free.allocate(job, node, None)
        if row == first:
            return False
        if len(parts) > 1:
            return True
        if cluster.time + job.estimate_by_model[cluster.nodes[node].model] <= reserved:
            return False
        free_then.take(job, parts)
        harmless = bool(free_then.legal_nodes(head))
        free_then.give_back(job, parts)
        return not harmless

    pairs = [pair for pair in cluster.legal_pairs() if not delays(*pair)]
    return (*min(pairs, key=lambda pair: _pair_key(cluster, *pair)), None) if pairs else None


PAIRS = {"spt_pair": _spt_pair, "spt_pair-easy": _spt_pair_easy}


def all_policy_names() -> list[str]:
    """The whole grid and the pair policies."""
    grid = itertools.product(ORDERS, BLOCKINGS, PLACEMENTS)
    return [f"{order}{blocking}+{placement}" for order, blocking, placement in grid] + [*PAIRS]


def reference_policy(name: str) -> Policy:
    """``<order>[-strict|-easy]+<placement>`` or a pair policy."""
    if name in PAIRS:
        return PAIRS[name]
    head, _, placement = name.partition("+")
    order, dash, blocking = head.partition("-")
    block, place = BLOCKINGS[dash + blocking], PLACEMENTS[placement]
    if order not in ORDERS:
        raise KeyError(order)
    return lambda cluster: block(cluster, _sort(order, cluster), place)
