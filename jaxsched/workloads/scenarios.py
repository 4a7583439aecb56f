"""Named scenarios (``configs/scenarios/*.yaml``): which cluster, jobs and load, and how they are split.

Windows of the splits train, validation and test never overlap: synthetic ones come from different random
streams (``seed`` makes new ones), those of a trace from different times (fixed, whatever the seed).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

import jaxsched
from jaxsched.errors import InputError, nearest
from jaxsched.types import EnvConfig, EnvParams
from jaxsched.workloads.clusters import (
    CPU_MILLI,
    GPUS_PER_NODE,
    MEMORY_MIB,
    random_model_mix,
    synthetic_cluster,
)
from jaxsched.workloads.demand import gpus_by_model
from jaxsched.workloads.pool import WorldInfo, build_pool
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import JobTable, NodeTable
from jaxsched.workloads.speeds import get_speeds
from jaxsched.workloads.synthetic import JobMix, generate_window, stream
from jaxsched.workloads.trace_windows import TraceOptions, trace_jobs, trace_windows

SPLITS = ("train", "validation", "test")
SOURCES = ("synthetic", "alibaba-2023")
FGD_WINDOWS = 64  # training windows that FGD's class table counts
Windows = list[tuple[NodeTable, JobTable]]


@dataclass(frozen=True)
class Cluster:
    """A synthetic cluster of equal nodes but for the model; with ``nodes`` its size and mix are random."""

    models: Mapping[str, int] = field(
        default_factory=dict
    )  # model -> nodes (only the names count with ``nodes``)
    nodes: tuple[int, ...] = ()  # (least, most) nodes of a random mix
    gpus_per_node: int = GPUS_PER_NODE
    cpu_milli: int = CPU_MILLI
    memory_mib: int = MEMORY_MIB


@dataclass(frozen=True)
class Scenario:
    """A workload and its sizes. ``load`` is one number, or (least, most) drawn evenly for each window."""

    name: str
    about: str
    source: str
    jobs_per_window: int
    load: float | tuple[float, ...]
    queue: int = 64
    running: int = 160
    offer_wait: bool = False
    speeds: str = "uniform"  # a table of ``speeds`` or a CSV file
    beta: float = 0.0  # 1/s
    reward_scale: float = 1.0  # job-seconds
    cluster: Cluster = field(default_factory=Cluster)
    mix: JobMix = field(default_factory=JobMix)
    trace: TraceOptions = field(default_factory=TraceOptions)

    def __post_init__(self) -> None:
        loads = self.load if isinstance(self.load, tuple) else (self.load,)
        if len(loads) not in (1, 2) or min(loads) <= 0:
            raise InputError(
                f"scenario {self.name}: load is a number above 0 or a pair of them, not {self.load}"
            )
        if self.source not in SOURCES:
            raise InputError(
                f"scenario {self.name}: unknown source {self.source!r}; {nearest(self.source, SOURCES)}"
            )
        if self.jobs_per_window < 1:
            raise InputError(
                f"scenario {self.name}: jobs_per_window must be at least 1, not {self.jobs_per_window}"
            )
        if self.source == "synthetic" and not self.cluster.models:
            raise InputError(f"scenario {self.name}: cluster.models names no GPU model")
        if self.cluster.nodes and len(self.cluster.nodes) != 2:
            raise InputError(
                f"scenario {self.name}: cluster.nodes is a pair (least, most), not {self.cluster.nodes}"
            )


def scenarios_dir() -> Path:
    """Where the scenario files are: inside the installed package, or beside it in a source checkout."""
    package = Path(jaxsched.__file__).parent
    inside = package / "configs" / "scenarios"
    return inside if inside.is_dir() else package.parent / "configs" / "scenarios"


def list_scenarios() -> list[str]:
    """Names of the shipped scenarios."""
    return sorted(path.stem for path in scenarios_dir().glob("*.yaml"))


def load_scenario(name: str, **overrides: Any) -> Scenario:
    """A scenario by ``NAME`` or ``NAME@LOAD``, or from a YAML file; ``overrides`` replace its fields.

    Overrides of ``cluster``, ``mix`` and ``trace`` are mappings and are merged. Raises ``InputError``.
    """
    base, at, load = name.partition("@")
    path = Path(base) if base.endswith((".yaml", ".yml")) else scenarios_dir() / f"{base}.yaml"
    if not path.is_file():
        raise InputError(f"no scenario {base!r}; {nearest(base, list_scenarios())}")
    values = _read_yaml(path)
    if at:
        if not re.fullmatch(r"[0-9]*\.?[0-9]+", load):
            raise InputError(f"scenario {name!r}: the load after '@' must be a number, not {load!r}")
        values["load"] = float(load)
    for key, value in overrides.items():
        merged = isinstance(value, Mapping) and isinstance(values.get(key, {}), Mapping)
        values[key] = {**values.get(key, {}), **value} if merged else value
    return _filled(Scenario, {"name": path.stem, **values}, str(path))


def scenario_pool(
    scenario: Scenario, split: str, num_windows: int, seed: int = 0
) -> tuple[EnvConfig, EnvParams, list[WorldInfo]]:
    """A pool of ``num_windows`` windows of a split; of a trace's validation and test as many as there are."""
    windows, loads = scenario_windows(scenario, split, num_windows, seed)
    fgd_windows, _ = scenario_windows(scenario, "train", FGD_WINDOWS, 0)
    sizes = {"num_jobs": scenario.jobs_per_window}
    if scenario.cluster.nodes:
        sizes |= {"num_nodes": scenario.cluster.nodes[1], "gpus_per_node": scenario.cluster.gpus_per_node}
    return build_pool(
        windows,
        speeds=get_speeds(scenario.speeds),
        sizes=sizes,
        queue=scenario.queue,
        running=scenario.running,
        offer_wait=scenario.offer_wait,
        load=loads,
        models=tuple(scenario.cluster.models),
        fgd_jobs=[jobs for _, jobs in fgd_windows],
        beta=scenario.beta,
        reward_scale=scenario.reward_scale,
    )


