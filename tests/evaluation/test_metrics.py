import json
from fractions import Fraction

import numpy as np
import pytest

from jaxsched.evaluation.metrics import (
    COLUMNS,
    bounded_slowdown,
    deadline_misses,
    fragmentation,
    gpu_allocation,
    jain_index,
    schedule_metrics,
)
from jaxsched.evaluation.timeline import cut, end_tick, node_timeline
from tests.evaluation.handmade import make_schedule, make_world, one_gpu_jobs

FGD = np.array([(1, 1000, 0, 0, 3, 3), (1, 500, 0, 0, 1, 3)], np.int32)


def test_columns_are_the_published_ones():
    world, schedule = one_gpu_jobs([(0, 10)])
    row = schedule_metrics(schedule, world, 1, "fifo+first_fit")
    assert tuple(row) == COLUMNS
    published = """policy jobs completed unfinished impossible mean_jct_s p50_jct_s p95_jct_s p99_jct_s
        max_jct_s mean_wait_s p95_wait_s max_wait_s mean_bounded_slowdown makespan_s throughput_jobs_per_h
        gpu_utilisation fragmentation jain_slowdown bound_jct_s gap_to_bound"""
    assert " ".join(COLUMNS[:21]) == " ".join(published.split())


def test_unfinished_jobs_are_counted_beside_the_mean():  # ME-01
    world, whole = one_gpu_jobs([(0, 10), (10, 20)])
    row = schedule_metrics(cut(whole, 15), world, 1, "p")
    assert (row["jobs"], row["completed"], row["unfinished"]) == (2, 1, 1)
    assert row["mean_jct_s"] == 10
    assert row["censored_mean_jct_s"] == 12.5
    assert row["gpu_utilisation"] == 1.0


def test_a_cut_schedule_is_the_run_that_stops_there():
    _, whole = one_gpu_jobs([(0, 10), (10, 20)])
    assert cut(whole, 20).finish.tolist() == [10, 20] and bool(cut(whole, 20).complete)
    early = cut(whole, 9)
    assert (early.start < 100).tolist() == [True, False]
    assert not bool(early.complete) and end_tick(early) == 9


def test_jobs_that_have_not_arrived_do_not_lower_the_censored_mean():
    world, whole = one_gpu_jobs([(0, 10), (50, 60)], arrivals=[0, 50])
    assert schedule_metrics(cut(whole, 8), world, 1, "p")["censored_mean_jct_s"] == 8


def test_nothing_finished_gives_empty_cells_not_nan():  # ME-02
    world, schedule = one_gpu_jobs([(0, None)], time=10)
    row = schedule_metrics(schedule, world, 1, "p")
    assert row["completed"] == 0
    assert all(row[c] is None for c in COLUMNS if "jct" in c and c != "censored_mean_jct_s")
    assert json.loads(json.dumps(row, allow_nan=False))["makespan_s"] is None


def test_bounded_slowdown():  # ME-03
    slowdown = bounded_slowdown(np.array([20.0, 5, 30]), np.array([0.0, 1, 10]))
    assert slowdown.tolist() == [2.0, 1.0, 4.0]
    assert np.mean(slowdown) == pytest.approx(2.3333, abs=1e-4)


def test_makespan_counts_from_the_first_arrival():  # ME-04
    world = make_world([(2, 1)], [(0, 1, 1000), (0, 1, 1000)])
    schedule = make_schedule(world, [(0, 100), (0, 100)], [(0, 0, {0: 1}), (1, 0, {1: 1})])
    row = schedule_metrics(schedule, world, 1, "p")
    assert row["makespan_s"] == 100
    assert row["throughput_jobs_per_h"] == pytest.approx(0.02 * 3600)


def test_an_eight_gpu_job_fills_an_eight_gpu_node_once():  # ME-05
    world = make_world([(8, 1), (0, 0)], [(0, 8, 1000)])
    schedule = make_schedule(world, [(0, 10)], [(0, 0, dict.fromkeys(range(8), 1))])
    assert gpu_allocation(node_timeline(schedule, world), world) == {"all": 1.0, 1: 1.0}


def test_finish_and_start_at_one_moment_never_pass_one():  # ME-05 with SIM-02
    world, schedule = one_gpu_jobs([(0, 10), (10, 20)], arrivals=[0, 10])
    timeline = node_timeline(schedule, world)
    assert timeline.free_gpu[timeline.duration > 0].min() >= 0
    assert gpu_allocation(timeline, world)["all"] == 1.0


