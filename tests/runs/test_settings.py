"""The settings of a run: the shipped files load, mistakes are named, the default comparison is broad."""

from pathlib import Path

import pytest
import yaml

from jaxsched import train
from jaxsched.config import fill, read_yaml, to_yaml
from jaxsched.errors import InputError
from jaxsched.runs.settings import CLASSICAL, RunConfig
from jaxsched.workloads.scenarios import list_scenarios, load_scenario

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "train").glob("*.yaml"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("lerner.total_steps=1",), "unknown key 'lerner'; did you mean 'learner'?"),
        (("learner.total_step=1",), "unknown key 'total_step'; did you mean 'total_steps'?"),
        (("learner.network.widht=1",), "unknown key 'widht'; did you mean 'width'?"),
        (("learner.total_steps=1.5",), "total_steps: expected a whole number, found '1.5'"),
        (("learner.learning_rate=fast",), "learning_rate: expected a number, found 'fast'"),
        (("evaluations=0",), "evaluations must be at least 1"),
        (("reference=sjf+random",), "reference 'sjf+random' is not among the policies"),
        (("policies=spt_pear",), "unknown policy 'spt_pear'; did you mean 'spt_pair'?"),
        (("scenario=hetro-8",), "did you mean 'hetero-8'?"),
        (("--sed", "1"), "unknown flag --sed; did you mean '--seed'?"),
        (("--config", "smok"), "did you mean 'smoke'?"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path, given, message):
    with pytest.raises(InputError) as refused:
        train.main(["--out", str(tmp_path / "never"), *given])
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_settings_load(path):  # CL-05
    config = fill(RunConfig, read_yaml(train.config_path(path.stem)), str(path))
    assert load_scenario(config.scenario).name in list_scenarios()
    assert fill(RunConfig, yaml.safe_load(to_yaml(config)), "again") == config


def test_the_default_comparison_covers_every_order_blocking_and_placement():
    names = [name for name in CLASSICAL if "+" in name]
    assert len(CLASSICAL) == len(set(CLASSICAL)) == 25
    orders = {name.partition("+")[0].partition("-")[0] for name in names}
    blocking = {name.partition("+")[0].partition("-")[2] for name in names}
    placements = {name.partition("+")[2] for name in names}
    assert (len(orders), blocking, len(placements)) == (7, {"", "strict", "easy"}, 10)
