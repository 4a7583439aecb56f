"""Jobs that the empty cluster cannot take: found before the run, so that none blocks it or waits for ever."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from jaxsched.types import MILLI
from jaxsched.workloads.report import ImpossibleJob
from jaxsched.workloads.schema import JobTable, NodeTable


@dataclass(frozen=True)
class NodeShapes:
    """The different kinds of node of a cluster, so that work grows with kinds instead of nodes."""

    cpu: np.ndarray  # i64[S] milli-cores
    memory: np.ndarray  # i64[S] MiB
    gpus: np.ndarray  # i64[S]
    column: np.ndarray  # i64[S] model column
    count: np.ndarray  # i64[S] nodes of the kind


def node_shapes(nodes: NodeTable, models: list[str]) -> NodeShapes:
    """``models`` are the model columns; column 0 is "" (no GPU)."""
    frame = nodes.frame
    column_of = {m: i for i, m in enumerate(models)}
    column = np.array([column_of[m] for m in frame["model"]], dtype=np.int64)
    rows = np.column_stack([frame["cpu_milli"], frame["memory_mib"], frame["gpu"], column])
    kinds, count = np.unique(rows.astype(np.int64), axis=0, return_counts=True)
    return NodeShapes(kinds[:, 0], kinds[:, 1], kinds[:, 2], kinds[:, 3], count)


def allowed_models(jobs: JobTable, models: list[str]) -> np.ndarray:
    """i64[J] bitmask over the model columns; no gpu_spec sets all bits. Unknown models have no bit."""
    spec = jobs.frame["gpu_spec"].cat
    column_of = {m: i for i, m in enumerate(models) if m}
    every = (1 << len(models)) - 1
    masks = [
        sum(1 << column_of[m] for m in s.split("|") if m in column_of) if s else every
        for s in spec.categories
    ]
    return np.array(masks, dtype=np.int64)[spec.codes.to_numpy()]


def empty_capacity(jobs: JobTable, masks: np.ndarray, shapes: NodeShapes) -> np.ndarray:
    """i64[J, S]: instances of each job that one empty node of each kind takes, at most ``num_instances``."""
    frame = jobs.frame
    cpu, memory, num_gpu, milli, instances = (
        frame[c].to_numpy()[:, None]
        for c in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "num_instances")
    )
    capacity = np.where(cpu > 0, shapes.cpu // np.maximum(cpu, 1), instances)
    capacity = np.minimum(capacity, np.where(memory > 0, shapes.memory // np.maximum(memory, 1), instances))
    whole = shapes.gpus // np.maximum(num_gpu, 1)
    fraction = shapes.gpus * (MILLI // np.maximum(milli, 1))
    on_gpus = np.where(milli < MILLI, fraction, whole)
    capacity = np.where(num_gpu > 0, np.minimum(capacity, on_gpus), capacity)
    allowed = (masks[:, None] >> shapes.column) & 1
    return np.minimum(capacity * allowed, instances)


def find_impossible(jobs: JobTable, nodes: NodeTable, models: list[str]) -> list[ImpossibleJob]:
    """Jobs of which the empty cluster cannot hold all instances at once, each with the reason."""
    shapes, masks = node_shapes(nodes, models), allowed_models(jobs, models)
    capacity = empty_capacity(jobs, masks, shapes)
    total = (capacity * shapes.count).sum(axis=1)
    wrong = np.flatnonzero(total < jobs.frame["num_instances"].to_numpy())
    frame = jobs.frame
    return [
        ImpossibleJob(
            frame["job"].iloc[row],
            int(row),
            _reason(frame.iloc[row], int(masks[row]), int(total[row]), shapes, models),
        )
        for row in wrong
    ]


def _reason(job: pd.Series, mask: int, total: int, shapes: NodeShapes, models: list[str]) -> str:
    allowed = (mask >> shapes.column) & 1 == 1
    if not allowed.any():
        present = sorted({models[c] for c in shapes.column} - {""})
        return f"gpu_spec {job['gpu_spec']} is on no node; known models: {', '.join(present) or 'none'}"
    if total:
        instances = job["num_instances"]
        return f"all {instances} instances must start together, the empty cluster holds {total}"
    on_nodes = f" of model {job['gpu_spec']}" if job["gpu_spec"] else ""
    limits = [
        ("GPUs", job["num_gpu"], shapes.gpus),
        ("cpu_milli", job["cpu_milli"], shapes.cpu),
        ("memory_mib", job["memory_mib"], shapes.memory),
    ]
    for what, asked, offered in limits:
        if asked > offered[allowed].max():
            return (
                f"needs {asked} {what} on one node, the largest node{on_nodes} has {offered[allowed].max()}"
            )
    asked_for = " and ".join(f"{asked} {what}" for what, asked, _ in limits if asked)
    return f"no single node{on_nodes} has {asked_for}"
