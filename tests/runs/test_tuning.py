"""Tuning the index: better on a probe problem, the same numbers after a stop, files that are checked."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
import yaml

from jaxsched import evaluate, tune
from jaxsched.errors import InputError
from jaxsched.evaluation.validation import window_jcts
from jaxsched.learner.index import NUM_WEIGHTS, first_weights, index_policy
from jaxsched.policies.library import get_policy
from jaxsched.runs import tuning
from jaxsched.runs.tuning import IndexFile, TuneConfig, course_file, read_index, write_index
from jaxsched.workloads.scenarios import list_scenarios, load_scenario, scenario_pool
from tests.runs.test_course import SCENARIO, exits

SMALL = TuneConfig(generations=4, population=6, windows=4, validation_windows=8, validate_every=2)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("tuning") / "tiny.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    return replace(load_scenario(str(path)), name=str(path))


@pytest.fixture(scope="module")
def whole(scenario, tmp_path_factory):
    path = tmp_path_factory.mktemp("tuned") / "whole.yaml"
    return path, tuning.tune(SMALL, scenario, path)


def jct_of_start(scenario) -> float:
    """Mean log JCT ratio of the untuned index on the validation windows."""
    config, params, _ = scenario_pool(scenario, "validation", SMALL.validation_windows)
    policies = index_policy(first_weights()), get_policy(tuning.REFERENCE)
    start, rule = (window_jcts(p, p.default_params, jax.random.key(0), params, config) for p in policies)
    return float(np.log(start / rule).mean())


def test_what_is_kept_is_never_worse_than_the_start_on_validation(scenario, whole):
    path, found = whole
    assert read_index(path).weights == pytest.approx(found.weights, abs=1e-5)
    assert found.val_log_ratio <= jct_of_start(scenario) and found.generation in (0, 2, 4)
    rows = course_file(path).read_text().splitlines()
    assert rows[0] == "generation,train_log_ratio,val_log_ratio,kept,losses" and len(rows) == 5
    assert all(len(row.split(";")) == SMALL.population for row in rows[1:])


def test_stop_and_resume_is_never_stopped(scenario, whole, tmp_path, monkeypatch):
    path, judged = tmp_path / "again.yaml", tuning.population_losses
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return judged(*arguments)

    monkeypatch.setattr(tuning, "population_losses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(SMALL, scenario, path)
    assert len(read_index(path).weights) == NUM_WEIGHTS
    tuning.tune(SMALL, scenario, path, resume=True)
    assert path.read_bytes() == whole[0].read_bytes()
    assert course_file(path).read_bytes() == course_file(whole[0]).read_bytes()


def test_resuming_another_tuning_is_refused(scenario, whole):
    with pytest.raises(InputError, match="was tuned with seed 0, not 1"):
        tuning.tune(replace(SMALL, seed=1), scenario, whole[0], resume=True)


def test_the_search_finds_what_pays(scenario, monkeypatch, tmp_path):
    """On a bowl in place of the simulator the centre comes closer to the least point."""
    goal = np.linspace(-0.5, 0.5, NUM_WEIGHTS)
    monkeypatch.setattr(
        tuning, "population_losses", lambda some, *_: np.array([((x - goal) ** 2).sum() for x in some])
    )
    monkeypatch.setattr(
        tuning,
        "window_jcts",
        lambda policy, w, *_: 100 + np.full(2, ((np.array(w) - goal) ** 2).sum() if len(w) else 0),
    )
    found = tuning.tune(replace(SMALL, generations=60), scenario, tmp_path / "bowl.yaml")
    start, end = (((np.array(w) - goal) ** 2).sum() for w in (first_weights(), found.weights))
    assert end < start / 4


def test_the_file_goes_where_a_checkpoint_goes(scenario, whole, tmp_path, capsys):
    common = ("--policies", "index,spt_pair-easy", "--episodes", 2, "--out", tmp_path)
    assert exits(evaluate.main, "--scenario", scenario.name, "--checkpoint", whole[0], *common) == 0
    assert "index" in (tmp_path / "summary.csv").read_text()
    assert exits(evaluate.main, "--scenario", scenario.name, *common) == 2
    assert "no shipped weights" in capsys.readouterr().err


def test_wrong_files_are_one_line(tmp_path, capsys):
    path = tmp_path / "w.yaml"
    write_index(path, IndexFile(SMALL, 0, 0.0, tuple(first_weights())))
    path.write_text(path.read_text().replace("- -1.0\n", ""))
    with pytest.raises(InputError, match="weights: expected 27 numbers, found 26"):
        read_index(path)
    assert exits(tune.main, "--out", path) == 2
    assert "exists already" in capsys.readouterr().err
    assert exits(tune.main, "--out", tmp_path / "new.yaml", "--seed", 2**32) == 2
    assert "below 2^32" in capsys.readouterr().err
    assert exits(tune.main, "--out", tmp_path / "none.yaml", "--resume") == 2
    assert "no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted((tuning.scenarios_dir().parent / "index").glob("*.yaml")), ids=lambda p: p.stem
)
def test_shipped_weights_load_and_say_how_they_were_made(path):
    index = read_index(path)
    assert path.stem in list_scenarios() and index.tuning.scenario.partition("@")[0] == path.stem
    assert index.val_log_ratio < 0 < index.generation
