"""PNG pictures of runs. Drawn on matplotlib's file canvas, so no screen and no backend setting matters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jaxsched.evaluation.metrics import job_times
from jaxsched.evaluation.timeline import end_tick, started_parts
from jaxsched.types import MILLI, Request, Schedule, World

BINS = 240  # moments of a line over time: about one for every three pixels
MAX_GANTT_NODES = 16
MOST_LINES = 6
_SIZES = ((0, "fraction"), (1, "1 GPU"), (2, "2-3 GPUs"), (4, "4-7 GPUs"), (8, "8 or more GPUs"))


class Run(NamedTuple):
    """One schedule and what is needed to read it."""

    schedule: Schedule
    world: World
    tick_s: float


def attempt(draw: Callable[..., None], *arguments: Any) -> bool:
    """Calls a drawing function; a failure becomes one warning line: results matter more."""
    try:
        draw(*arguments)
    except Exception as error:  # matplotlib missing, a full disk, a font cache: none may cost a run
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"warning: {draw.__name__} was not drawn: {reason}", file=sys.stderr)
        return False
    return True


def comparison_plots(folder: Path, runs: Mapping[str, Sequence[Run]], node_names: Sequence[str]) -> None:
    """The pictures of a comparison: all windows in the CDF, the first window over time and as a Gantt chart.

    Shows the ``MOST_LINES`` policies with the least mean JCT; ``node_names`` are those of the first window.
    """
    jcts = {name: np.concatenate([jct_of(run) for run in windows]) for name, windows in runs.items()}
    ranked = sorted(jcts, key=lambda name: float(np.mean(jcts[name])) if len(jcts[name]) else np.inf)
    shown = ranked[:MOST_LINES]
    attempt(jct_cdf, folder / "jct_cdf.png", {name: jcts[name] for name in shown})
    first = {name: runs[name][0] for name in shown}
    attempt(utilisation_and_queue, folder / "utilisation_and_queue.png", first)
    for name in shown[:1]:
        attempt(gantt, folder / "gantt.png", first[name], name, node_names)


def learning_curve(path: Path, metrics: pd.DataFrame, references: Mapping[str, float]) -> None:
    """Validation mean JCT over environment steps, with each reference policy's mean JCT (s) as a line."""
    figure, axes = _figure(1, (8, 4.5))
    curve = metrics.dropna(subset=["val_mean_jct"])
    axes[0].plot(curve["env_steps"], curve["val_mean_jct"], color="black", lw=2, label="network (validation)")
    for i, (name, jct) in enumerate(sorted(references.items(), key=lambda item: item[1])):
        axes[0].axhline(jct, color=f"C{i % 10}", ls="--", lw=1, label=f"{name} ({jct:,.0f} s)")
    axes[0].set(xlabel="environment steps", ylabel="mean JCT (s)", title="Learning curve")
    axes[0].xaxis.set_major_formatter(_engineering())
    _finish(figure, axes, path)


def tuning_curve(path: Path, course: Path, reference: str) -> None:
    """JCT change against the reference policy over the generations of a tuning, from its course file."""
    figure, axes = _figure(1, (8, 4.5))
    rows = pd.read_csv(course)
    change = 100 * np.expm1(rows[["train_log_ratio", "val_log_ratio"]])
    axes[0].plot(
        rows["generation"], change["train_log_ratio"], color="C0", lw=1, label="mean candidate (training)"
    )
    known = change["val_log_ratio"].notna()
    axes[0].plot(
        rows["generation"][known], change["val_log_ratio"][known], "ko-", lw=2, label="centre (validation)"
    )
    axes[0].axhline(0, color="C1", ls="--", lw=1, label=reference)
    axes[0].set(xlabel="generation", ylabel=f"JCT against {reference} (%)", title="Tuning of index")
    _finish(figure, axes, path)


def jct_cdf(path: Path, jct_s: Mapping[str, np.ndarray]) -> None:
    """Share of jobs done within a time, one line per policy; ``jct_s`` f64[C] in seconds."""
    figure, axes = _figure(1, (8, 4.5))
    for name, values in jct_s.items():
        ordered = np.sort(values)
        share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
        axes[0].step(np.maximum(ordered, 1.0), share, where="post", lw=1.5, label=name)
    axes[0].set(xscale="log", ylim=(0, 1), xlabel="job completion time (s)", ylabel="share of completed jobs")
    axes[0].set_title("Job completion times")
    _finish(figure, axes, path)


def utilisation_and_queue(path: Path, runs: Mapping[str, Run]) -> None:
    """Share of GPUs held and number of waiting jobs over time, one line per policy."""
    figure, axes = _figure(2, (8, 6))
    for name, run in runs.items():
        hours, held = held_share_over_time(run)
        axes[0].plot(hours, 100 * held, lw=1.3, label=name)
        hours, waiting = waiting_over_time(run)
        axes[1].plot(hours, waiting, lw=1.3, label=name)
    axes[0].set(ylabel="GPUs held (%)", ylim=(0, 103), title="Utilisation and queue over time")
    axes[1].set(ylabel="waiting jobs", xlabel="hours since the first arrival")
    axes[1].set_ylim(bottom=0)
    _finish(figure, axes, path)


