"""FGD, fragmentation gradient descent, in integers: classes, thresholds and the placement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference.resources import NEVER, RefJob
from tests.reference.simulator import Cluster, FgdClass


def build_fgd_classes(jobs: Sequence[RefJob]) -> list[FgdClass]:
    """Commonest request classes, (count, num_gpu, milli, cpu, models), to 95 % of all instances."""
    counts: dict[tuple[int, int, int, int], int] = {}
    for job in jobs:
        request = (job.cpu_milli, job.gpu_milli, job.num_gpu, job.models)
        counts[request] = counts.get(request, 0) + job.instances
    ordered = sorted(((count, *request) for request, count in counts.items()), reverse=True)
    classes: list[FgdClass] = []
    total, taken = sum(counts.values()), 0
    for count, cpu, milli, num_gpu, models in ordered:
        if 100 * taken >= 95 * total:
            break
        classes.append((count, num_gpu, milli, cpu, models))
        taken += count
    return classes


def fgd_thresholds(total: int) -> list[int]:
    """Least integer gain with score >= 1..100; the score is trunc(100 sigmoid(gain / (1000 total)))."""
    cuts = [math.ceil(1000 * total * math.log(i / (100 - i))) for i in range(1, 100)]
    return [*cuts, NEVER]


def fragmentation(classes: Sequence[FgdClass], model: int, cpu: int, devices: Sequence[int]) -> int:
    """Sum over classes of count times the idle milli of one node that the class cannot use."""
    idle, total = sum(devices), 0
    for count, num_gpu, milli, class_cpu, models in classes:
        usable = [free for free in devices if free >= milli]
        shut_out = not models >> model & 1 or len(usable) < num_gpu or cpu < class_cpu
        total += count * (idle if num_gpu == 0 or shut_out else idle - sum(usable))
    return total


def fgd_table(cluster: Cluster) -> tuple[list[FgdClass], list[int]]:
    """Classes and thresholds of this run."""
    if "fgd" not in cluster.memo:
        classes = cluster.fgd_classes
        classes = build_fgd_classes(cluster.jobs) if classes is None else list(classes)
        cluster.memo["fgd"] = classes, fgd_thresholds(sum(count for count, *_ in classes))
    return cluster.memo["fgd"]


def _fragmentation_of(cluster: Cluster, node: int, cpu: int, devices: list[int]) -> int:
    key = (node, cpu, *devices)
    if key not in cluster.memo:
        model = cluster.nodes[node].model
        cluster.memo[key] = fragmentation(fgd_table(cluster)[0], model, cpu, devices)
    return cluster.memo[key]


def fgd_score(cluster: Cluster, job: RefJob, node: int, taken: Sequence[int]) -> int:
    free = cluster.free
    before = _fragmentation_of(cluster, node, free.cpu[node], free.gpu[node])
    devices = [milli - count * job.gpu_milli for milli, count in zip(free.gpu[node], taken, strict=True)]
    gain = before - _fragmentation_of(cluster, node, free.cpu[node] - job.cpu_milli, devices)
    return sum([gain >= threshold for threshold in fgd_table(cluster)[1]])


def fgd(cluster: Cluster, row: int, nodes: list[int]) -> tuple[int, int | None]:
    """Best score; ties to the first node, then to the first device. Only lone fractions choose one."""
    job, free = cluster.jobs[row], cluster.free
    best: tuple[int, int, int | None] | None = None
    for node in nodes:
        options: list[tuple[int | None, list[int]]]
        if job.is_fraction and job.instances == 1:
            fitting = [g for g, milli in enumerate(free.gpu[node]) if milli >= job.gpu_milli]
            options = [(g, [int(g == other) for other in range(len(free.gpu[node]))]) for g in fitting]
        else:
            options = [(None, free.devices_for(job, node, 1))]
        for device, taken in options:
            score = fgd_score(cluster, job, node, taken)
            if best is None or score > best[0]:
                best = score, node, device
    assert best is not None
    return best[1], best[2]