def scenario_windows(
    scenario: Scenario, split: str, num_windows: int, seed: int = 0
) -> tuple[Windows, list[float]]:
    """Clusters and jobs of the windows of a split before load scaling, and the offered load of each."""
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; {nearest(split, SPLITS)}")
    if num_windows < 1 or not 0 <= seed < 2**32:
        raise InputError(f"need at least one window and 0 <= seed < 2^32, not {num_windows} and {seed}")
    if scenario.source == "synthetic":
        made = [_synthetic_window(scenario, split, seed, i) for i in range(num_windows)]
        return [window for window, _ in made], [load for _, load in made]
    windows = trace_windows(scenario.trace, scenario.jobs_per_window, SPLITS.index(split), num_windows, seed)
    return windows, [_drawn_load(scenario, split, seed, i) for i in range(len(windows))]


def scenario_report(scenario: Scenario) -> LoadReport | None:
    """What was left out of a scenario's trace and why; None for synthetic jobs."""
    return None if scenario.source == "synthetic" else trace_jobs(scenario.trace)[2]


def _synthetic_window(
    scenario: Scenario, split: str, seed: int, index: int
) -> tuple[tuple[NodeTable, JobTable], float]:
    nodes = _cluster(scenario.cluster, split, seed, index)
    load = _drawn_load(scenario, split, seed, index)
    rng = stream(SPLITS.index(split), seed, index, 0)
    classes = get_speeds(scenario.speeds).classes or ("default",)
    gpus = gpus_by_model(nodes)
    jobs = generate_window(rng, scenario.jobs_per_window, scenario.mix, classes, gpus, gpu_load=load)
    return (nodes, jobs), load


def _cluster(cluster: Cluster, split: str, seed: int, index: int) -> NodeTable:
    models = dict(cluster.models)
    if cluster.nodes:
        models = random_model_mix(stream(SPLITS.index(split), seed, index, 1), tuple(models), *cluster.nodes)
    return _equal_nodes(tuple(models.items()), cluster.gpus_per_node, cluster.cpu_milli, cluster.memory_mib)


@lru_cache(maxsize=256)
def _equal_nodes(
    models: tuple[tuple[str, int], ...], gpus: int, cpu_milli: int, memory_mib: int
) -> NodeTable:
    """One table for all windows of a fixed cluster."""
    return synthetic_cluster(dict(models), gpus, cpu_milli, memory_mib)


def _drawn_load(scenario: Scenario, split: str, seed: int, index: int) -> float:
    if not isinstance(scenario.load, tuple):
        return scenario.load
    least, most = scenario.load[0], scenario.load[-1]
    return round(float(stream(SPLITS.index(split), seed, index, 2).uniform(least, most)), 3)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a mapping of scenario fields")
    return values


def _filled(kind: type, values: Mapping[str, Any], where: str) -> Any:
    """An instance of a config dataclass from a mapping; unknown keys and wrong types are refused by name."""
    known = {f.name: f for f in fields(kind)}
    for key in values:
        if key not in known:
            raise InputError(f"{where}: unknown field {key!r}; {nearest(str(key), known)}")
    missing = [n for n in ("about", "source", "jobs_per_window", "load") if n in known and n not in values]
    if missing:
        raise InputError(f"{where}: missing field {missing[0]!r}")
    return kind(
        **{key: _converted(str(known[key].type), value, f"{where}: {key}") for key, value in values.items()}
    )


_SECTIONS: dict[str, type] = {"Cluster": Cluster, "JobMix": JobMix, "TraceOptions": TraceOptions}


def _converted(kind: str, value: Any, where: str) -> Any:
    """``value`` as the annotated type ``kind``, or an ``InputError``."""
    if kind in _SECTIONS:
        if isinstance(value, _SECTIONS[kind]):
            return value
        if isinstance(value, Mapping):
            return _filled(_SECTIONS[kind], value, where)
        raise InputError(f"{where} must be a mapping, not {value!r}")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if "tuple" in kind and isinstance(value, (list, tuple)):
        inner = "float" if "float" in kind else "int"
        return tuple(_converted(inner, v, where) for v in value)
    if "float" in kind and "Mapping" not in kind and number:
        return float(value)
    accepted = {
        "int": number and value == int(value),
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
    }
    if accepted.get(kind, kind.startswith("Mapping") and isinstance(value, Mapping)):
        return int(value) if kind == "int" else value
    raise InputError(f"{where} must be of type {kind}, not {value!r}")


def with_load(scenario: Scenario, load: float) -> Scenario:
    """The same scenario at another offered load."""
    return replace(scenario, load=load, name=f"{scenario.name.partition('@')[0]}@{load:g}")