def gantt(path: Path, run: Run, policy: str, node_names: Sequence[str]) -> None:
    """Who held which device when: a lane per device, grouped by node, coloured by GPUs an instance."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    nodes = [n for n in range(len(run.world.node_gpus)) if run.world.node_gpus[n] > 0]
    shown = nodes[:MAX_GANTT_NODES]
    boxes, sizes, top = gantt_boxes(run, shown)
    figure, axes = _figure(1, (10, 1.5 + 0.09 * max(top, 20)))
    colours = [f"C{size}" for size in sizes]
    axes[0].add_collection(PolyCollection(boxes, facecolors=colours, edgecolors="white", linewidths=0.2))
    edges = np.cumsum([0, *(run.world.node_gpus[n] for n in shown)])
    axes[0].set_yticks((edges[:-1] + edges[1:]) / 2, [node_names[n] for n in shown])
    axes[0].hlines(edges, 0, 1, transform=axes[0].get_yaxis_transform(), color="grey", lw=0.5)
    title = f"GPUs of each node under {policy}"
    if len(shown) < len(nodes):
        title += f" (first {len(shown)} of {len(nodes)} nodes)"
    axes[0].set(xlabel="hours since the first arrival", title=title, ylim=(top, 0))
    axes[0].set_xlim(0, max(end_tick(run.schedule) * run.tick_s / 3600, 1e-9))
    axes[0].grid(visible=False)
    handles = [Patch(color=f"C{i}", label=label) for i, (_, label) in enumerate(_SIZES)]
    _finish(figure, axes, path, handles)


def held_share_over_time(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Hours and the mean share of GPU milli held in each of ``BINS`` equal spans."""
    parts = started_parts(run.schedule, run.world)
    milli = parts.milli.sum(axis=1)
    total = float(np.sum(run.world.node_gpus)) * MILLI
    hours, mean = _binned_mean(run, np.r_[parts.start, parts.finish], np.r_[milli, -milli])
    return hours, mean / max(total, 1.0)


def waiting_over_time(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Hours and the mean number of jobs that have arrived and not started in each of ``BINS`` equal spans."""
    jobs, end = int(run.world.num_jobs), end_tick(run.schedule)
    arrival = np.minimum(np.asarray(run.world.arrival, np.int64)[:jobs], end)
    start = np.minimum(np.asarray(run.schedule.start, np.int64)[:jobs], end)
    return _binned_mean(run, np.r_[arrival, start], np.r_[np.ones(jobs), -np.ones(jobs)])


def gantt_boxes(run: Run, nodes: Sequence[int]) -> tuple[list[np.ndarray], list[int], int]:
    """Corners (f64[4, 2]; hours, lane) of each held share of a device, its size class, the number of lanes.

    A share of ``milli`` is ``milli / 1000`` lanes high, put into the first gap of its device that holds it.
    """
    parts = started_parts(run.schedule, run.world)
    offset = dict(zip(nodes, np.cumsum([0, *(run.world.node_gpus[n] for n in nodes)]), strict=False))
    instance = np.asarray(run.world.request, np.int64)
    boxes, sizes = [], []
    active: dict[int, list[tuple[int, float, float]]] = {}
    for p in np.argsort(parts.start, kind="stable"):
        if int(parts.node[p]) not in offset:
            continue
        num_gpu, milli = instance[parts.job[p], Request.NUM_GPU], instance[parts.job[p], Request.GPU_MILLI]
        size = 0 if milli < MILLI else max(i for i, (least, _) in enumerate(_SIZES) if num_gpu >= least)
        start, finish = (float(t) * run.tick_s / 3600 for t in (parts.start[p], parts.finish[p]))
        for device in np.flatnonzero(parts.devices[p]):
            lane = int(offset[int(parts.node[p])]) + int(device)
            held = [a for a in active.get(lane, []) if a[0] > parts.start[p]]
            height = min(float(parts.milli[p, device]) / MILLI, 1.0)
            low = _first_gap(held, height)
            active[lane] = [*held, (int(parts.finish[p]), low, low + height)]
            y0, y1 = lane + low, lane + low + height
            boxes.append(np.array([(start, y0), (finish, y0), (finish, y1), (start, y1)]))
            sizes.append(size)
    return boxes, sizes, int(sum(run.world.node_gpus[n] for n in nodes))


def jct_of(run: Run) -> np.ndarray:
    """f64[C]: JCT of each completed job in seconds."""
    return job_times(run.schedule, run.world, run.tick_s).jct


def _first_gap(held: Sequence[tuple[int, float, float]], height: float) -> float:
    for low in sorted([0.0, *(top for _, _, top in held)]):
        if low + height <= 1 + 1e-9 and all(
            top <= low + 1e-9 or bottom >= low + height - 1e-9 for _, bottom, top in held
        ):
            return low
    return 1.0 - height  # the room is there but in pieces


def _binned_mean(run: Run, ticks: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over equal spans of the step function that changes by ``change`` at ``ticks``."""
    end = max(end_tick(run.schedule), 1)
    edges = np.linspace(0, end, BINS + 1)
    order = np.argsort(ticks, kind="stable")
    moments = np.r_[0, ticks[order], end].astype(float)
    level = np.r_[0.0, np.cumsum(change[order])]
    area = np.r_[0.0, np.cumsum(level * np.diff(moments))]
    # np.interp wants increasing x: of equal moments the last holds the same area, so any will do
    mean = np.diff(np.interp(edges, moments, area)) / (end / BINS)
    return (edges[:-1] + edges[1:]) / 2 * run.tick_s / 3600, mean


def _figure(rows: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]


def _engineering() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def _finish(figure: Any, axes: Any, path: Path, handles: Sequence[Any] | None = None) -> None:
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        if handles is None:
            ax.grid(alpha=0.3)
    lines = handles or axes[0].get_legend_handles_labels()[0]
    if lines:
        figure.legend(handles=lines, loc="outside right upper", fontsize="small", frameon=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
