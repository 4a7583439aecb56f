"""The reference simulator against schedules worked by hand.

The names SIM-, PL- and PO- number well-known faults of schedulers and simulators; the right values
were worked by hand.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.reference.policies import all_policy_names, reference_policy, shadow
from tests.reference.resources import WHOLE, RefJob, RefNode
from tests.reference.simulator import Cluster, RefResult, run, simulate


def node(gpus: int, model: int | None = None, **resources: int) -> RefNode:
    return RefNode((1 if gpus else 0) if model is None else model, gpus, **resources)


def job(name: str, arrival: int, duration: int, num_gpu: int, milli: int = WHOLE, **more) -> RefJob:
    """A job that runs equally long on every model; ``estimate=`` where it is not the duration."""
    estimate = more.pop("estimate", duration)
    milli = milli if num_gpu else 0
    return RefJob(name, arrival, [duration] * 4, [estimate] * 4, num_gpu, milli, **more)


def times(nodes: list[RefNode], jobs: list[RefJob], name: str, **options) -> dict[str, tuple[int, int]]:
    results = simulate(nodes, jobs, reference_policy(name), **options)
    return {result.name: (result.start, result.finish) for result in results}


def start_all(cluster: Cluster, name: str) -> list[RefResult]:
    """Decide until the policy waits."""
    policy = reference_policy(name)
    while (choice := policy(cluster)) is not None:
        cluster.start(*choice)
    return cluster.results


@pytest.mark.parametrize("name", [n for n in all_policy_names() if "random" not in n])
def test_sim_01_base_case_under_every_policy(name):
    assert times([node(1)], [job("a", 0, 10, 1), job("b", 0, 10, 1)], name) == {"a": (0, 10), "b": (10, 20)}


def test_sim_02_release_comes_before_admission_in_one_second():
    assert times([node(1)], [job("a", 0, 10, 1), job("b", 10, 5, 1)], "fifo+first_fit")["b"] == (10, 15)
    three = [job("a", 0, 10, 1), job("b", 0, 10, 1), job("c", 10, 5, 2)]
    assert times([node(2)], three, "fifo-strict+first_fit")["c"] == (10, 15)


def test_sim_06_zero_second_job_frees_its_device_before_the_next_decision():
    jobs = [job("a", 0, 10, 1), job("z", 3, 0, 1), job("b", 3, 4, 1)]
    assert times([node(1)], jobs, "fifo+first_fit") == {"a": (0, 10), "z": (10, 10), "b": (10, 14)}


def test_sim_09_jobs_beyond_the_queue_wait_and_are_not_dropped():
    jobs = [job(f"j{i}", 0, 10, 1) for i in range(5)]
    cluster = Cluster([node(1)], jobs, queue=2)
    assert (cluster.visible, cluster.backlog) == ([0, 1], 3)
    run(cluster, reference_policy("fifo+first_fit"))
    assert [r.finish for r in cluster.results] == [10, 20, 30, 40, 50]
    assert cluster.job_ticks == sum([10, 20, 30, 40, 50])


def test_a_new_job_takes_the_lowest_free_slot():
    cluster = Cluster([node(1)], [job(f"j{i}", 0, 10, 1) for i in range(4)], queue=3)
    assert cluster.slots == [0, 1, 2]
    cluster.start(1, 0)
    assert cluster.slots == [0, 3, 2]


def test_sim_10_ends_when_the_last_job_ends():
    jobs = [job("a", 0, 100, 1), job("b", 0, 1000, 1)]
    assert times([node(2)], jobs, "fifo+first_fit") == {"a": (0, 100), "b": (0, 1000)}


def test_sim_12_long_idle_gap_costs_few_decisions():
    jobs = [job("a", 0, 10, 1), job("b", 10_000_000, 10, 1)]
    cluster = run(Cluster([node(1)], jobs), reference_policy("fifo+first_fit"))
    assert [r.finish for r in cluster.results] == [10, 10_000_010]
    assert cluster.decisions == 2 + 3  # two starts; waits for an end, an arrival, an end


def test_sim_13_gang_starts_all_or_nothing():
    jobs = [job("a", 0, 10, 1, instances=4), job("b", 0, 10, 1, instances=4)]
    assert times([node(2), node(2)], jobs, "fifo+first_fit") == {"a": (0, 10), "b": (10, 20)}


@pytest.mark.parametrize("bad", [job("big", 0, 10, 8), job("gang", 0, 10, 2, instances=3)])
def test_impossible_job_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=bad.name):
        Cluster([node(4), node(1)], [bad])


def test_waiting_with_nothing_to_happen_is_an_error():
    cluster = Cluster([node(1)], [job("a", 0, 10, 1)])
    with pytest.raises(RuntimeError, match="nothing"):
        cluster.wait()


def test_pl_01_fractions_do_not_pool_across_devices():
    jobs = [job("a", 0, 10, 1, 600), job("b", 0, 10, 1, 600), job("c", 0, 10, 1, 800)]
    assert times([node(2)], jobs, "fifo+best_fit") == {"a": (0, 10), "b": (0, 10), "c": (10, 20)}


@pytest.mark.parametrize(("placement", "start"), [("best_fit", 0), ("first_fit", 0), ("worst_fit", 10)])
def test_pl_02_two_halves_on_one_device(placement, start):
    jobs = [job("a", 0, 10, 1, 500), job("b", 0, 10, 1, 500), job("c", 0, 10, 1)]
    assert times([node(2)], jobs, f"fifo+{placement}")["c"] == (start, start + 10)


@pytest.mark.parametrize(("gpus", "milli", "fit"), [(8, 500, 16), (1, 43, 23)])
def test_pl_03_many_at_once_do_not_overfill(gpus, milli, fit):
    jobs = [job(f"p{i}", 0, 10, 1, milli) for i in range(fit + 1)]
    results = simulate([node(gpus)], jobs, reference_policy("fifo+best_fit"))
    assert [r.start for r in results] == [0] * fit + [10]
    on_device = [sum(r.parts[0][2][g] for r in results[:fit]) for g in range(gpus)]
    assert on_device == [fit // gpus] * gpus


def test_pl_04_release_is_exact_for_a_thousand_rounds():
    jobs = []
    for t in range(0, 15_000, 15):
        jobs += [*(job("p", t, 10, 1, 100) for _ in range(10)), job("w", t, 5, 1)]
    cluster = run(Cluster([node(1)], jobs), reference_policy("fifo+best_fit"))
    assert {r.start - r.arrival for r in cluster.results if r.name == "w"} == {10}
    assert cluster.free.gpu == [[1000]]


def test_pl_05_model_sets_are_obeyed():
    t4, v100m32, v100m16 = 0b0010, 0b0100, 0b1000
    jobs = [
        job("a", 0, 10, 1, models=t4),
        job("b", 0, 10, 1, models=v100m16 | v100m32),
        job("c", 1, 10, 1, models=v100m32),
        job("d", 1, 10, 1),
    ]
    found = times([node(2, 1), node(1, 2)], jobs, "fifo+first_fit")
    assert found == {"a": (0, 10), "b": (0, 10), "c": (10, 20), "d": (1, 11)}


def test_pl_06_a_failed_try_leaves_nothing_behind():
    jobs = [job("a", 0, 10, 1, cpu_milli=30_000), job("b", 0, 10, 1, cpu_milli=8_000)]
    cluster = Cluster([node(8, cpu_milli=32_000)], jobs)
    assert start_all(cluster, "fifo+first_fit")[1].start is None
    assert cluster.free.gpu[0].count(WHOLE) == 7
    assert run(cluster, reference_policy("fifo+first_fit")).results[1].start == 10


def test_pl_07_cpu_only_jobs_take_no_device_and_gpu_jobs_avoid_nodes_without():
    jobs = [job("c", 0, 10, 0), job("g", 0, 10, 1), job("h", 0, 10, 1)]
    results = simulate([node(0), node(1)], jobs, reference_policy("fifo+first_fit"))
    assert [(r.start, r.parts) for r in results] == [
        (0, [(0, 1, [])]),
        (0, [(1, 1, [1])]),
        (10, [(1, 1, [1])]),
    ]


def test_po_01_strict_against_skipping():
    jobs = [job("a", 0, 10, 1), job("b", 0, 10, 2), job("c", 0, 10, 1)]
    strict = times([node(2)], jobs, "fifo-strict+best_fit")
    assert strict == {"a": (0, 10), "b": (10, 20), "c": (20, 30)}
    assert times([node(2)], jobs, "fifo+best_fit") == {"a": (0, 10), "b": (10, 20), "c": (0, 10)}


def test_po_02_sjf_values_ties_and_no_preemption():
    jobs = [job("a", 0, 30, 1), job("b", 0, 10, 1), job("c", 0, 20, 1)]
    assert times([node(1)], jobs, "sjf+best_fit") == {"a": (30, 60), "b": (0, 10), "c": (10, 30)}
    assert times([node(1)], jobs, "fifo+best_fit") == {"a": (0, 30), "b": (30, 40), "c": (40, 60)}
    assert times([node(1)], [job("L", 0, 100, 1), job("s", 1, 1, 1)], "sjf+best_fit")["s"] == (100, 101)
    equal = simulate([node(1)], [job(x, 0, 5, 1) for x in "abcd"], reference_policy("sjf+best_fit"))
    assert [r.start for r in equal] == [0, 5, 10, 15]


def test_po_03_easy_does_not_delay_the_head():
    jobs = [job("a", 0, 10, 2), job("b", 1, 10, 4), job("c", 2, 8, 1), job("d", 3, 8, 1)]
    easy = times([node(4)], jobs, "fifo-easy+best_fit")
    assert easy == {"a": (0, 10), "b": (10, 20), "c": (2, 10), "d": (20, 28)}
    assert times([node(4)], jobs, "fifo+best_fit")["b"] == (11, 21)


def test_easy_lets_a_long_job_run_beside_the_reservation():
    # b will need 2 of the 4 devices at t = 10; c is long, but takes the one left over. d would take one more.
    jobs = [job("a", 0, 10, 3), job("b", 1, 10, 3), job("c", 2, 99, 1), job("d", 3, 99, 1)]
    easy = times([node(4)], jobs, "fifo-easy+best_fit")
    assert easy == {"a": (0, 10), "b": (10, 20), "c": (2, 101), "d": (20, 119)}


def test_easy_goes_by_estimates_and_expects_an_overdue_job_to_end_next_tick():
    # a was to end at 4 and runs on: at t = 5 the head is expected at 6, so d (two ticks) has to stay out
    # while c (one tick) may go.
    jobs = [job("a", 0, 10, 1, estimate=4), job("b", 1, 5, 2), job("c", 5, 1, 1), job("d", 5, 2, 1)]
    cluster = Cluster([node(2)], jobs)
    cluster.start(0, 0)
    cluster.wait()
    assert shadow(cluster, jobs[1])[0] == 4
    cluster.wait()
    assert shadow(cluster, jobs[1])[0] == 6
    run(cluster, reference_policy("fifo-easy+best_fit"))
    assert {r.name: r.start for r in cluster.results} == {"a": 0, "b": 10, "c": 5, "d": 15}


@pytest.mark.parametrize(
    ("name", "wide", "total"), [("fifo", 55, 164), ("fifo-strict", 10, 234), ("fifo-easy", 10, 234)]
)
def test_po_04_starvation_of_the_wide_job(name, wide, total):
    small = [job(f"s{k}", 5 * k, 10, 1) for k in range(10)]
    results = simulate([node(2)], [*small, job("W", 1, 10, 2)], reference_policy(f"{name}+best_fit"))
    assert next(r.start for r in results if r.name == "W") == wide
    assert sum(r.finish - r.arrival for r in results) == total


@pytest.mark.parametrize("name", [n for n in all_policy_names() if "random" not in n])
def test_po_08_zero_durations_and_cpu_only_jobs_blow_up_no_key(name):
    jobs = [job("a", 0, 0, 0), job("b", 0, 10, 1), job("c", 5, 0, 1)]
    assert times([node(1)], jobs, name) == {"a": (0, 0), "b": (0, 10), "c": (10, 10)}


def test_gang_fills_the_chosen_node_then_the_tightest():
    nodes = [node(2), node(3), node(2), node(1)]
    cluster = Cluster(nodes, [job("x", 0, 9, 1, models=0b10), job("g", 0, 9, 1, instances=6)])
    cluster.start(0, 1)  # node 1 has two free left: leftovers before the gang 1, 1, 1, 0
    cluster.start(1, 1)
    parts = cluster.results[1].parts
    assert parts == [(1, 2, [0, 1, 1]), (3, 1, [1]), (0, 2, [1, 1]), (2, 1, [1, 0])]


def test_gang_of_fractions_fills_the_tightest_devices_one_by_one():
    jobs = [job("x", 0, 9, 1, 300), job("y", 0, 9, 1, 500), job("g", 0, 9, 1, 220, instances=6)]
    cluster = Cluster([node(3), node(1)], jobs)
    cluster.start(0, 0, 1)
    cluster.start(1, 0, 2)  # free: 1000, 700, 500
    start_all(cluster, "fifo+worst_fit")  # a gang keeps the tightest devices whatever the policy
    assert cluster.results[2].parts == [(0, 6, [1, 3, 2])]
    assert cluster.free.gpu[0] == [780, 40, 60]


def test_gang_runs_at_its_slowest_node():
    gang = RefJob("g", 0, [0, 10, 25], [0, 8, 30], 1, WHOLE, instances=3)
    cluster = Cluster([node(2, 1), node(1, 2)], [gang])
    cluster.start(0, 0)
    assert (cluster.running[0].end, cluster.running[0].estimated_end) == (25, 30)


def test_the_reference_imports_neither_jax_nor_the_package():
    for path in (Path(__file__).parent / "reference").glob("*.py"):
        for found in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in found.names] if isinstance(found, ast.Import) else []
            names += [found.module or ""] if isinstance(found, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"jax", "jaxsched"}, path
