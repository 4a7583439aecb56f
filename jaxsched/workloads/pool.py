"""Windows of jobs on clusters -> one padded pool of worlds on the device, and the host's side of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np

from jaxsched.errors import InputError, nearest
from jaxsched.types import NEVER, NUM_STATIC_ORDERS, EnvConfig, EnvParams, Request, World
from jaxsched.workloads.demand import gpus_by_model
from jaxsched.workloads.fgd_classes import fgd_table
from jaxsched.workloads.power import power_table
from jaxsched.workloads.report import ImpossibleJob
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.speeds import UNIFORM, SpeedTable
from jaxsched.workloads.times import choose_tick
from jaxsched.workloads.windows import Columns, Window, job_arrays, make_window, node_arrays

_MOST_MODELS = 31  # bits of the allowed-models mask
SIZES = ("num_nodes", "gpus_per_node", "num_jobs", "num_models")


@dataclass(frozen=True, eq=False)
class WorldInfo:
    """The host's side of one world: names and exact times. Tick t is the instant ``origin_s + t tick_s``."""

    job_names: tuple[str, ...]  # of the world's job rows
    table_row: np.ndarray  # i64[jobs]: row of ``jobs`` that each world job came from
    jobs: JobTable
    nodes: NodeTable
    node_names: tuple[str, ...]
    models: tuple[str, ...]  # model columns; column 0 is "" (no GPU)
    classes: tuple[str, ...]  # job classes by number
    origin_s: Fraction  # first arrival of a possible job, on the table's clock
    tick_s: Fraction
    exact: bool  # False: arrivals were rounded down and run times to nearest
    load_factor: Fraction  # arrivals after the origin were multiplied by this, then rounded down
    offered_load: Fraction | None  # after scaling; None without GPUs or span
    impossible: tuple[ImpossibleJob, ...]  # left out: the empty cluster cannot hold them


def build_pool(
    windows: Sequence[tuple[NodeTable, JobTable]],
    *,
    speeds: SpeedTable = UNIFORM,
    sizes: Mapping[str, int] | None = None,
    queue: int = 64,
    running: int = 160,
    offer_wait: bool = False,
    load: float | str | Fraction | Sequence[float] | None = None,
    models: Sequence[str] = (),
    fgd_jobs: Sequence[JobTable] | None = None,
    beta: float = 0.0,
    reward_scale: float = 1.0,
) -> tuple[EnvConfig, EnvParams, list[WorldInfo]]:
    """A pool of P worlds, one per window, in one tick, padded to common sizes.

    ``sizes`` forces larger capacities (keys ``num_nodes, gpus_per_node, num_jobs, num_models``).
    ``load`` (one for all, or one a window) scales arrivals to that offered load. ``models`` adds model
    columns, so that pools with different nodes agree on them. ``fgd_jobs`` is what FGD's class table
    counts (default: all windows).
    Raises ``InputError`` where a size is too small, a number leaves int32, or a load cannot be reached.
    """
    if not windows:
        raise InputError("no windows to build a pool from")
    columns = model_columns([nodes for nodes, _ in windows], models)
    loads = _loads(load, len(windows))
    made = [make_window(n, j, columns, speeds, x) for (n, j), x in zip(windows, loads, strict=True)]
    tick, exact = _common_tick(made, speeds, columns)
    common = Columns(columns, _class_numbers(made, speeds), speeds, tick)
    config = _config(made, columns, sizes or {}, queue, running, offer_wait)
    pool = _stack(made, common, config)
    counted = [jobs for _, jobs in windows] if fgd_jobs is None else fgd_jobs
    table, cuts = fgd_table(counted, columns, config.gpus_per_node)
    small = {"fgd_class": table, "fgd_threshold": cuts, "power_w": power_table(columns, config.num_models)}
    scalars = {"tick_s": float(tick), "beta": beta, "reward_scale": reward_scale}
    params = _on_device(pool, scalars, small)
    return config, params, [_info(w, common, exact) for w in made]


def model_columns(clusters: Sequence[NodeTable], extra: Sequence[str] = ()) -> list[str]:
    """Model columns: "" (no GPU), then the distinct GPU models by name."""
    distinct = {id(nodes): nodes for nodes in clusters}.values()
    models = sorted(set(extra).union(*(gpus_by_model(nodes) for nodes in distinct)))
    if len(models) + 1 > _MOST_MODELS:
        raise InputError(
            f"{len(models)} GPU models, at most {_MOST_MODELS - 1} are supported: {', '.join(models)}"
        )
    return ["", *models]


def _loads(load: float | str | Fraction | Sequence[float] | None, count: int) -> list[Fraction | None]:
    if load is None:
        return [None] * count
    given = [load] * count if isinstance(load, (float, int, str, Fraction)) else list(load)
    try:
        loads = [Fraction(str(x)) for x in given]
    except ValueError:
        raise InputError(f"load {load!r} is not a number") from None
    if len(loads) != count or min(loads) <= 0:
        raise InputError(
            f"load must be above 0, one for all or one for each of the {count} windows, not {load!r}"
        )
    return list(loads)


