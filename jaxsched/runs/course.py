"""A training run from settings to result files: what ``train`` does once its command line is understood.

Order matters: settings, metrics and checkpoints are on disk while the run goes on, tables before plots.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsched.config import to_mapping, to_yaml
from jaxsched.errors import InputError
from jaxsched.evaluation.validation import clearly_better, window_jcts
from jaxsched.learner.agent import gnn_policy
from jaxsched.learner.ddqn import METRICS
from jaxsched.learner.ring import ring_bytes
from jaxsched.learner.training import LearnerState, Trainer, make_train, with_objective
from jaxsched.policies.library import get_policy
from jaxsched.runs import checkpoint
from jaxsched.runs.results import compare_on_test
from jaxsched.runs.settings import RunConfig, default_folder, named_scenario
from jaxsched.runs.sinks import MetricsFile, Progress
from jaxsched.sim.env import ClusterEnv
from jaxsched.types import EnvConfig, EnvParams
from jaxsched.workloads.scenarios import Scenario, scenario_pool, scenario_report

COLUMNS = (
    "env_steps", "decisions", "updates", "target_syncs", "epsilon", "loss", "td_abs", "q_mean", "return_mean",
    "val_mean_jct", "val_reference_jct", "steps_per_s", "wall_s",
)  # fmt: skip


class Problem(NamedTuple):
    """What is trained on and what the checkpoint is chosen on."""

    config: EnvConfig
    train: EnvParams
    validation: EnvParams
    validation_config: EnvConfig


class Standing(NamedTuple):
    """Where a run stands, beside the learner state: kept in the ``latest`` checkpoint."""

    chunks: int = 0
    decisions: int = 0
    best: tuple[float, ...] = ()  # validation JCT of each window under the best weights so far
    wall_s: float = 0.0


def start_run(config: RunConfig, out: str | None) -> None:
    """Train from scratch into a new folder."""
    folder = Path(out) if out else default_folder(config)
    if (folder / "config.yaml").exists():
        raise InputError(
            f"{folder}: already holds a run; go on with --resume {folder}, or give another --out"
        )
    scenario = named_scenario(config)
    problem = build_problem(config, scenario)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot write a run here: {error.strerror}") from error
    trainer = make_train(ClusterEnv(problem.config), config.learner)
    learner = _placed(trainer.init(jax.random.key(config.seed), problem.train))
    _train_and_compare(config, scenario, folder, problem, trainer, learner, Standing())


def continue_run(config: RunConfig, folder: Path) -> None:
    """Go on from the folder's latest checkpoint to the numbers that an uninterrupted run would give.

    A run that was stopped before its first checkpoint begins anew.
    """
    scenario = named_scenario(config)
    problem = build_problem(config, scenario)
    trainer = make_train(ClusterEnv(problem.config), config.learner)
    key, standing = jax.random.key(config.seed), Standing()
    if checkpoint.has(folder, "latest"):
        like = jax.eval_shape(trainer.init, key, problem.train)
        learner, notes = checkpoint.restore(folder, "latest", like)
        standing = Standing(**{**notes, "best": tuple(notes["best"])})
    else:
        learner = trainer.init(key, problem.train)
    learner = _placed(learner)
    print(f"resuming {folder} at step {standing.chunks * trainer.chunk_size:,}")
    _train_and_compare(config, scenario, folder, problem, trainer, learner, standing)


def _placed(learner: LearnerState) -> LearnerState:
    """The state bound to its device, as a restored one is: both then run the same compiled program."""
    return jax.device_put(learner, jax.devices()[0])


def build_problem(config: RunConfig, scenario: Scenario) -> Problem:
    """Windows of the train and validation splits; says what was read and on which device it runs."""
    report = scenario_report(scenario)
    if report is not None:
        print(report)
    env_config, train, infos = scenario_pool(scenario, "train", config.train_windows, config.seed)
    validation_config, validation, _ = scenario_pool(scenario, "validation", config.validation_windows)
    device = jax.devices()[0]
    accelerator = "" if device.platform != "cpu" else " (no accelerator found)"
    print(f"device: {device.device_kind} x {jax.device_count()}{accelerator}")
    names = sorted({model for info in infos[:64] for model in info.models if model})
    print(
        f"{scenario.name}: {len(infos)} training windows of {env_config.num_jobs} jobs, "
        f"{validation.pool.num_jobs.shape[0]} for validation; up to {env_config.num_nodes} nodes of up to "
        f"{env_config.gpus_per_node} GPUs ({', '.join(names)})"
    )
    return Problem(env_config, with_objective(train, config.learner), validation, validation_config)


def _train_and_compare(
    config: RunConfig,
    scenario: Scenario,
    folder: Path,
    problem: Problem,
    trainer: Trainer,
    learner: LearnerState,
    standing: Standing,
) -> None:
    learner = _train(config, folder, problem, trainer, learner, standing)
    weights = learner.weights.average
    acting, notes = checkpoint.restore(folder, "best", jax.eval_shape(lambda: weights))
    chosen = (
        f"chosen at step {notes['env_steps']:,}" if notes["env_steps"] else "untrained: no step was better"
    )
    print(f"comparing the network ({chosen}) on held-out windows")
    policies: dict[str, tuple[Any, Any]] = {"gnn": (gnn_policy(config.learner.network, acting), acting)}
    for name in config.policies:
        policy = get_policy(name)
        policies[name] = (policy, policy.default_params)
    compare_on_test(policies, scenario, config.test_windows, config.seed, config.reference, folder)


def _train(
    config: RunConfig,
    folder: Path,
    problem: Problem,
    trainer: Trainer,
    learner: LearnerState,
    standing: Standing,
) -> LearnerState:
    """Chunks with metrics, evaluations and checkpoints between them."""
    rows = math.prod(jax.tree.leaves(learner.ring.rows)[0].shape[:2])
    print(f"replay ring: {rows:,} rows, {ring_bytes(learner.ring) / 2**20:,.0f} MiB")
    metrics = MetricsFile(folder / "metrics.csv", COLUMNS)
    metrics.cut_after("env_steps", standing.chunks * trainer.chunk_size if standing.best else -1)
    reference = reference_jct(config, problem)
    due = evaluation_chunks(config, trainer)
    began = time.monotonic() - standing.wall_s
    with Progress(trainer.total_chunks, "train", done=standing.chunks) as progress:

        def judge(row: dict[str, Any], standing: Standing) -> Standing:
            """Evaluate, then the row of metrics, then checkpoints: a resumed run cuts rows after its checkpoint."""
            jcts = _evaluate(config, problem, learner)
            row |= {"val_mean_jct": jcts.mean(), "val_reference_jct": reference.mean()}
            metrics.append(row)
            progress.note(_line(row, jcts, reference))
            return _keep(folder, trainer, learner, jcts, standing)

        if not standing.best:  # the untrained network competes too: no run ships worse than its start
            standing = judge(start_row(config, time.monotonic() - began), standing)
        for chunk in range(standing.chunks + 1, trainer.total_chunks + 1):
            chunk_began = time.monotonic()
            learner, measured = trainer.train_chunk(learner, problem.train)
            row = metrics_row(config, trainer, chunk, standing, jax.device_get(measured), chunk_began, began)
            standing = standing._replace(chunks=chunk, decisions=row["decisions"], wall_s=row["wall_s"])
            if chunk in due:
                standing = judge(row, standing)
            else:
                metrics.append(row)
            shown = {k: row[k] for k in ("loss", "steps_per_s") if row.get(k) is not None}
            progress.update(chunk, **shown, val_jct=np.mean(standing.best))
    return learner


def reference_jct(config: RunConfig, problem: Problem) -> np.ndarray:
    """Validation JCT (f64[W], seconds) under the reference policy."""
    policy = get_policy(config.reference)
    key = jax.random.key(config.seed)
    return window_jcts(policy, policy.default_params, key, problem.validation, problem.validation_config)


def evaluation_chunks(config: RunConfig, trainer: Trainer) -> set[int]:
    """After how many chunks the network is evaluated: evenly over the updates, and always at the end."""
    marks = np.linspace(trainer.fill_chunks, trainer.total_chunks, config.evaluations + 1)[1:]
    return {round(mark) for mark in marks} | {trainer.total_chunks}


def start_row(config: RunConfig, wall_s: float) -> dict[str, Any]:
    """The row of metrics.csv before the first step."""
    counts = dict.fromkeys(("env_steps", "decisions", "updates", "target_syncs"), 0)
    return {**counts, "epsilon": config.learner.epsilon_start, "wall_s": wall_s}


def metrics_row(
    config: RunConfig,
    trainer: Trainer,
    chunks: int,
    standing: Standing,
    measured: dict[str, Any],
    chunk_began: float,
    began: float,
) -> dict[str, Any]:
    """One row of metrics.csv; what does not exist yet (no update, no finished episode) stays empty."""
    now = time.monotonic()
    updates = max(0, chunks - trainer.fill_chunks) * config.learner.updates
    period = config.learner.target_period
    episodes = float(measured["episodes"])
    return {
        "env_steps": chunks * trainer.chunk_size,
        "decisions": standing.decisions + int(measured["decisions"]),
        "updates": updates,
        "target_syncs": updates // period if period else updates,
        "epsilon": float(measured["epsilon"]),
        **{name: float(measured[name]) if updates else None for name in METRICS},
        "return_mean": float(measured["return_sum"]) / episodes if episodes else None,
        "steps_per_s": trainer.chunk_size / (now - chunk_began),
        "wall_s": now - began,
    }


def _evaluate(config: RunConfig, problem: Problem, learner: LearnerState) -> np.ndarray:
    """Validation JCT of the averaged weights, acting greedily."""
    weights = learner.weights.average
    policy = gnn_policy(config.learner.network, weights)
    key = jax.random.key(config.seed)
    return window_jcts(policy, weights, key, problem.validation, problem.validation_config)


def _keep(
    folder: Path, trainer: Trainer, learner: LearnerState, jcts: np.ndarray, standing: Standing
) -> Standing:
    """Save the checkpoints that are due: best when clearly better, latest always, final at the end."""
    steps = standing.chunks * trainer.chunk_size
    notes = {"env_steps": steps, "val_mean_jct": float(jcts.mean())}
    if not standing.best or clearly_better(jcts, np.array(standing.best)):
        checkpoint.save(folder, "best", standing.chunks, learner.weights.average, notes)
        standing = standing._replace(best=tuple(map(float, jcts)))
    if standing.chunks == trainer.total_chunks:
        checkpoint.save(folder, "final", standing.chunks, learner.weights.average, notes)
    checkpoint.save(folder, "latest", standing.chunks, learner, to_mapping(standing._asdict()))
    return standing


def _line(row: dict[str, Any], jcts: np.ndarray, reference: np.ndarray) -> str:
    change = 100 * np.expm1(np.log(jcts / reference).mean())
    return (
        f"step {row['env_steps']:>9,}  {row['wall_s']:5.0f} s  loss {row.get('loss') or 0:.4f}  "
        f"validation JCT {jcts.mean():,.0f} s, reference {reference.mean():,.0f} s ({change:+.1f} %)"
    )
