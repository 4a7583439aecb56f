"""Speed tables and node inventories."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.workloads.clusters import apportion, random_model_mix, sample_by_share, synthetic_cluster
from jaxsched.workloads.demand import gpus_by_model
from jaxsched.workloads.power import power_table
from jaxsched.workloads.speeds import TABLES, UNIFORM, get_speeds
from tests.workloads.tables import nodes_of, write


def test_lookup_rules(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", "class,model,speed", "lm,V100,1.75", ",V100,2", "*,T4,0.5")
    speeds = get_speeds(str(path))
    assert speeds.of("lm", "V100") == Fraction(7, 4) and speeds.of("cv", "V100") == 2
    assert (
        speeds.of("lm", "T4") == Fraction(1, 2) and speeds.of("lm", "A100") == 1 and speeds.of("lm", "") == 1
    )
    assert speeds.classes == ("lm",) and UNIFORM.of("lm", "V100") == 1


def test_mean_speed_is_the_average_over_gpus() -> None:
    table = get_speeds("gavel")
    assert (
        table.mean("gan", {"K80": 1, "P100": 2, "V100": 1})
        == Fraction("0.228") / 4 + Fraction(2, 4) + Fraction("1.971") / 4
    )
    assert table.mean("gan", {}) == 1


@pytest.mark.parametrize("value", ["0", "-1", "1e-7", "5000"])
def test_speeds_out_of_range(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match="must be a decimal above 0"):
        get_speeds(str(write(tmp_path / "s.csv", "class,model,speed", f"lm,V100,{value}")))


def test_unknown_tables_and_repeated_pairs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no speed table 'gavle'.*did you mean 'gavel'"):
        get_speeds("gavle")
    with pytest.raises(InputError, match="row 2: class 'a' on model 'T4' is given twice"):
        get_speeds(str(write(tmp_path / "s.csv", "class,model,speed", "a,T4,1", "a,T4,2")))


def test_shipped_tables_rank_models_differently_by_class() -> None:
    gavel = TABLES["gavel"]
    gains = [gavel.of(c, "V100") / gavel.of(c, "K80") for c in gavel.classes]
    assert len(gavel.classes) == 4 and max(gains) > 4 * min(gains) / 1.1


def test_apportion_by_largest_remainder() -> None:
    assert apportion({"a": 6, "b": 3, "c": 1}, 4) == {"a": 3, "b": 1, "c": 0}
    assert sum(apportion({"a": 1, "b": 1, "c": 1}, 5).values()) == 5


def test_small_clusters_keep_shares_and_a_largest_node() -> None:
    nodes = nodes_of(*[(2, "T4")] * 90, *[(0, "")] * 9, (8, "V100"))
    small = sample_by_share(nodes, 10).frame
    assert small["gpu"].tolist() == [2] * 8 + [0, 8] and small["sn"].is_unique
    with pytest.raises(InputError, match="cannot take 101"):
        sample_by_share(nodes, 101)


def test_synthetic_clusters() -> None:
    nodes = synthetic_cluster({"K80": 3, "V100": 2}, gpus_per_node=4)
    assert gpus_by_model(nodes) == {"K80": 12, "V100": 8} and nodes.frame["sn"][0] == "node-00"
    rng = np.random.default_rng(0)
    mixes = [random_model_mix(rng, ("A", "B", "C"), 8, 32) for _ in range(200)]
    totals = {sum(mix.values()) for mix in mixes}
    assert min(totals) == 8 and max(totals) == 32 and all(min(mix.values()) >= 1 for mix in mixes)
    with pytest.raises(InputError, match="random mix of 3 models"):
        random_model_mix(rng, ("A", "B", "C"), 2, 8)


def test_power_of_model_columns() -> None:
    assert power_table(["", "T4", "H900"], 4).tolist() == [[0, 0], [10, 70], [0, 0], [0, 0]]