def _common_tick(made: Sequence[Window], speeds: SpeedTable, models: list[str]) -> tuple[Fraction, bool]:
    used = {c for window in made for c in window.jobs.frame["class"].cat.categories}
    slowest = min((speeds.of(c, m) for c in used for m in models), default=Fraction(1))
    denominator = int(np.lcm.reduce([window.denominator() for window in made]))
    return choose_tick(denominator, max(window.reach_s(slowest) for window in made))


def _class_numbers(made: Sequence[Window], speeds: SpeedTable) -> list[str]:
    """The speed table's classes in its order, so that pools agree on the numbers; others follow by name."""
    used = {c for window in made for c in window.jobs.frame["class"].cat.categories}
    return [*speeds.classes, *sorted(used - set(speeds.classes))]


def _config(
    made: Sequence[Window],
    models: list[str],
    sizes: Mapping[str, int],
    queue: int,
    running: int,
    offer_wait: bool,
) -> EnvConfig:
    for name in sizes:
        if name not in SIZES:
            raise InputError(f"unknown size {name!r}; {nearest(name, SIZES)}")
    needed = {
        "num_nodes": max(len(w.nodes) for w in made),
        "gpus_per_node": max(1, *(int(w.nodes.frame["gpu"].max()) for w in made)),
        "num_jobs": max(1, *(len(w.rows) for w in made)),
        "num_models": len(models),
    }
    for name, least in needed.items():
        if sizes.get(name, least) < least:
            raise InputError(f"{name}={sizes[name]} is too small: the pool needs {least}")
    full = {**needed, **sizes}
    parts = max(int(np.minimum(w.column("num_instances"), full["num_nodes"]).sum()) for w in made)
    parts = full["num_jobs"] * max(1, -(-parts // full["num_jobs"]))  # rounded up: pools then share a program
    config = EnvConfig(**full, queue=queue, running=running, offer_wait=offer_wait, max_parts=parts)
    widest = max((int(w.column("num_instances").max(initial=1)) for w in made), default=1)
    if queue < 1 or running < min(widest, config.num_nodes):
        raise InputError(
            f"queue={queue}, running={running} is too small: queue must be at least 1 and running at least "
            f"{min(widest, config.num_nodes)} for gangs of {widest} instances on {config.num_nodes} nodes"
        )
    return config


def _stack(made: Sequence[Window], common: Columns, config: EnvConfig) -> dict[str, np.ndarray]:
    """Every field of ``World`` with a leading axis P, as int32 or float32, padded."""
    pool = _padding(len(made), config)
    for row, window in enumerate(made):
        for name, values in (node_arrays(window, common) | job_arrays(window, common)).items():
            _check_int32(name, values, window.jobs.source)
            target = pool[name][row]
            target[tuple(slice(n) for n in values.shape)] = values
        pool["num_jobs"][row] = len(window.rows)
    return pool


def _padding(worlds: int, config: EnvConfig) -> dict[str, np.ndarray]:
    n, j, m = config.num_nodes, config.num_jobs, config.num_models
    shapes = {
        **dict.fromkeys(("node_cpu", "node_memory", "node_gpus", "node_model"), (n,)),
        **dict.fromkeys(
            ("arrival", "least_estimate", "least_run_time", "job_class", "weight", "deadline"), (j,)
        ),
        "request": (j, len(Request)),
        "run_time": (j, m),
        "estimate": (j, m),
        "rank": (j, NUM_STATIC_ORDERS),
        "urgency": (j, 2),
        "num_jobs": (),
    }
    floats = ("weight", "urgency")
    pool = {f: np.zeros((worlds, *s), np.float32 if f in floats else np.int32) for f, s in shapes.items()}
    pool["node_cpu"] -= 1
    pool["arrival"] += NEVER
    pool["deadline"] += NEVER
    pool["rank"] += np.arange(j, dtype=np.int32)[None, :, None]
    return pool


def _check_int32(name: str, values: np.ndarray, source: str) -> None:
    """Raises ``InputError`` where a number would wrap on the device."""
    if values.dtype.kind == "i" and values.size and not -NEVER - 1 <= values.min() <= values.max() <= NEVER:
        worst = max(values.max(), -values.min())
        raise InputError(f"{source}: {name} holds {worst}, more than the largest 32-bit number {NEVER}")


def _on_device(
    pool: Mapping[str, np.ndarray], scalars: Mapping[str, float], small: Mapping[str, np.ndarray]
) -> EnvParams:
    import jax.numpy as jnp  # only here: everything before is numpy on the host

    return EnvParams(
        pool=World(**{f.name: jnp.asarray(pool[f.name]) for f in fields(World)}),
        **{name: jnp.float32(value) for name, value in scalars.items()},
        **{
            name: jnp.asarray(v if v.dtype == np.float32 else v.astype(np.int32)) for name, v in small.items()
        },
    )


def _info(window: Window, common: Columns, exact: bool) -> WorldInfo:
    return WorldInfo(
        job_names=tuple(window.column("job")),
        table_row=window.rows,
        jobs=window.jobs,
        nodes=window.nodes,
        node_names=tuple(window.nodes.frame["sn"]),
        models=tuple(common.models),
        classes=tuple(common.classes),
        origin_s=window.origin_s,
        tick_s=common.tick,
        exact=exact,
        load_factor=window.factor,
        offered_load=window.load,
        impossible=window.impossible,
    )
