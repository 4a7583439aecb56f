"""openb pod lists: hand-written rows, and the counts of the real files (docs/traces.md)."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsched.errors import InputError
from jaxsched.workloads import load, read_nodes_csv
from jaxsched.workloads.demand import report_on
from jaxsched.workloads.readers.alibaba_2023 import read_pods, read_requests
from tests.workloads.tables import OPENB_HEADER, nodes_of, write

FOLDER = Path(os.environ.get("JAXSCHED_TRACES", "")) / "alibaba-gpu-2023"
needs_trace = pytest.mark.skipif(
    "JAXSCHED_TRACES" not in os.environ, reason="JAXSCHED_TRACES does not say where the real traces are"
)


def pods(folder: Path, *rows: str) -> Path:
    return write(folder / "pods.csv", OPENB_HEADER, *rows)


def test_pending_rows_are_dropped_and_counted(tmp_path: Path) -> None:  # TR-05, TR-06
    path = pods(
        tmp_path,
        "openb-a,4000,8192,1,470,,BE,Running,100,260,160",
        "openb-b,4000,8192,1,470,,BE,Pending,100,130,",
        "openb-c,8000,8192,1,230,,BE,Pending,500,500,",
    )
    jobs, report = load(path)
    job = jobs.frame.iloc[0]
    assert jobs.frame["job"].tolist() == ["openb-a"]
    assert (job["arrival_s"], job["duration_s"]) == (100, 100)  # not deletion - creation = 160
    assert "2 of 3 rows dropped: pending" in str(report)


def test_phases_and_censored_rows(tmp_path: Path) -> None:  # TR-06
    rows = [
        f"{p},1000,1,1,1000,,LS,{p},0,{end},0.0"
        for p, end in (("Running", 9), ("Failed", 5), ("Succeeded", 9))
    ]
    path = pods(tmp_path, *rows)
    jobs, report = read_pods(path)
    assert jobs.frame["job"].tolist() == ["Running", "Failed", "Succeeded"] and report.censored == 1
    assert read_pods(path, keep_failed=False)[1].dropped == {"failed": 1}
    without, report = read_pods(path, keep_censored=False)
    assert without.frame["job"].tolist() == ["Failed", "Succeeded"] and report.censored == 1


def test_wrong_times_are_dropped_and_counted(tmp_path: Path) -> None:  # TR-07
    path = pods(
        tmp_path,
        "a,600,1,1,1000,,LS,Succeeded,100,160.5,100",
        "b,600,1,1,1000,,LS,Failed,200,0,200",
        "c,600,1,1,1000,,LS,Running,300,,300",
        "d,600,1,1,1000,,LS,Succeeded,-792,-788,-792",
        "e,600,1,1,1000,,LS,Running,300,400,",
    )
    jobs, report = load(path)
    assert jobs.frame["duration_s"].tolist() == [Fraction(121, 2)]
    assert report.dropped == {
        "ended before it started": 1,
        "no deletion_time": 1,
        "arrived before the trace began": 1,
        "no scheduled_time": 1,
    }


def test_contradictions_name_the_row(tmp_path: Path) -> None:  # TR-11
    with pytest.raises(InputError, match="row 3: num_gpu 2, gpu_milli 500"):
        load(
            pods(
                tmp_path,
                "a,1,1,8,1000,,LS,Running,0,9,0",
                "b,1,1,2,500,,LS,Pending,0,9,",
                "c,1,1,2,500,,LS,Running,0,9,0",
            )
        )


def test_lists_without_times(tmp_path: Path) -> None:  # TR-09
    path = write(tmp_path / "m.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1000,1,2,1000")
    missing = "missing column creation_time, deletion_time, scheduled_time, pod_phase; .*cannot be replayed"
    with pytest.raises(InputError, match=missing):
        load(path)
    assert read_requests(path).frame["num_gpu"].tolist() == [2]


def test_classes_by_request(tmp_path: Path) -> None:
    shapes = ("0,0", "1,470", "1,1000", "8,1000")
    path = pods(tmp_path, *(f"p{i},1,1,{s},,LS,Running,0,9,0" for i, s in enumerate(shapes)))
    assert read_pods(path)[0].frame["class"].tolist() == ["cpu", "fraction", "single", "multi"]


def test_impossible_jobs_and_load_in_the_report(tmp_path: Path) -> None:  # TR-10, TR-14
    jobs, report = load(
        pods(
            tmp_path,
            "any,1,1,1,1000,nan,LS,Running,0,100,0",
            "t4,1,1,1,1000,T4|T4,LS,Running,100,200,100",
            "h900,1,1,1,1000,H900,LS,Running,100,200,100",
        )
    )
    full = report_on(report, jobs, nodes_of((1, "T4"), (1, "V100"), (0, "")))
    assert [(j.job, j.row) for j in full.impossible] == [("h900", 2)]
    assert "gpu_spec H900 is on no node; known models: T4, V100" in str(full)
    # 100 s apart: "any" puts 50 GPU-s on each model's 1 GPU x 100 s, "t4" another 100 on T4
    assert full.offered_load == {"T4": Fraction(3, 2), "V100": Fraction(1, 2)}


phase = st.sampled_from(["Running", "Failed", "Pending", "Succeeded"])
instant = st.sampled_from(["", "-5", "0", "10", "20.5"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(phase, instant, instant, instant), min_size=1, max_size=10),
    st.booleans(),
    st.booleans(),
)
def test_report_counts_add_up(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]], failed: bool, censored: bool
) -> None:
    lines = [f"p{i},1,1,1,500,,LS,{p},{c},{d},{s}" for i, (p, c, d, s) in enumerate(rows)]
    path = pods(tmp_path_factory.mktemp("pods"), *lines)
    jobs, report = read_pods(path, keep_failed=failed, keep_censored=censored)
    assert report.rows_read == len(rows) == report.kept + sum(report.dropped.values())
    assert (
        report.kept == len(jobs) and all(jobs.frame["duration_s"] >= 0) and all(jobs.frame["arrival_s"] >= 0)
    )


@needs_trace
def test_counts_of_the_default_list() -> None:
    jobs, report = load(FOLDER / "openb_pod_list_default.csv")
    assert (report.rows_read, report.kept, report.censored) == (8152, 7255, 34)
    assert list(report.dropped.values()) == [897]
    duration, gpus = jobs.frame["duration_s"], jobs.frame["num_gpu"]
    assert (duration.min(), duration.max(), int(duration.median())) == (4, 12_537_496, 616)
    assert int((gpus > 0).sum()) == 6203
    kept = read_pods(FOLDER / "openb_pod_list_default.csv", keep_censored=False)[0].frame
    assert int((kept["num_gpu"] > 0).sum()) == 6171


@needs_trace
@pytest.mark.parametrize(
    ("name", "impossible"),
    [
        ("default", []),
        ("gpuspec33", ["openb-pod-1639"]),
        ("gpuspec10", ["openb-pod-1639", "openb-pod-5724"]),
        ("cpu300", []),
    ],
)
def test_impossible_pods_of_the_real_lists(name: str, impossible: list[str]) -> None:
    nodes = read_nodes_csv(FOLDER / "openb_node_list_all_node.csv")
    jobs, report = load(FOLDER / f"openb_pod_list_{name}.csv")
    assert [j.job for j in report_on(report, jobs, nodes).impossible] == impossible


@needs_trace
def test_node_list_and_unsorted_and_timeless_lists() -> None:
    nodes = read_nodes_csv(FOLDER / "openb_node_list_all_node.csv").frame
    assert (len(nodes), int(nodes["gpu"].sum()), int((nodes["model"] == "").sum())) == (1523, 6212, 310)
    assert len(load(FOLDER / "openb_pod_list_gpushare40.csv")[0]) > 7000
    assert len(read_requests(FOLDER / "openb_pod_list_multigpu20.csv")) == 8324
    with pytest.raises(InputError, match="missing column creation_time"):
        load(FOLDER / "openb_pod_list_multigpu20.csv")
