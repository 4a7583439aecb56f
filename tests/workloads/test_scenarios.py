"""Scenario files, and splits that never share a window."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.workloads import scenarios
from jaxsched.workloads.scenarios import list_scenarios, load_scenario, scenario_pool, scenario_windows
from jaxsched.workloads.trace_windows import TraceOptions, split_rows, trace_jobs, trace_windows
from tests.workloads.tables import OPENB_HEADER, jobs_of, write

needs_trace = pytest.mark.skipif(
    "JAXSCHED_TRACES" not in os.environ, reason="JAXSCHED_TRACES does not say where the real traces are"
)


@pytest.mark.parametrize("name", list_scenarios())
def test_every_shipped_scenario_loads(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name and scenario.about


def test_the_shipped_names() -> None:
    assert {"hetero-8", "hetero-16", "family", "alibaba-16"} <= set(list_scenarios())


@pytest.mark.parametrize(
    ("name", "nodes", "jobs", "queue", "load"),
    [("hetero-8", 8, 512, 64, 1.6), ("hetero-16", 16, 1024, 64, 1.3)],
)
def test_hetero_sizes_and_load(name: str, nodes: int, jobs: int, queue: int, load: float) -> None:
    config, params, infos = scenario_pool(load_scenario(name), "validation", 3, 1)
    assert (config.num_nodes, config.gpus_per_node, config.num_jobs, config.queue) == (nodes, 8, jobs, queue)
    assert [float(info.offered_load) for info in infos] == [load] * 3
    assert np.asarray(params.pool.num_jobs).tolist() == [jobs] * 3  # nothing is impossible
    arrival, work = np.asarray(params.pool.arrival, np.int64), np.asarray(params.pool.request, np.int64)
    assert (np.diff(arrival) >= 0).all() and arrival[:, 0].tolist() == [0] * 3 and work.shape == (3, jobs, 6)
    assert infos[0].models == ("", "K80", "P100", "V100") and len(infos[0].classes) == 4


def test_load_in_the_name_and_overrides() -> None:
    scenario = load_scenario("hetero-8@0.75", queue=128, mix={"cpu_only": 0.5})
    assert (scenario.load, scenario.queue, scenario.mix.cpu_only, scenario.mix.longest_s) == (
        0.75,
        128,
        0.5,
        7200,
    )
    _, _, (info,) = scenario_pool(scenario, "test", 1, 0)
    assert float(info.offered_load) == 0.75
    assert scenarios.with_load(scenario, 1.5).load == 1.5


def test_family_clusters_differ_but_share_sizes() -> None:
    config, params, infos = scenario_pool(load_scenario("family"), "test", 12, 0)
    sizes = [len(info.nodes) for info in infos]
    loads = [float(info.offered_load) for info in infos]
    assert config.num_nodes == 32 and len(set(sizes)) > 4 and min(sizes) >= 8 and max(sizes) <= 32
    assert len(set(loads)) > 8 and min(loads) >= 0.7 and max(loads) <= 1.6
    assert np.asarray(params.pool.node_cpu[0] >= 0).sum() == sizes[0]
    assert scenario_pool(load_scenario("family"), "train", 2, 7)[0] == config


def test_splits_and_seeds_never_share_a_window() -> None:
    scenario = load_scenario("hetero-8", jobs_per_window=32)
    streams = [("train", 0), ("train", 1), ("validation", 0), ("test", 0), ("test", 1)]
    windows = [w for split, seed in streams for w in scenario_windows(scenario, split, 4, seed)[0]]
    assert len({tuple(jobs.frame["duration_s"]) for _, jobs in windows}) == len(windows)


def test_windows_repeat_and_do_not_depend_on_their_number() -> None:
    scenario = load_scenario("hetero-8", jobs_per_window=32)
    few, many = (scenario_windows(scenario, "test", n, 5)[0] for n in (2, 5))
    assert all(a.frame.equals(b.frame) for (_, a), (_, b) in zip(few, many, strict=False))


def test_fgd_table_is_that_of_the_training_split() -> None:
    tables = [
        np.asarray(scenario_pool(load_scenario("hetero-8", jobs_per_window=64), split, 2, seed)[1].fgd_class)
        for split, seed in (("train", 0), ("test", 0), ("test", 9))
    ]
    assert np.array_equal(tables[0], tables[1]) and np.array_equal(tables[1], tables[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("quue: 3", "unknown field 'quue'; did you mean 'queue'"),
        ("queue: many", "queue must be of type int, not 'many'"),
        ("queue: 1.5", "queue must be of type int"),
        ("offer_wait: 1", "offer_wait must be of type bool"),
        ("load: [1, 2, 3]", "load is a number above 0 or a pair"),
        ("load: true", "load must be of type"),
        ("source: sythetic", "unknown source 'sythetic'; did you mean 'synthetic'"),
        ("mix: {cpu_onyl: 0.1}", "unknown field 'cpu_onyl'; did you mean 'cpu_only'"),
        ("mix: 3", "mix must be a mapping"),
        ("cluster: {models: {}}", "names no GPU model"),
        ("jobs_per_window: 0", "jobs_per_window must be at least 1"),
        ("trace: {split: [50, 50, 50]}", "add up to 100"),
        ("speeds: [", "is not valid YAML"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path: Path, change: str, message: str) -> None:
    base = {
        "about": "about: x",
        "source": "source: synthetic",
        "jobs_per_window": "jobs_per_window: 8",
        "load": "load: 1.0",
        "cluster": "cluster: {models: {T4: 2}}",
    }
    path = write(tmp_path / "mine.yaml", *(base | {change.split(":")[0]: change}).values())
    with pytest.raises(InputError) as error:
        load_scenario(str(path))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_users_own_scenario(tmp_path: Path) -> None:
    lines = ("about: x", "source: synthetic", "jobs_per_window: 8", "load: 1", "cluster: {models: {T4: 2}}")
    config, _, (info,) = scenario_pool(
        load_scenario(str(write(tmp_path / "mine.yaml", *lines))), "test", 1, 0
    )
    assert config.num_nodes == 2 and float(info.offered_load) == 1.0 and info.classes == ("default",)


def test_wrong_names_and_splits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scenario 'hetero8'; did you mean 'hetero-8'"):
        load_scenario("hetero8")
    with pytest.raises(InputError, match="must be a number, not 'high'"):
        load_scenario("hetero-8@high")
    with pytest.raises(InputError, match="missing field 'load'"):
        load_scenario(str(write(tmp_path / "m.yaml", "about: x", "source: synthetic", "jobs_per_window: 8")))
    scenario = load_scenario("hetero-8")
    with pytest.raises(InputError, match="unknown split 'tset'; did you mean 'test'"):
        scenario_windows(scenario, "tset", 1, 0)
    with pytest.raises(InputError, match="at least one window"):
        scenario_windows(scenario, "test", 0, 0)


def openb_files(folder: Path, pods: int) -> TraceOptions:
    rows = [f"p{i},1000,1,1,500,,LS,Running,{10 * i},{10 * i + 5 + i % 3},{10 * i}" for i in range(pods)]
    jobs = write(folder / "pods.csv", OPENB_HEADER, *rows)
    nodes = write(
        folder / "nodes.csv",
        "sn,cpu_milli,memory_mib,gpu,model",
        *(f"n{i},96000,1000,8,G2" for i in range(9)),
    )
    return TraceOptions(str(jobs), str(nodes), num_nodes=2, first_arrival_s=0)


def test_trace_splits_are_disjoint_in_time_and_do_not_move(tmp_path: Path) -> None:
    options = openb_files(tmp_path, 200)
    spans = []
    for split in range(3):
        windows = trace_windows(options, 10, split, 50, seed=1)
        arrival = [w.frame["arrival_s"].to_numpy() for _, w in windows]
        spans.append((min(a[0] for a in arrival), max(a[-1] for a in arrival)))
        if split:
            assert len(windows) == (4, 6)[split - 1]  # rows 99..138 and 139..198 of 199, in windows of 10
            assert all(a[-1] < b[0] for a, b in pairwise(arrival))
            again = trace_windows(options, 10, split, 50, seed=2)
            assert all(a.frame.equals(b.frame) for (_, a), (_, b) in zip(windows, again, strict=True))
        else:
            assert len(windows) == 50
    assert spans[0][1] < spans[1][0] and spans[1][1] < spans[2][0]
    with pytest.raises(InputError, match="a window needs 100"):
        trace_windows(options, 100, 1, 1, 0)


def test_one_instant_never_falls_into_two_splits(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, *(f"j{i},{i // 4},5,1" for i in range(40)))
    ranges = split_rows(jobs, (50, 20, 30))
    assert ranges == [(0, 20), (20, 28), (28, 40)]
    assert split_rows(jobs, (46, 24, 30)) == [(0, 16), (16, 28), (28, 40)]


def test_long_and_early_jobs_are_left_out_and_reported(tmp_path: Path) -> None:
    rows = [f"p{i},1000,1,1,500,,LS,Succeeded,{i},{i + 5 + (1000 if i == 7 else 0)},{i}" for i in range(100)]
    jobs = write(tmp_path / "p.csv", OPENB_HEADER, *rows)
    options = openb_files(tmp_path, 3)
    options = TraceOptions(str(jobs), options.nodes, num_nodes=2, first_arrival_s=3)
    _, kept, report = trace_jobs(options)
    assert "p7" not in set(kept.frame["job"]) and len(kept) == 96
    assert report.dropped == {
        "run time above the trace's 99th percentile (5 s)": 1,
        "arrived before 3 s": 3,
    }


def test_traces_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXSCHED_TRACES", raising=False)
    with pytest.raises(InputError, match="or \\$JAXSCHED_TRACES"):
        scenario_pool(load_scenario("alibaba-16", trace={"num_nodes": 15}), "test", 1, 0)
    monkeypatch.setenv("JAXSCHED_TRACES", str(tmp_path))
    with pytest.raises(InputError, match=r"no file .*openb_node_list_all_node"):
        scenario_pool(load_scenario("alibaba-16", trace={"num_nodes": 14}), "test", 1, 0)


@needs_trace
def test_alibaba_16() -> None:
    scenario = load_scenario("alibaba-16")
    config, params, infos = scenario_pool(scenario, "test", 100, 0)
    assert config.num_nodes == 16 and config.num_jobs == 512 and 1 < len(infos) < 10
    assert [float(info.offered_load) for info in infos] == [1.2] * len(infos)
    assert int(np.asarray(params.pool.node_gpus[0]).max()) == 8 and not any(info.impossible for info in infos)
    report = scenarios.scenario_report(scenario)
    assert report.rows_read == 8152 and report.kept + sum(report.dropped.values()) == 8152
    assert any("99th percentile" in why for why in report.dropped)
