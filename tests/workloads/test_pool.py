"""Windows to worlds: exact ticks, ranks, run times, offered load, FGD's table, padding and int32 checks."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.types import NEVER, Order, Request
from jaxsched.workloads.fgd_classes import fgd_table, fgd_thresholds
from jaxsched.workloads.impossible import find_impossible
from jaxsched.workloads.keys import ranks, urgency
from jaxsched.workloads.pool import build_pool
from jaxsched.workloads.speeds import SpeedTable
from tests.workloads.tables import jobs_of, nodes_of

FULL = (
    "job,arrival_s,duration_s,num_gpu,gpu_milli,cpu_milli,gpu_spec,num_instances,class,estimate_s,deadline_s"
)


def world(params, name: str) -> list:
    return np.asarray(getattr(params.pool, name)[0]).tolist()


@pytest.mark.parametrize("offset", ["0", "12902960", "1596240000"])
def test_ticks_do_not_depend_on_the_origin(tmp_path: Path, offset: str) -> None:  # SIM-03
    jobs = jobs_of(tmp_path, f"a,{offset}.25,0.5,1", f"b,{offset}.5,0.5,1")
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)])
    assert world(params, "arrival") == [0, 25] and world(params, "run_time") == [[50, 50]] * 2
    assert (info.tick_s, info.origin_s, info.exact) == (
        Fraction(1, 100),
        Fraction(offset) + Fraction(1, 4),
        True,
    )
    whole = jobs_of(
        tmp_path, *(f"{n},{int(offset) + t},{d},1" for n, t, d in (("a", 0, 7), ("b", 1, 3), ("c", 2, 1)))
    )
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), whole)])
    assert world(params, "arrival") == [0, 1, 2] and info.tick_s == 1
    assert np.asarray(params.pool.rank[0, :, Order.SJF]).tolist() == [2, 1, 0]


def test_inexact_times_are_rounded_and_said(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "a,0,0.0001,1", "b,0.00190,0.00160,1", "c,0.0020,0,1")
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)])
    assert (info.tick_s, info.exact) == (Fraction(1, 1000), False)
    assert world(params, "arrival") == [0, 1, 2]
    assert [row[0] for row in world(params, "run_time")] == [1, 2, 0]


def test_unsorted_rows_and_ties(tmp_path: Path) -> None:  # TR-08
    jobs = jobs_of(tmp_path, "late,20,5,1", "early,0,10,1", "mid,5,10,1", "mid2,5,10,1")
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)])
    assert info.job_names == ("early", "mid", "mid2", "late") and info.table_row.tolist() == [1, 2, 3, 0]
    assert world(params, "arrival") == [0, 5, 5, 20]


def test_impossible_jobs_are_left_out(tmp_path: Path) -> None:  # SIM-07
    jobs = jobs_of(tmp_path, "big,0,10,8", "ok,1,10,2")
    _, params, (info,) = build_pool([(nodes_of((4, "T4"), (4, "T4")), jobs)])
    assert info.job_names == ("ok",) and world(params, "num_jobs") == 1 and world(params, "arrival") == [0]
    assert [(j.job, j.reason) for j in info.impossible] == [
        ("big", "needs 8 GPUs on one node, the largest node has 4")
    ]
    gang = jobs_of(tmp_path, "g,0,10,2,2", header="job,arrival_s,duration_s,num_gpu,num_instances")
    (job,) = find_impossible(gang, nodes_of((3, "T4"), (1, "T4")), ["", "T4"])
    assert job.reason == "all 2 instances must start together, the empty cluster holds 1"


@pytest.mark.parametrize(
    ("row", "possible"),
    [
        ("f,0,1,1,400,0,,10", True),  # 2 devices x 2 on each of 3 GPU nodes
        ("f,0,1,1,400,0,,13", False),
        ("c,0,1,0,0,4000,,8", True),  # CPU-only: 2 on each of 4 nodes
        ("c,0,1,0,0,4000,,9", False),
        ("t,0,1,2,1000,0,T4,2", True),
        ("t,0,1,2,1000,0,T4,3", False),
        ("s,0,1,0,0,9000,,1", False),
        ("u,0,1,0,0,100,T4,1", True),  # a model set binds CPU-only jobs too
        ("u,0,1,0,0,100,H900,1", False),
    ],
)
def test_capacity_of_the_empty_cluster(tmp_path: Path, row: str, possible: bool) -> None:
    header = "job,arrival_s,duration_s,num_gpu,gpu_milli,cpu_milli,gpu_spec,num_instances"
    nodes = nodes_of((2, "T4"), (2, "T4"), (2, "V100"), (0, ""), cpu_milli=8000)
    found = find_impossible(jobs_of(tmp_path, row, header=header), nodes, ["", "T4", "V100"])
    assert (found == []) is possible


def test_no_possible_job_is_an_empty_world(tmp_path: Path) -> None:
    config, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs_of(tmp_path, "big,5,10,8"))])
    assert world(params, "num_jobs") == 0 and config.num_jobs == 1
    assert world(params, "arrival") == [NEVER] and len(info.impossible) == 1


def test_run_times_on_each_model(tmp_path: Path) -> None:
    speeds = SpeedTable("t", ("lm",), {("lm", "V100"): Fraction("1.5"), ("lm", "T4"): Fraction("0.3")})
    rows = ("a,0,10,1,,,,,lm,20,", "cpu,0,10,0,,,,,lm,,", "other,0,10,1,,,,,x,,", "t4,0,3,1,,,T4,,lm,,")
    nodes = nodes_of((1, "V100"), (1, "T4"), (0, ""))
    _, params, (info,) = build_pool([(nodes, jobs_of(tmp_path, *rows, header=FULL))], speeds=speeds)
    assert info.models == ("", "T4", "V100") and info.classes == ("lm", "x")
    assert world(params, "node_model") == [2, 1, 0]
    assert world(params, "run_time") == [[10, 34, 7], [10, 10, 10], [10, 10, 10], [3, 10, 2]]
    assert world(params, "estimate")[0] == [20, 67, 14]
    assert world(params, "least_run_time") == [7, 10, 10, 10] and world(params, "least_estimate")[0] == 14
    assert [r[Request.MODELS] for r in world(params, "request")] == [0b111, 0b111, 0b111, 0b010]


def test_least_run_time_counts_only_models_of_the_world(tmp_path: Path) -> None:
    speeds = SpeedTable("t", (), {("*", "V100"): Fraction(2)})
    jobs = jobs_of(tmp_path, "a,0,10,1")
    _, params, infos = build_pool(
        [(nodes_of((1, "V100")), jobs), (nodes_of((1, "T4"), (0, "")), jobs)], speeds=speeds, models=("H100",)
    )
    assert infos[0].models == ("", "H100", "T4", "V100")
    assert np.asarray(params.pool.least_run_time)[:, 0].tolist() == [5, 10]


def test_static_ranks_by_hand() -> None:
    arrival, least = np.array([0, 1, 1, 9]), np.array([5, 3, 3, 1])
    milli, deadline = np.array([1000, 2000, 500, 0]), np.array([NEVER, 50, 40, NEVER])
    place = ranks(least, milli, arrival, deadline, Fraction(1))
    assert place[:, Order.FIFO].tolist() == [0, 1, 2, 3]
    assert place[:, Order.SJF].tolist() == [3, 1, 2, 0]
    assert place[:, Order.SAF].tolist() == [2, 3, 1, 0]  # 5000, 6000, 1500, 0
    assert place[:, Order.EDF].tolist() == [2, 1, 0, 3]
    keys = [math.log10(5), math.log10(3) * 2, math.log10(3), 0.0]
    f1 = [k + 870 * math.log10(s + 1) for k, s in zip(keys, arrival, strict=True)]
    assert place[:, Order.F1].tolist() == [sorted(f1).index(k) for k in f1]


def test_urgency_by_hand() -> None:
    values = urgency(np.array([10, 0]), np.array([4000, 470]))
    assert values[0].tolist() == pytest.approx([4 / 1000, 1 / (2 * 10)])
    assert values[1].tolist() == pytest.approx([1.0, 1.0])


def test_offered_load_by_hand(tmp_path: Path) -> None:
    speeds = SpeedTable("t", ("fast",), {("fast", "V100"): Fraction(3), ("fast", "T4"): Fraction(1)})
    header = "job,arrival_s,duration_s,num_gpu,gpu_milli,num_instances,class"
    rows = ("a,100,80,2,1000,1,fast", "b,150,100,1,500,2,slow", "c,200,50,0,0,1,fast")
    jobs, nodes = jobs_of(tmp_path, *rows, header=header), nodes_of((2, "V100"), (2, "T4"))
    _, _, (info,) = build_pool([(nodes, jobs)], speeds=speeds)
    # a: 2 x 80 s at mean speed (2 x 3 + 2 x 1) / 4 = 2: 80; b: 2 x 0.5 x 100 at speed 1: 100; c: none
    assert info.offered_load == Fraction(180, 4 * 100)
    _, params, (scaled,) = build_pool([(nodes, jobs)], speeds=speeds, load="0.9")
    assert (scaled.offered_load, scaled.load_factor) == (Fraction(9, 10), Fraction(1, 2))
    assert world(params, "arrival") == [0, 25, 50]


def test_compressed_arrivals_are_rounded_down_and_deadlines_move_along(tmp_path: Path) -> None:
    header = "job,arrival_s,duration_s,num_gpu,deadline_s"
    jobs = jobs_of(tmp_path, "a,10,7,1,30", "b,15,7,1,", "c,20,7,1,29", header=header)
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)], load=3)
    assert info.load_factor == Fraction(7, 10) and info.tick_s == 1
    assert world(params, "arrival") == [0, 3, 7] and world(params, "deadline") == [20, NEVER, 16]


def test_a_load_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot scale to load"):
        build_pool([(nodes_of((1, "T4")), jobs_of(tmp_path, "a,0,7,1"))], load=1)
    for wrong in (0, -1, "much", [1.0, 2.0]):
        with pytest.raises(InputError, match="load"):
            build_pool([(nodes_of((1, "T4")), jobs_of(tmp_path, "a,0,7,1", "b,1,7,1"))], load=wrong)


def test_fgd_classes_by_hand(tmp_path: Path) -> None:
    header = "job,arrival_s,duration_s,num_gpu,gpu_milli,cpu_milli,gpu_spec,num_instances"
    rows = ["a,0,1,1,500,4000,,12"] + ["b,0,1,1,500,8000,,1"] * 4 + ["c,0,1,0,0,8000,T4,1"] * 4
    jobs = jobs_of(tmp_path, *rows, "d,0,1,2,1000,1,,1", header=header)
    table, thresholds = fgd_table([jobs], ["", "T4"], 8)
    columns = [Request.INSTANCES, Request.NUM_GPU, Request.GPU_MILLI, Request.CPU_MILLI, Request.MODELS]
    # 12 + 4 + 4 of 21 are 95.2 %; equal counts and CPU: the larger share first
    assert table[:, columns].tolist() == [[12, 1, 500, 4000, 3], [4, 1, 500, 8000, 3], [4, 0, 0, 8000, 2]]
    assert table[:, Request.MEMORY_MIB].tolist() == [0, 0, 0]
    assert thresholds.tolist() == fgd_thresholds(20).tolist()


def test_fgd_thresholds_are_the_cut_points_of_the_score() -> None:
    total = 7
    cuts = fgd_thresholds(total)
    assert (cuts[49], cuts[99]) == (0, NEVER) and cuts.shape == (100,)
    assert cuts[59] == math.ceil(7000 * math.log(0.6 / 0.4)) == 2839
    for gain in (-40_000, -1, 0, 1, 2838, 2839, 30_000):
        assert int((gain >= cuts).sum()) == math.trunc(100 / (1 + math.exp(-gain / (1000 * total))))


def test_fgd_counts_stay_within_int32(tmp_path: Path) -> None:
    header = "job,arrival_s,duration_s,num_gpu,num_instances"
    jobs = jobs_of(tmp_path, "a,0,1,1,3000000", "b,0,1,2,1000000", header=header)
    table, thresholds = fgd_table([jobs], [""], 8)
    counts = table[:, Request.INSTANCES]
    assert counts[0] == pytest.approx(3 * counts[1], rel=1e-4) and 8000 * counts.sum() < 2**31
    assert thresholds[98] < NEVER


def test_padding_keeps_the_contents(tmp_path: Path) -> None:
    jobs, nodes = jobs_of(tmp_path, "a,0,10,1", "b,5,10,1", "c,5,3,1"), nodes_of((2, "T4"), (1, "V100"))
    _, plain, _ = build_pool([(nodes, jobs)])
    sizes = {"num_nodes": 5, "gpus_per_node": 4, "num_jobs": 7, "num_models": 6}
    config, padded, _ = build_pool([(nodes, jobs)], sizes=sizes)
    assert (config.num_nodes, config.gpus_per_node, config.num_jobs, config.num_models) == (5, 4, 7, 6)
    for name in ("node_cpu", "arrival", "request", "run_time", "rank", "urgency", "weight", "deadline"):
        small, large = np.asarray(getattr(plain.pool, name)), np.asarray(getattr(padded.pool, name))
        assert np.array_equal(large[tuple(slice(n) for n in small.shape)], small), name
    assert world(padded, "node_cpu")[2:] == [-1] * 3 and world(padded, "arrival")[3:] == [NEVER] * 4
    assert np.sort(np.asarray(padded.pool.rank[0]), axis=0).tolist() == [[i] * 5 for i in range(7)]
    with pytest.raises(InputError, match="num_jobs=2 is too small: the pool needs 3"):
        build_pool([(nodes, jobs)], sizes={"num_jobs": 2})
    with pytest.raises(InputError, match="unknown size 'num_job'; did you mean 'num_jobs'"):
        build_pool([(nodes, jobs)], sizes={"num_job": 9})


def test_worlds_of_different_size_share_one_shape(tmp_path: Path) -> None:
    one, two = jobs_of(tmp_path, "a,0,10,1"), jobs_of(tmp_path, "a,0,10.5,1", "b,5,10,1")
    config, params, infos = build_pool(
        [(nodes_of((1, "T4")), one), (nodes_of((2, "V100"), (4, "V100")), two)]
    )
    assert (config.num_nodes, config.gpus_per_node, config.num_jobs, config.num_models) == (2, 4, 2, 3)
    assert np.asarray(params.pool.num_jobs).tolist() == [1, 2]
    assert {info.tick_s for info in infos} == {Fraction(1, 10)} and float(params.tick_s) == pytest.approx(0.1)
    assert np.asarray(params.pool.run_time)[:, 0, 1].tolist() == [100, 105]


def test_large_numbers_are_exact_or_refused(tmp_path: Path) -> None:  # SIM-05
    header = "job,arrival_s,duration_s,num_gpu,cpu_milli"
    jobs = jobs_of(tmp_path, "a,0,12537496,1,1", "b,1,1,1,1", header=header)
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)])
    assert info.offered_load == 12_537_497 and world(params, "run_time")[0] == [12_537_496] * 2
    assert np.asarray(params.pool.rank[0, :, Order.SAF]).tolist() == [1, 0]
    huge = nodes_of((1, "T4"), cpu_milli=3_000_000_000)
    with pytest.raises(InputError, match="node_cpu holds 3000000000"):
        build_pool([(huge, jobs)])


def test_gang_wider_than_the_running_table(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "g,0,10,1,3", header="job,arrival_s,duration_s,num_gpu,num_instances")
    nodes = nodes_of((1, "T4"), (1, "T4"), (1, "T4"))
    config, _, _ = build_pool([(nodes, jobs)], running=3)
    assert config.max_parts == 3
    with pytest.raises(InputError, match="running=2 is too small"):
        build_pool([(nodes, jobs)], running=2)


def test_no_windows() -> None:
    with pytest.raises(InputError, match="no windows"):
        build_pool([])


def test_an_absurd_request_is_an_impossible_job(tmp_path: Path) -> None:
    header = "job,arrival_s,duration_s,num_gpu,cpu_milli"
    jobs = jobs_of(tmp_path, "a,0,10,1,9000000000", "b,1,5,1,1", header=header)
    _, params, (info,) = build_pool([(nodes_of((1, "T4")), jobs)])
    assert [j.job for j in info.impossible] == ["a"] and info.job_names == ("b",)
    assert np.asarray(params.fgd_class[:, Request.CPU_MILLI]).tolist() == [NEVER, 1]
