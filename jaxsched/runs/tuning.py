"""Tuning the weights of the policy ``index`` by CMA-ES (Hansen 2016), and the small text file that keeps them.

Every generation is judged on fresh training windows, the same for all its candidates; what is kept is chosen on
validation windows by a paired test. The course file holds every judgement, and CMA-ES is a function of its seed and
of what it was told: a tuning that was stopped goes on by being told again.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from jaxsched.config import fill, read_yaml
from jaxsched.errors import InputError
from jaxsched.evaluation.validation import clearly_better, mean_jcts, window_jcts, window_runs
from jaxsched.learner.index import NUM_WEIGHTS, first_weights, index_policy
from jaxsched.policies.library import get_policy
from jaxsched.runs.sinks import MetricsFile, Progress
from jaxsched.types import EnvConfig, EnvParams
from jaxsched.workloads.scenarios import Scenario, scenario_pool, scenarios_dir

REFERENCE = "spt_pair-easy"
SEEDS = 2**32  # of windows and of the search
WINDOW_BLOCK = 1_000_003  # training windows of generation g come from seed * WINDOW_BLOCK + g
FIRST_STEP = 0.3  # initial standard deviation of a weight
COLUMNS = ("generation", "train_log_ratio", "val_log_ratio", "kept", "losses")


@dataclass(frozen=True)
class TuneConfig:
    """Everything that a tuning depends on."""

    scenario: str = "hetero-8"
    seed: int = 0
    generations: int = 20
    population: int = 24
    windows: int = 16
    validation_windows: int = 64
    validate_every: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEEDS:
            raise InputError(f"seed must be at least 0 and below 2^32, found {self.seed}")


@dataclass(frozen=True)
class IndexFile:
    """Tuned weights and where they come from."""

    tuning: TuneConfig
    generation: int  # after which they were the mean of the search; 0: they are the start
    val_log_ratio: float  # on validation windows, mean log(JCT ratio) to ``REFERENCE``
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != NUM_WEIGHTS:
            raise ValueError(f"weights: expected {NUM_WEIGHTS} numbers, found {len(self.weights)}")


class Judged(NamedTuple):
    """What validation said of some weights."""

    generation: int
    jcts: np.ndarray  # f64[W] seconds
    weights: np.ndarray  # f64[27]


def read_index(path: str | Path) -> IndexFile:
    """Weights that ``tune`` wrote. Raises InputError."""
    return fill(IndexFile, read_yaml(path), str(path))


def shipped_index(scenario: str | None) -> Path:
    """The file of the weights shipped for a scenario (whatever its load). Raises InputError where there is none."""
    folder = scenarios_dir().parent / "index"
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    name = (scenario or "").partition("@")[0]
    if name not in known:
        raise InputError(
            f"the policy index has no shipped weights for {name or 'a cluster of your own'} (it has for "
            f"{', '.join(known)}): give --checkpoint FILE, as `python -m jaxsched.tune` writes it"
        )
    return known[name]


def write_index(path: Path, index: IndexFile) -> None:
    """Replaces the file at once: a reader never sees half of it."""
    content = {**asdict(index), "weights": [round(float(weight), 6) for weight in index.weights]}
    half = path.with_name(path.name + ".part")
    half.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    half.replace(path)


def course_file(path: Path) -> Path:
    """Where the tuning that writes ``path`` keeps its course."""
    return path.with_name(path.stem + ".course.csv")


@partial(jax.jit, static_argnames=("policy", "config"))
def _population_runs(
    policy: Any, weights: jax.Array, key: jax.Array, params: EnvParams, config: EnvConfig
) -> Any:
    return jax.vmap(lambda each: window_runs(policy, each, key, params, config))(weights)


def population_losses(
    population: Sequence[np.ndarray], seed: int, params: EnvParams, config: EnvConfig
) -> np.ndarray:
    """f64[P]: mean over the windows of log(JCT ratio) to ``REFERENCE``; one compiled program for all."""
    key, policy, weights = jax.random.key(seed), index_policy(first_weights()), np.stack(population)
    runs = jax.device_get(_population_runs(policy, jnp.asarray(weights, jnp.float32), key, params, config))
    rival = get_policy(REFERENCE)
    reference = window_jcts(rival, rival.default_params, key, params, config)
    jcts = np.stack([mean_jcts(params, *each) for each in zip(*runs, strict=True)])
    return np.log(jcts / reference).mean(1)


def _fresh_losses(
    config: TuneConfig, scenario: Scenario, generation: int, population: Sequence[np.ndarray]
) -> np.ndarray:
    """The losses of a generation, on training windows of its own."""
    seed = (config.seed * WINDOW_BLOCK + generation) % SEEDS
    env_config, params, _ = scenario_pool(scenario, "train", config.windows, seed)
    return population_losses(population, config.seed, params, env_config)


def tune(config: TuneConfig, scenario: Scenario, path: Path, resume: bool = False) -> IndexFile:
    """Search from the start of ``index``; the best weights so far are in ``path`` at any moment."""
    from cmaes import CMA

    search = CMA(mean=first_weights(), sigma=FIRST_STEP, seed=config.seed, population_size=config.population)
    told = list(_told(path, config)) if resume else []
    env_config, validation, _ = scenario_pool(scenario, "validation", config.validation_windows)
    rival, key = get_policy(REFERENCE), jax.random.key(config.seed)
    reference = window_jcts(rival, rival.default_params, key, validation, env_config)

    def judge(generation: int, weights: np.ndarray) -> Judged:
        policy = index_policy(weights)
        return Judged(
            generation, window_jcts(policy, policy.default_params, key, validation, env_config), weights
        )

    best = judge(0, first_weights())
    course = MetricsFile(course_file(path), COLUMNS)
    course.cut_after("generation", len(told))
    with Progress(config.generations, "tune", done=len(told)) as progress:
        for generation in range(1, config.generations + 1):
            population = [search.ask() for _ in range(config.population)]
            again = generation <= len(told)
            losses = (
                told[generation - 1] if again else _fresh_losses(config, scenario, generation, population)
            )
            search.tell([(x, float(loss)) for x, loss in zip(population, losses, strict=True)])
            row = {"generation": generation, "train_log_ratio": losses.mean()}
            if generation % config.validate_every == 0 or generation == config.generations:
                found = judge(generation, search.mean)
                best = found if clearly_better(found.jcts, best.jcts) else best
                row |= {"val_log_ratio": np.log(found.jcts / reference).mean(), "kept": best.generation}
            if not again:
                course.append({**row, "losses": ";".join(map(repr, map(float, losses)))})
                write_index(path, _kept(config, best, reference))
            progress.update(generation, val=np.log(best.jcts / reference).mean())
    kept = _kept(config, best, reference)
    write_index(path, kept)
    return kept


def _kept(config: TuneConfig, best: Judged, reference: np.ndarray) -> IndexFile:
    ratio = float(np.log(best.jcts / reference).mean())
    return IndexFile(config, best.generation, ratio, tuple(map(float, best.weights)))


def _told(path: Path, config: TuneConfig) -> Iterator[np.ndarray]:
    """The losses of the generations that the course file holds, after a check that they are of this tuning."""
    before = read_index(path).tuning
    for name, value in asdict(config).items():
        if name != "generations" and getattr(before, name) != value:
            raise InputError(f"{path}: was tuned with {name} {getattr(before, name)!r}, not {value!r}")
    with course_file(path).open(newline="") as file:
        for row in csv.DictReader(file):
            yield np.array([float(loss) for loss in row["losses"].split(";")])
