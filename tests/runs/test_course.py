"""Whole training runs, small: their files, their interruptions and their refusals."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import yaml

from jaxsched import cli, evaluate, simulate, train
from jaxsched.config import fill, read_yaml
from jaxsched.evaluation.metrics import COLUMNS as METRICS
from jaxsched.runs import checkpoint, course
from jaxsched.runs.settings import RunConfig, named_scenario

SCENARIO = {
    "about": "two nodes, few jobs",
    "source": "synthetic",
    "jobs_per_window": 24,
    "load": 1.5,
    "queue": 8,
    "running": 48,
    "speeds": "gavel",
    "cluster": {"models": {"K80": 1, "V100": 1}},
    "mix": {"longest_s": 3600},
}
LEARNER = {
    "target": "td",  # the smaller program: what is tested here is the same
    "total_steps": 192,
    "num_envs": 4,
    "chunk_steps": 4,
    "updates": 2,
    "batch": 8,
    "capacity": 16,
    "learning_starts": 32,
    "epsilon_steps": 100,
    "n_step": 2,
    "network": {"width": 8, "max_jobs": 4, "max_nodes": 2},
}
RUN = {
    "train_windows": 4,
    "validation_windows": 2,
    "test_windows": 2,
    "evaluations": 3,  # after 5, 9 and 12 chunks
    "policies": ["fifo+best_fit", "spt_pair"],
    "learner": LEARNER,
}
METRICS_HEADER = (
    "env_steps,decisions,updates,target_syncs,epsilon,loss,td_abs,q_mean,return_mean,"
    "val_mean_jct,val_reference_jct,steps_per_s,wall_s"
)
CLOCK = ["steps_per_s", "wall_s"]  # the two columns that tell the time of day


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the scenario and the settings of a tiny run; training programs are compiled once in it."""
    path = tmp_path_factory.mktemp("course")
    (path / "tiny.yaml").write_text(yaml.safe_dump(SCENARIO))
    (path / "run.yaml").write_text(yaml.safe_dump({**RUN, "scenario": str(path / "tiny.yaml")}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "make_train", functools.cache(course.make_train))
        yield path


def start(folder: Path, name: str, *more: str) -> Path:
    train.main(["--config", str(folder / "run.yaml"), "--out", str(folder / name), *more])
    return folder / name


@pytest.fixture(scope="module")
def whole(folder) -> Path:
    """A run that nothing disturbed."""
    return start(folder, "whole")


def read_metrics(run: Path) -> pd.DataFrame:
    """metrics.csv as text, without the columns that tell the time of day."""
    return pd.read_csv(run / "metrics.csv", dtype=str, keep_default_na=False).drop(columns=CLOCK)


def latest(run: Path) -> list[np.ndarray]:
    """Every array of the learner state at the end of a run: weights, optimiser, ring, clusters, key, counters."""
    config = fill(RunConfig, read_yaml(run / "config.yaml"), "config.yaml")
    problem = course.build_problem(config, named_scenario(config))
    trainer = course.make_train(course.ClusterEnv(problem.config), config.learner)
    like = jax.eval_shape(trainer.init, jax.random.key(config.seed), problem.train)
    tree, notes = checkpoint.restore(run, "latest", like)
    assert notes["chunks"] == trainer.total_chunks
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def is_key(leaf: jax.Array) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def exits(main, *arguments: str | Path) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        cli.run(main, [str(a) for a in arguments])
    return end.value.code


def test_a_run_leaves_the_agreed_files(whole):
    for name in ("config.yaml", "metrics.csv", "evaluation.csv", "summary.csv"):
        assert (whole / name).is_file()
    pictures = {"learning_curve.png", "jct_cdf.png", "utilisation_and_queue.png", "gantt.png"}
    assert {path.name for path in (whole / "plots").iterdir()} == pictures
    assert all(checkpoint.has(whole, kind) for kind in ("latest", "best", "final"))


def test_metrics_have_the_agreed_columns_and_true_numbers(whole):  # CL-06
    assert (whole / "metrics.csv").read_text().splitlines()[0] == METRICS_HEADER
    metrics = pd.read_csv(whole / "metrics.csv")
    assert list(metrics["env_steps"]) == list(range(0, 193, 16))  # the first row is the start
    assert list(metrics["updates"]) == [0, 0, 0, *range(2, 21, 2)]
    assert metrics["loss"].isna().tolist() == [True] * 3 + [False] * 10
    assert np.flatnonzero(metrics["val_mean_jct"].notna()).tolist() == [0, 5, 9, 12]
    assert metrics["val_reference_jct"].nunique() == 1
    assert (metrics["decisions"].diff().dropna() <= 16).all() and list(metrics["decisions"][:2]) == [0, 16]


def test_no_run_ships_worse_than_its_start(folder, monkeypatch):
    """However bad the trained weights turn out, ``best`` is then the network as it was before the first step."""
    evaluated = iter((1.0, 2.0, 3.0, 4.0))
    monkeypatch.setattr(course, "_evaluate", lambda *_: np.full(2, 100.0 * next(evaluated)))
    run = start(folder, "worse")
    config = fill(RunConfig, read_yaml(run / "config.yaml"), "config.yaml")
    problem = course.build_problem(config, named_scenario(config))
    trainer = course.make_train(course.ClusterEnv(problem.config), config.learner)
    begin = trainer.init(jax.random.key(config.seed), problem.train).weights.average
    best, notes = checkpoint.restore(run, "best", jax.eval_shape(lambda: begin))
    assert notes["env_steps"] == 0 and notes["val_mean_jct"] == 100.0
    jax.tree.map(np.testing.assert_array_equal, best, begin)


def test_tables_have_the_agreed_columns(whole):
    evaluation = pd.read_csv(whole / "evaluation.csv")
    assert list(evaluation) == ["scenario", "episode", *METRICS]
    assert sorted(set(evaluation["policy"])) == ["fifo+best_fit", "gnn", "spt_pair"] and len(evaluation) == 6
    summary = pd.read_csv(whole / "summary.csv")
    assert list(summary)[: len(METRICS)] == list(METRICS)
    effect = [
        "log_jct_ratio",
        "log_jct_ratio_low",
        "log_jct_ratio_high",
        "jct_change_pct",
        "wins",
        "reference",
    ]
    assert set(effect) <= set(summary) and set(summary["reference"]) == {"spt_pair"}


def interrupt_before_latest(patch, save):
    """At the second evaluation, between the checkpoints ``best`` and ``latest``."""
    calls = []

    def interrupted(run, kind, step, tree, notes):
        calls.append(kind)
        if calls.count("latest") == 3:  # the first one is the start
            raise KeyboardInterrupt
        save(run, kind, step, tree, notes)

    patch.setattr(checkpoint, "save", interrupted)


def interrupt_after_latest(patch, save):
    """At the second evaluation, as soon as ``latest`` is on disk."""
    calls = []

    def interrupted(run, kind, step, tree, notes):
        save(run, kind, step, tree, notes)
        calls.append(kind)
        if calls.count("latest") == 3:  # the first one is the start
            raise KeyboardInterrupt

    patch.setattr(checkpoint, "save", interrupted)


def interrupt_between_evaluations(patch, save):
    """Seven chunks in, two rows of metrics after the checkpoint."""
    row = course.metrics_row

    def interrupted(config, trainer, chunks, *more):
        if chunks == 8:
            raise KeyboardInterrupt
        return row(config, trainer, chunks, *more)

    patch.setattr(course, "metrics_row", interrupted)


def interrupt_before_any_checkpoint(patch, save):
    """The start is in metrics.csv, but not yet a checkpoint."""

    def interrupted(*_):
        raise KeyboardInterrupt

    patch.setattr(checkpoint, "save", interrupted)


INTERRUPTS = (
    interrupt_before_latest,
    interrupt_after_latest,
    interrupt_between_evaluations,
    interrupt_before_any_checkpoint,
)


@pytest.mark.parametrize("interrupt", INTERRUPTS, ids=lambda f: f.__name__)
def test_stop_and_resume_is_never_stopped(folder, whole, interrupt):  # RC-04
    name = interrupt.__name__
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, checkpoint.save)
        with pytest.raises(KeyboardInterrupt):
            start(folder, name)
    assert not (folder / name / "summary.csv").exists()
    train.main(["--resume", str(folder / name)])
    assert read_metrics(folder / name).equals(read_metrics(whole))
    assert (folder / name / "evaluation.csv").read_bytes() == (whole / "evaluation.csv").read_bytes()
    for mine, theirs in zip(latest(folder / name), latest(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_seed_is_used(folder, whole):  # RC-01
    again = start(folder, "again", "--seed", "0")
    assert (again / "evaluation.csv").read_bytes() == (whole / "evaluation.csv").read_bytes()
    assert read_metrics(again).equals(read_metrics(whole))
    other = start(folder, "other", "--seed", "1")
    assert not read_metrics(other)["loss"].equals(read_metrics(whole)["loss"])
    assert (other / "evaluation.csv").read_bytes() != (whole / "evaluation.csv").read_bytes()
    mine, theirs = pd.read_csv(other / "evaluation.csv"), pd.read_csv(whole / "evaluation.csv")
    assert list(mine["mean_jct_s"]) != list(theirs["mean_jct_s"])


def test_an_existing_run_is_refused(folder, whole, capsys):
    before = (whole / "metrics.csv").read_bytes()
    assert exits(train.main, "--config", folder / "run.yaml", "--out", whole) == 2
    assert f"--resume {whole}" in capsys.readouterr().err
    assert (whole / "metrics.csv").read_bytes() == before


def test_resume_needs_a_run_and_nothing_else(folder, whole, capsys):
    assert exits(train.main, "--resume", folder / "nowhere") == 2
    assert "no such file" in capsys.readouterr().err
    assert exits(train.main, "--resume", whole, "--seed", "1") == 2
    assert "nothing beside it" in capsys.readouterr().err


def test_a_file_in_the_way_is_one_line(folder, capsys):
    assert exits(train.main, "--config", folder / "run.yaml", "--out", folder / "run.yaml" / "out") == 2
    assert "cannot write a run here" in capsys.readouterr().err


def test_evaluate_runs_the_trained_network_as_train_did(folder, whole, tmp_path):
    scenario = ("--scenario", folder / "tiny.yaml", "--episodes", 2, "--out", tmp_path)
    assert exits(evaluate.main, "--policies", "gnn,spt_pair", "--checkpoint", whole, *scenario) == 0
    mine, theirs = pd.read_csv(tmp_path / "evaluation.csv"), pd.read_csv(whole / "evaluation.csv")
    theirs = theirs[theirs["policy"].isin(("gnn", "spt_pair"))].reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


def test_simulate_runs_the_trained_network(whole, tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,V100\n")
    (tmp_path / "jobs.csv").write_text("job,arrival_s,duration_s,num_gpu\na,0,10,1\nb,0,20,2\nc,1,5,1\n")
    tables = ("--nodes", tmp_path / "nodes.csv", "--jobs", tmp_path / "jobs.csv", "--policy", "gnn")
    assert exits(simulate.main, *tables, "--checkpoint", whole, "--out", tmp_path) == 0
    (row,) = json.loads((tmp_path / "summary.json").read_text())
    assert (row["policy"], row["completed"], row["unfinished"]) == ("gnn", 3, 0)
    assert exits(simulate.main, *tables, "--out", tmp_path) == 2
    assert "--checkpoint DIR" in capsys.readouterr().err
