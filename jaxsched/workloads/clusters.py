"""Node inventories: synthetic clusters by model mix, and small clusters with the shares of a large one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from jaxsched.errors import InputError
from jaxsched.workloads.schema import NodeTable, node_table

# The commonest openb machine (549 of 1523 nodes): 8 GPUs, 96 cores, 384 GiB (docs/traces.md).
GPUS_PER_NODE = 8
CPU_MILLI = 96_000
MEMORY_MIB = 393_216
K = TypeVar("K", bound=Hashable)


def synthetic_cluster(
    models: Mapping[str, int],
    gpus_per_node: int = GPUS_PER_NODE,
    cpu_milli: int = CPU_MILLI,
    memory_mib: int = MEMORY_MIB,
) -> NodeTable:
    """``models`` maps each GPU model to its number of nodes; nodes are alike but for the model."""
    names = [model for model, count in models.items() for _ in range(count)]
    size = len(names)
    numbers = {
        "cpu_milli": np.full(size, cpu_milli, dtype=np.int64),
        "memory_mib": np.full(size, memory_mib, dtype=np.int64),
        "gpu": np.full(size, gpus_per_node, dtype=np.int64),
    }
    return node_table([f"node-{i:02d}" for i in range(size)], numbers, names, "synthetic cluster")


def random_model_mix(
    rng: np.random.Generator, models: Sequence[str], least: int, most: int
) -> dict[str, int]:
    """Between ``least`` and ``most`` nodes, split over the models in random shares, at least one each."""
    if least < len(models):
        raise InputError(f"a random mix of {len(models)} models needs at least as many nodes, not {least}")
    size = int(rng.integers(least, most + 1))
    shares = rng.dirichlet(np.ones(len(models)))
    extra = rng.multinomial(size - len(models), shares)
    return {model: 1 + int(n) for model, n in zip(models, extra, strict=True)}


def sample_by_share(nodes: NodeTable, size: int) -> NodeTable:
    """``size`` nodes that keep the shares of (model, GPUs) groups, and in a group those of the node kinds.

    Largest remainders, so nothing is drawn by chance. At least one node has the most GPUs that any node of
    the full list has (openb: 8), so that its largest jobs can run; it replaces a node of the largest group.
    """
    if not 1 <= size <= len(nodes):
        raise InputError(f"cannot take {size} of the {len(nodes)} nodes of {nodes.source}")
    frame = nodes.frame
    groups = list(zip(frame["model"].tolist(), frame["gpu"].tolist(), strict=True))
    quota = apportion(Counter(groups), size)
    most = max(gpus for _, gpus in groups)
    if not any(gpus == most for (_, gpus), n in quota.items() if n):
        quota[max(quota, key=lambda g: quota[g])] -= 1
        largest = Counter(g for g in groups if g[1] == most).most_common(1)[0][0]
        quota[largest] = 1
    kinds = list(zip(groups, frame["cpu_milli"].tolist(), frame["memory_mib"].tolist(), strict=True))
    rows: list[int] = []
    for group, count in quota.items():
        wanted = apportion(Counter(k for k in kinds if k[0] == group), count)
        for kind, n in wanted.items():
            rows += [i for i, k in enumerate(kinds) if k == kind][:n]
    return NodeTable(frame.iloc[sorted(rows)].reset_index(drop=True), f"{size} nodes of {nodes.source}")


def apportion(counts: Mapping[K, int], seats: int) -> dict[K, int]:
    """Seats in proportion to counts by largest remainders; ties: the larger count, then the earlier key."""
    total = sum(counts.values())
    quota = {key: seats * n // total for key, n in counts.items()}
    order = sorted(counts, key=lambda key: (-(seats * counts[key] % total), -counts[key]))
    for key in order[: seats - sum(quota.values())]:
        quota[key] += 1
    return quota