def test_allocation_is_weighted_by_time_and_split_by_model():
    world = make_world([(1, 1), (1, 2)], [(0, 1, 1000), (0, 1, 500)])
    schedule = make_schedule(world, [(0, 10), (0, 5)], [(0, 0, {0: 1}), (1, 1, {0: 1})])
    shares = gpu_allocation(node_timeline(schedule, world), world)
    assert shares == {"all": (10 + 2.5) / 20, 1: 1.0, 2: 0.25}


def test_a_cluster_without_gpus_has_no_utilisation():
    world = make_world([(0, 0)], [(0, 0, 0)])
    row = schedule_metrics(make_schedule(world, [(0, 5)], [(0, 0, {})]), world, 1, "p", fgd_class=FGD)
    assert row["gpu_utilisation"] is None and row["fragmentation"] is None
    assert row["mean_jct_s"] == 5


def test_tick_scales_every_time():
    world, schedule = one_gpu_jobs([(0, 250), (250, 500)])
    row = schedule_metrics(schedule, world, Fraction(1, 10), "p")
    assert (row["mean_jct_s"], row["max_wait_s"], row["makespan_s"]) == (37.5, 25.0, 50.0)
    assert row["mean_bounded_slowdown"] == (1 + 2) / 2


def test_sums_of_gpu_time_do_not_overflow():
    world = make_world([(8, 1)] * 40, [(0, 1, 1000)])
    schedule = make_schedule(world, [(0, 2**30)], [(0, 0, {0: 1})])
    assert schedule_metrics(schedule, world, 1, "p", fgd_class=FGD)["gpu_utilisation"] == pytest.approx(
        1 / 320
    )


def test_fragmentation_is_the_time_average_of_fgd():
    # Half a device is taken for the first half of the time: 3 of 4 typical jobs cannot use the other half.
    world = make_world([(1, 1)], [(0, 1, 500), (5, 1, 1000)])
    schedule = make_schedule(world, [(0, 5), (5, 10)], [(0, 0, {0: 1}), (1, 0, {0: 1})])
    assert fragmentation(node_timeline(schedule, world), world, FGD) == pytest.approx(
        (0.75 * 500 * 5) / (1000 * 10)
    )


def test_fragmentation_counts_models_and_cores_that_shut_a_class_out():
    world = make_world([(1, 1, 1000), (1, 2, 1000)], [(0, 0, 0, 1, 0)])
    schedule = make_schedule(world, [(0, 10)], [(0, 0, {})])
    only_model_2 = np.array([(1, 1000, 0, 0, 1, 0b100)], np.int32)
    too_many_cores = np.array([(1, 1000, 2000, 0, 1, 0b111)], np.int32)
    cpu_only = np.array([(0, 0, 1, 0, 1, 0b111)], np.int32)
    timeline = node_timeline(schedule, world)
    assert fragmentation(timeline, world, only_model_2) == 0.5
    assert fragmentation(timeline, world, too_many_cores) == 1.0
    assert fragmentation(timeline, world, cpu_only) == 1.0


def test_a_gang_holds_its_instances_on_every_node():
    world = make_world([(2, 1), (2, 1)], [(0, 1, 400, 5, 1000)])
    schedule = make_schedule(world, [(0, 10)], [(0, 0, {0: 2, 1: 1}), (0, 1, {0: 2})])
    timeline = node_timeline(schedule, world)
    held = timeline.duration > 0
    assert timeline.free_gpu[held].tolist() == [[200, 600], [200, 1000]]
    assert timeline.free_cpu[held].tolist() == [61_000, 62_000]


def test_jain_index():
    assert jain_index(np.array([1.0, 1.0])) == 1.0
    assert jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain_index(np.array([])) is None


def test_deadline_misses():
    world, schedule = one_gpu_jobs([(0, 10), (10, 20)])
    assert deadline_misses(schedule, world) is None
    dated = world.replace(deadline=np.array([10, 19], np.int32))
    assert deadline_misses(schedule, dated) == 1
    assert deadline_misses(cut(schedule, 18), dated) == 0  # still in time when the run stops
    assert deadline_misses(cut(schedule, 15), dated.replace(deadline=np.array([10, 14], np.int32))) == 1
