from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from jaxsched.errors import InputError
from jaxsched.evaluation.compare import (
    RESAMPLES,
    bootstrap_interval,
    compare_policies,
    paired_effect,
    summarise,
    window_schedules,
)
from jaxsched.evaluation.metrics import COLUMNS
from jaxsched.policies.library import get_policy
from jaxsched.workloads.pool import build_pool
from jaxsched.workloads.readers.native import read_jobs_csv, read_nodes_csv
from jaxsched.workloads.schema import JobTable, NodeTable


def nodes(folder: Path) -> NodeTable:
    path = folder / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1,2,T4\nb,64000,1,2,V100\n")
    return read_nodes_csv(path)


def jobs(folder: Path, seed: int, size: int = 12) -> JobTable:
    rng = np.random.default_rng(seed)
    lines = ["job,arrival_s,duration_s,num_gpu,num_instances"]
    for job, arrival in enumerate(np.sort(rng.integers(0, 60, size))):
        gpus, instances = rng.choice([(1, 1), (1, 2), (2, 1)])
        lines.append(f"j{job},{arrival},{rng.integers(1, 100)},{gpus},{instances}")
    path = folder / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_jobs_csv(path)[0]


def policies(*names: str):
    return {name: (get_policy(name), get_policy(name).default_params) for name in names}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    return build_pool([(nodes(folder), jobs(folder, seed)) for seed in range(3)])


@pytest.fixture(scope="module")
def compared(pool):
    chosen = policies("fifo-strict+best_fit", "sjf+best_fit", "fifo+random")
    return compare_policies(chosen, *pool, jax.random.key(0), "fifo-strict+best_fit", scenario="tiny")


def test_a_row_for_each_policy_and_window(compared):
    evaluation, summary = compared
    assert tuple(evaluation.columns[:3]) == ("scenario", "episode", "policy")
    assert tuple(evaluation.columns[2:]) == COLUMNS
    assert len(evaluation) == 9 and set(evaluation["episode"]) == {0, 1, 2}
    assert (evaluation["completed"] == 12).all()
    assert summary["policy"].tolist() == ["fifo-strict+best_fit", "sjf+best_fit", "fifo+random"]
    assert set(COLUMNS) <= set(summary.columns)


def test_windows_differ_and_are_the_same_for_every_policy(compared):  # LE-14
    evaluation, _ = compared
    strict = evaluation[evaluation["policy"] == "fifo-strict+best_fit"]
    assert strict["mean_jct_s"].nunique() == 3
    assert evaluation.groupby("episode")["jobs"].nunique().eq(1).all()


def test_the_same_call_gives_the_same_numbers(pool, compared):  # LE-14
    chosen = policies("fifo-strict+best_fit", "sjf+best_fit", "fifo+random")
    again, _ = compare_policies(chosen, *pool, jax.random.key(0), "fifo-strict+best_fit", scenario="tiny")
    pd.testing.assert_frame_equal(again, compared[0])


def test_a_policy_has_no_effect_against_itself(compared):
    row = compared[1].set_index("policy").loc["fifo-strict+best_fit"]
    assert (row["log_jct_ratio"], row["log_jct_ratio_low"], row["log_jct_ratio_high"], row["wins"]) == (
        0,
        0,
        0,
        0,
    )


def test_effects_are_paired_by_window(compared):
    evaluation, summary = compared
    jct = evaluation.pivot(index="episode", columns="policy", values="mean_jct_s").astype(float)
    ratios = np.log(jct["sjf+best_fit"] / jct["fifo-strict+best_fit"])
    row = summary.set_index("policy").loc["sjf+best_fit"]
    assert row["log_jct_ratio"] == pytest.approx(ratios.mean())
    assert row["log_jct_ratio_low"] <= row["log_jct_ratio"] <= row["log_jct_ratio_high"]
    assert row["wins"] == (ratios < 0).sum()


def test_watch_sees_every_schedule(pool):
    seen = []
    compare_policies(
        policies("fifo+best_fit"),
        *pool,
        jax.random.key(0),
        watch=lambda name, episode, schedule: seen.append((name, episode, int(schedule.events))),
    )
    assert seen == [("fifo+best_fit", w, 36) for w in range(3)]  # admitted, started, ended


def test_gangs_are_recorded_on_all_their_nodes(pool):
    config, params, infos = pool
    (schedule, *_) = window_schedules(
        *policies("fifo+best_fit")["fifo+best_fit"], config, params, jax.random.key(0)
    )
    placed = np.bincount(
        schedule.part_job[: schedule.num_parts], schedule.part_instances[: schedule.num_parts]
    )
    wanted = infos[0].jobs.frame["num_instances"].to_numpy()[infos[0].table_row]
    assert placed.tolist() == wanted.tolist() and (wanted == 2).any()


def test_a_full_running_table_is_refused(tmp_path):
    config, params, infos = build_pool([(nodes(tmp_path), jobs(tmp_path, 0))], running=2)
    with pytest.raises(InputError, match="running table of 2 rows"):
        compare_policies(policies("fifo+best_fit"), config, params, infos, jax.random.key(0))


def test_an_unknown_reference_is_refused(pool):
    with pytest.raises(InputError, match=r"reference 'sjf\+bestfit'.*did you mean 'sjf\+best_fit'"):
        compare_policies(policies("sjf+best_fit"), *pool, jax.random.key(0), "sjf+bestfit")


def rows(*values) -> pd.DataFrame:
    names = ("policy", "episode", "jobs", "unfinished", "mean_jct_s")
    frame = pd.DataFrame([dict(zip(names, value, strict=True)) for value in values])
    frame["completed"] = frame["jobs"] - frame["unfinished"]
    return frame.reindex(columns=["scenario", "episode", *COLUMNS]).fillna({"impossible": 0})


def test_policies_with_unfinished_jobs_are_not_compared():  # ME-01
    with pytest.raises(InputError, match="b left 1 of 2 jobs of window 0 unfinished"):
        summarise(rows(("a", 0, 2, 0, 5.0), ("b", 0, 2, 1, 1.0)))


def test_policies_on_different_jobs_are_not_compared():  # ME-01
    with pytest.raises(InputError, match="differ in window 1"):
        summarise(rows(("a", 0, 2, 0, 5.0), ("b", 0, 2, 0, 1.0), ("a", 1, 2, 0, 5.0), ("b", 1, 3, 0, 1.0)))


def test_effect_by_hand():
    resamples = np.random.default_rng(0).integers(2, size=(RESAMPLES, 2))
    effect = paired_effect(np.array([50.0, 200.0]), np.array([100.0, 100.0]), resamples)
    assert effect["log_jct_ratio"] == pytest.approx(0.0)
    assert effect["jct_change_pct"] == pytest.approx(0.0)
    assert effect["wins"] == 1
    assert (effect["log_jct_ratio_low"], effect["log_jct_ratio_high"]) == pytest.approx(
        (-np.log(2), np.log(2))
    )


def test_bootstrap_interval_covers_a_normal_mean():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        values = rng.normal(3.0, 1.0, 40)
        low, high = bootstrap_interval(values, rng.integers(40, size=(1000, 40)))
        covered += low <= 3.0 <= high
    assert 85 <= covered <= 99
