"""Offered load: how much GPU time a job list asks for, against what a cluster has while the jobs arrive."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np

from jaxsched.types import MILLI
from jaxsched.workloads.impossible import find_impossible
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.speeds import UNIFORM, SpeedTable
from jaxsched.workloads.times import exact


def gpus_by_model(nodes: NodeTable) -> dict[str, int]:
    """GPUs of each model of the cluster, models sorted by name."""
    counts: Counter[str] = Counter()
    for model, gpus in zip(nodes.frame["model"].tolist(), nodes.frame["gpu"].tolist(), strict=True):
        if gpus:
            counts[model] += gpus
    return dict(sorted(counts.items()))


def gpu_seconds_by_class(jobs: JobTable, rows: np.ndarray) -> dict[str, Fraction]:
    """GPU-seconds at speed 1 of each job class, exact, over the given rows."""
    frame = jobs.frame
    milli, seconds = total_gpu_milli(jobs)[rows], frame["duration_s"].to_numpy()[rows]
    codes, categories = frame["class"].cat.codes.to_numpy()[rows], frame["class"].cat.categories
    if _may_wrap(milli, seconds):
        milli, seconds = milli.astype(object), seconds.astype(object)
    work = milli * seconds
    return {c: exact(sum(work[codes == i].tolist())) / MILLI for i, c in enumerate(categories)}


def total_gpu_milli(jobs: JobTable) -> np.ndarray:
    """i64[J]: GPU milli that all instances of each job take together."""
    frame = jobs.frame
    return frame["num_gpu"].to_numpy() * frame["gpu_milli"].to_numpy() * frame["num_instances"].to_numpy()


def _may_wrap(milli: np.ndarray, seconds: np.ndarray) -> bool:
    """Whether the sum of products may leave int64."""
    return bool(len(milli)) and len(milli) * int(milli.max()) * (int(seconds.max()) + 1) >= 2**62


def cluster_work_s(jobs: JobTable, rows: np.ndarray, nodes: NodeTable, speeds: SpeedTable) -> Fraction:
    """GPU-seconds of the given rows at the cluster's mean speed of each job's class."""
    gpus = gpus_by_model(nodes)
    by_class = gpu_seconds_by_class(jobs, rows)
    return sum((work / speeds.mean(c, gpus) for c, work in by_class.items()), Fraction(0))


def offered_load(work_s: Fraction, nodes: NodeTable, span_s: Fraction) -> Fraction | None:
    """Work over (GPUs x span of arrivals); None where that is undefined."""
    capacity = int(nodes.frame["gpu"].sum()) * span_s
    return work_s / capacity if capacity else None


def arrival_span_s(jobs: JobTable, rows: np.ndarray) -> Fraction:
    """Last minus first arrival of the given rows."""
    arrival = jobs.frame["arrival_s"].to_numpy()[rows]
    return exact(arrival.max()) - exact(arrival.min()) if len(arrival) else Fraction(0)


def load_by_model(
    jobs: JobTable, rows: np.ndarray, nodes: NodeTable, speeds: SpeedTable
) -> dict[str, Fraction]:
    """Demand over capacity of each GPU model; a job counts on the models it may use, by their GPUs."""
    gpus, span = gpus_by_model(nodes), arrival_span_s(jobs, rows)
    if not span:
        return {}
    load = dict.fromkeys(gpus, Fraction(0))
    spec = jobs.frame["gpu_spec"].cat
    codes = spec.codes.to_numpy()[rows]
    for code, text in enumerate(spec.categories):
        usable = [m for m in gpus if not text or m in text.split("|")]
        capacity = sum(gpus[m] for m in usable)
        by_class = gpu_seconds_by_class(jobs, rows[codes == code])
        for model in usable:
            work = sum((w / speeds.of(c, model) for c, w in by_class.items()), Fraction(0))
            load[model] += work / (capacity * span)
    return load


def report_on(
    report: LoadReport, jobs: JobTable, nodes: NodeTable, speeds: SpeedTable = UNIFORM
) -> LoadReport:
    """``report`` with what only a cluster can tell: impossible jobs and the offered load of each model."""
    models = ["", *gpus_by_model(nodes)]
    impossible = find_impossible(jobs, nodes, models)
    possible = np.setdiff1d(np.arange(len(jobs)), [job.row for job in impossible])
    load = load_by_model(jobs, possible, nodes, speeds)
    return replace(report, impossible=tuple(impossible), offered_load=load)
