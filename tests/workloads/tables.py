"""Small job and node tables for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxsched.workloads.readers.native import read_jobs_csv
from jaxsched.workloads.schema import JobTable, NodeTable, node_table

OPENB_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def jobs_of(folder: Path, *rows: str, header: str = "job,arrival_s,duration_s,num_gpu") -> JobTable:
    """A native job table from CSV rows."""
    return read_jobs_csv(write(folder / "jobs.csv", header, *rows))[0]


def nodes_of(*nodes: tuple[int, str], cpu_milli: int = 96_000, memory_mib: int = 393_216) -> NodeTable:
    """Nodes with (GPUs, model) each."""
    numbers = {
        "cpu_milli": np.full(len(nodes), cpu_milli),
        "memory_mib": np.full(len(nodes), memory_mib),
        "gpu": np.array([gpus for gpus, _ in nodes]),
    }
    names = [f"n{i}" for i in range(len(nodes))]
    return node_table(names, numbers, [model for _, model in nodes], "test nodes")
