from dataclasses import dataclass, field
from typing import Literal

import pytest

from jaxsched.config import fill, merge, parse_overrides, read_yaml, to_yaml
from jaxsched.errors import InputError


@dataclass(frozen=True)
class Learner:
    lr: float = 1e-3
    total_steps: int = 1000
    double_dqn: bool = True
    target: Literal["td", "twin"] = "td"

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise ValueError(f"total_steps: expected at least 1, found {self.total_steps}")


@dataclass(frozen=True)
class Config:
    scenario: str
    learner: Learner = field(default_factory=Learner)
    policies: tuple[str, ...] = ()
    seed: int | None = None
    overrides: dict[str, float] = field(default_factory=dict)


def filled(*arguments: str) -> Config:
    return fill(Config, merge({"scenario": "hetero-8"}, parse_overrides(arguments)), "test.yaml")


@pytest.mark.parametrize("text", ["1e6", "1_000_000", "1000000", "1000000.0"])
def test_whole_numbers_may_be_written_as_people_write_them(text):  # CL-02
    assert filled(f"learner.total_steps={text}").learner.total_steps == 1_000_000


@pytest.mark.parametrize("text", ["1.5", "-5", "0", "many", "nan", "inf", ""])
def test_other_numbers_are_refused_with_the_name(text):  # CL-02
    with pytest.raises(InputError, match="total_steps"):
        filled(f"learner.total_steps={text}")


@pytest.mark.parametrize("text", ["False", "false", "FALSE"])
def test_booleans_can_be_switched_off(text):  # CL-01
    assert filled("--learner.double-dqn", text).learner.double_dqn is False


@pytest.mark.parametrize("text", ["0", "no", "off", "1", ""])
def test_other_booleans_are_refused(text):  # CL-01
    with pytest.raises(InputError, match=r"double_dqn: expected true or false"):
        filled(f"learner.double_dqn={text}")


def test_the_three_spellings_of_an_override():
    for arguments in (["learner.lr=1e-4"], ["--learner.lr=1e-4"], ["--learner.lr", "1e-4"]):
        assert filled(*arguments).learner.lr == 1e-4


@pytest.mark.parametrize("arguments", [["learner.lr"], ["--learner.lr"], ["--a", "--b"], ["=3"], ["a.=3"]])
def test_broken_overrides_are_refused(arguments):
    with pytest.raises(InputError, match="expected key=value"):
        parse_overrides(arguments)


def test_unknown_keys_are_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"test\.yaml: learner: unknown key 'lrr'; did you mean 'lr'\?"):
        filled("learner.lrr=1")
    with pytest.raises(InputError, match="did you mean 'learner'"):
        filled("lerner.lr=1")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("learner.lr=fast", "expected a number, found 'fast'"),
        ("learner.target=twins", "did you mean 'twin'"),
        ("learner=3", "expected keys and values"),
        ("seed=x", "expected a whole number"),
    ],
)
def test_wrong_types_are_refused(argument, message):
    with pytest.raises(InputError, match=message):
        filled(argument)


def test_missing_keys_are_named():
    with pytest.raises(InputError, match="missing key 'scenario'"):
        fill(Config, {}, "test.yaml")


def test_lists_options_and_nothing():
    config = filled("policies=fifo+fgd, spt_pair", "seed=none", "overrides.load=1.5")
    assert config.policies == ("fifo+fgd", "spt_pair")
    assert config.seed is None
    assert config.overrides == {"load": 1.5}
    assert filled("seed=7").seed == 7


def test_later_values_win_level_by_level():
    base = {"learner": {"lr": 1.0, "target": "twin"}, "seed": 3}
    assert merge(base, {"learner": {"lr": 2.0}}) == {"learner": {"lr": 2.0, "target": "twin"}, "seed": 3}


def test_yaml_round_trip(tmp_path):
    config = filled("policies=a,b", "learner.lr=1e-4", "seed=5")
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert fill(Config, read_yaml(path), str(path)) == config


def test_yaml_numbers_without_a_point_are_numbers(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("scenario: hetero-8\nlearner:\n  lr: 1e-4\n  total_steps: 1e6\n")
    config = fill(Config, read_yaml(path), str(path))
    assert (config.learner.lr, config.learner.total_steps) == (1e-4, 1_000_000)


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: [1\n", "\xff"])
def test_files_that_are_no_mapping_are_refused(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"config\.yaml"):
        read_yaml(path)


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "default.yaml").write_text("")
    with pytest.raises(InputError, match=r"no such file; did you mean 'default\.yaml'"):
        read_yaml(tmp_path / "defualt.yaml")
