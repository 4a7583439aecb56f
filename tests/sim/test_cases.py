"""The compiled simulator against schedules worked by hand.

The names SIM- and PL- number well-known faults of simulators: what each test holds went wrong somewhere.
"""

from __future__ import annotations

from fractions import Fraction

import jax
import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.policies.library import Policy, get_policy, list_policies
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import num_actions
from jaxsched.sim.rollout import run
from jaxsched.types import NEVER, Order
from jaxsched.workloads.pool import build_pool
from jaxsched.workloads.readers.native import read_jobs_csv
from tests.small_runs import KEY, by_name, job, node, schedule, small, times, walk
from tests.workloads.tables import nodes_of
from tests.worlds import Sizes

FIFO, STRICT = "fifo+best_fit", "fifo-strict+best_fit"
MANY = Sizes(nodes=4, gpus=8, jobs=11_000)


def loaded(folder, lines, nodes, policy=FIFO, header="job,arrival_s,duration_s,num_gpu"):
    """Schedule of a CSV job table in exact seconds of its own clock, by job name, and what was left out."""
    path = folder / "jobs.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    config, params, (info,) = build_pool([(nodes, read_jobs_csv(path)[0])], queue=8, running=16)
    chosen = get_policy(policy)
    s = jax.tree.map(np.asarray, run(chosen, chosen.default_params, KEY, params, 0, config))
    assert s.complete
    exact = {
        name: tuple(info.origin_s + int(tick[row]) * info.tick_s for tick in (s.start, s.finish))
        for row, name in enumerate(info.job_names)
    }
    return exact, info


@pytest.mark.parametrize("name", ["spt_pair", *(n for n in list_policies() if n.endswith("+best_fit"))])
def test_sim_01_base_case_under_every_policy(name):
    assert times([node(1)], [job("a", 0, 10, 1), job("b", 0, 10, 1)], name) == {"a": (0, 10), "b": (10, 20)}


def test_sim_02_release_comes_before_admission_in_one_second():
    jobs = [job("a", 0, 10, 1), job("b", 10, 5, 1)]
    assert times([node(1)], jobs, FIFO)["b"] == (10, 15)
    three = [job("a", 0, 10, 1), job("b", 0, 10, 1), job("c", 10, 5, 2)]
    assert times([node(2)], three, STRICT)["c"] == (10, 15)
    assert min(s.free_gpu.min() for s in walk([node(2)], three, STRICT)) == 0


@pytest.mark.parametrize("offset", [0, 12_902_960, 1_596_240_000])
def test_sim_03_the_origin_of_time_does_not_matter(tmp_path, offset):
    exact, info = loaded(tmp_path, [f"a,{offset}.25,0.5,1", f"b,{offset}.5,0.5,1"], nodes_of((1, "T4")))
    start = offset + Fraction(1, 4)
    assert exact == {"a": (start, start + Fraction(1, 2)), "b": (start + Fraction(1, 2), start + 1)}
    assert info.tick_s == Fraction(1, 100)
    lines = [f"a,{offset},7,1", f"b,{offset + 1},3,1", f"c,{offset + 2},1,1"]
    exact, _ = loaded(tmp_path, lines, nodes_of((1, "T4")), "sjf+best_fit")
    assert {k: (s - offset, f - offset) for k, (s, f) in exact.items()} == {
        "a": (0, 7),
        "b": (8, 11),
        "c": (7, 8),
    }


@pytest.mark.parametrize("step", [3, 6])
def test_sim_04_small_steps_of_a_large_clock_add_up(step):
    """A thousand steps of 0.3 or 0.6 s, the clock being at 12 900 000 s: float32 would stand still or run away."""
    origin = 129_000_000  # ticks of 0.1 s
    jobs = [job("first", 0, 1, 1)]
    jobs += [job(f"j{i}", origin + step * i, 0, 1) for i in range(1, 1001)]
    s = schedule([node(1)], jobs, FIFO, sizes=MANY)
    assert s.time == origin + 1000 * step
    assert (s.finish[1:1001] == origin + step * np.arange(1, 1001)).all()


def test_sim_05_large_products_do_not_wrap(tmp_path):
    lines = ["long,0,12537496,1", "tiny,0,5,1"]
    exact, info = loaded(tmp_path, lines, nodes_of((1, "T4")), "saf+best_fit")
    assert exact == {"tiny": (0, 5), "long": (5, 12_537_501)}  # 1000 * 12 537 496 is negative in 32 bits
    assert info.jobs.frame["duration_s"].tolist() == [12_537_496, 5]
    with pytest.raises(InputError, match=r"2\^30"):
        loaded(tmp_path, ["huge,0,3000000000,1"], nodes_of((1, "T4")))


def test_sim_06_zero_second_job_frees_its_device_before_the_next_decision():
    jobs = [job("a", 0, 10, 1), job("z", 3, 0, 1), job("b", 3, 4, 1)]
    assert times([node(1)], jobs, FIFO) == {"a": (0, 10), "z": (10, 10), "b": (10, 14)}


@pytest.mark.parametrize("blocking", ["", "-strict", "-easy"])
@pytest.mark.parametrize("order", [order.name.lower() for order in Order])
def test_sim_07_impossible_jobs_are_reported_and_block_nobody(tmp_path, order, blocking):
    exact, info = loaded(
        tmp_path, ["big,0,10,8", "ok,1,10,2"], nodes_of((4, "T4"), (4, "T4")), f"{order}{blocking}+best_fit"
    )
    assert exact == {"ok": (1, 11)}
    assert [bad.job for bad in info.impossible] == ["big"]


def test_sim_07_gang_that_fits_in_total_but_not_in_pieces(tmp_path):
    header = "job,arrival_s,duration_s,num_gpu,num_instances"
    nodes = nodes_of((3, "T4"), (1, "T4"))
    exact, info = loaded(tmp_path, ["g,0,10,2,2", "ok,1,10,2,1"], nodes, STRICT, header)
    assert exact == {"ok": (1, 11)}
    assert [bad.job for bad in info.impossible] == ["g"]


def always_wait(policy_params, key, cluster, params):
    return np.int32(num_actions(cluster.state) - 1)


def test_sim_08_waiting_with_nothing_to_come():
    config, params = small([node(1)], [job("a", 0, 10, 1)])
    stuck = run(Policy(always_wait, "always_wait"), (), KEY, params, 0, config)
    assert not stuck.complete and int(stuck.time) == 0 and int(stuck.start[0]) == NEVER

    env = ClusterEnv(config)
    observation, state = env.reset(KEY, params)
    assert not observation.action_mask[config.wait_action]
    _, after, reward, terminated, truncated, info = env.step(KEY, state, config.wait_action, params)
    assert info["illegal_action"] and reward == 0 and not terminated and not truncated
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a == b).all(), state, after)))


def test_sim_09_jobs_beyond_the_queue_wait_and_are_not_dropped():
    jobs = [job(f"j{i}", 0, 10, 1) for i in range(5)]
    s = schedule([node(1)], jobs, FIFO, queue=2)
    assert s.finish[:5].tolist() == [10, 20, 30, 40, 50]
    assert s.queue_bound == 3 and s.complete
    assert schedule([node(1)], jobs, FIFO).queue_bound == 0


def test_sim_10_ends_when_the_last_job_ends():
    jobs = [job("a", 0, 100, 1), job("b", 0, 1000, 1)]
    s = schedule([node(2)], jobs, FIFO)
    assert s.finish[:2].tolist() == [100, 1000] and s.time == 1000


def test_sim_11_times_are_not_rounded_to_anything(tmp_path):
    exact, _ = loaded(tmp_path, ["a,1,61,1"], nodes_of((1, "T4")))
    assert exact == {"a": (1, 62)}


def test_sim_12_long_idle_gap_costs_no_steps():
    s = schedule([node(1)], [job("a", 0, 10, 1), job("b", 10_000_000, 10, 1)], FIFO)
    assert s.finish[:2].tolist() == [10, 10_000_010]
    assert s.events == 6  # two arrivals, starts and ends


def test_sim_13_gang_starts_all_or_nothing():
    nodes = [node(2), node(2)]
    jobs = [job("a", 0, 10, 1, instances=4), job("b", 0, 10, 1, instances=4)]
    got = by_name(schedule(nodes, jobs, FIFO), jobs)
    assert [got["a"][:2], got["b"][:2]] == [(0, 10), (10, 20)]
    assert [part[:2] for part in got["b"][2]] == [(0, 2), (1, 2)]
    for state in walk(nodes, jobs):
        assert set(state.run_job.tolist()) in ({-1}, {-1, 0}, {-1, 1})  # never both


def test_pl_01_fractions_do_not_pool_across_devices():
    jobs = [job("a", 0, 10, 1, 600), job("b", 0, 10, 1, 600), job("c", 0, 10, 1, 800)]
    assert times([node(2)], jobs, FIFO) == {"a": (0, 10), "b": (0, 10), "c": (10, 20)}


@pytest.mark.parametrize(("placement", "start"), [("best_fit", 0), ("first_fit", 0), ("worst_fit", 10)])
def test_pl_02_two_halves_on_one_device(placement, start):
    jobs = [job("a", 0, 10, 1, 500), job("b", 0, 10, 1, 500), job("c", 0, 10, 1)]
    assert times([node(2)], jobs, f"fifo+{placement}")["c"] == (start, start + 10)


@pytest.mark.parametrize(("gpus", "milli", "fit"), [(8, 500, 16), (1, 43, 23)])
def test_pl_03_many_at_once_do_not_overfill(gpus, milli, fit):
    jobs = [job(f"p{i}", 0, 10, 1, milli) for i in range(fit + 1)]
    s = schedule([node(gpus)], jobs, FIFO)
    assert s.start[: fit + 1].tolist() == [0] * fit + [10]
    assert s.part_devices[:fit].sum(0).tolist() == [fit // gpus] * gpus + [0] * (8 - gpus)
    for state in walk([node(gpus)], jobs):  # after each single placement, not only after the burst
        assert state.free_gpu.min() >= 0


def test_pl_04_release_is_exact_for_a_thousand_rounds():
    jobs = []
    for t in range(0, 15_000, 15):
        jobs += [*(job("p", t, 10, 1, 100) for _ in range(10)), job("w", t + 1, 5, 1)]
    s = schedule([node(1)], jobs, FIFO, sizes=MANY)
    wide = np.arange(10, 11_000, 11)
    assert (s.start[wide] == 15 * np.arange(1000) + 10).all()


def test_pl_04_what_is_free_at_the_end_is_the_capacity():
    jobs = [*(job("p", 0, 10, 1, 100) for _ in range(10)), job("w", 1, 5, 1)]
    *_, last = walk([node(1)], jobs)
    assert last.free_gpu[0].tolist() == [1000, 0, 0, 0, 0, 0, 0, 0]


def test_pl_05_model_constraint():
    t4, v16, v32 = 0b0010, 0b0100, 0b1000
    nodes = [node(2, 1), node(1, 3)]
    jobs = [
        job("a", 0, 10, 1, models=t4),
        job("b", 0, 10, 1, models=v16 | v32),
        job("c", 1, 10, 1, models=v32),
        job("d", 1, 10, 1),
    ]
    got = by_name(schedule(nodes, jobs, FIFO), jobs)
    assert [got[k][:2] for k in "abcd"] == [(0, 10), (0, 10), (10, 20), (1, 11)]
    assert [got[k][2][0][0] for k in "abcd"] == [0, 1, 1, 0]


def test_pl_06_second_resource_and_nothing_left_behind():
    nodes = [node(8, cpu_milli=32_000)]
    jobs = [job("a", 0, 10, 1, cpu_milli=30_000), job("b", 0, 10, 1, cpu_milli=8000)]
    assert times(nodes, jobs, FIFO) == {"a": (0, 10), "b": (10, 20)}
    busy = [s for s in walk(nodes, jobs) if (s.run_job == 0).any()]
    assert busy and all((s.free_gpu == 1000).sum() == 7 and s.free_cpu[0] == 2000 for s in busy)


def test_pl_07_cpu_only_jobs_and_nodes_without_gpus():
    nodes = [node(0), node(1)]
    jobs = [job("c", 0, 10, 0), job("g", 0, 10, 1), job("h", 0, 10, 1)]
    config, params = small(nodes, jobs)
    mask = np.asarray(ClusterEnv(config).reset(KEY, params)[0].action_mask)[:-1].reshape(8, 4)
    assert mask[:3].tolist() == [
        [True, True, False, False],
        [False, True, False, False],
        [False, True, False, False],
    ]
    assert not mask[3:].any()
    got = by_name(schedule(nodes, jobs, FIFO), jobs)
    assert [got[k][:2] for k in "cgh"] == [(0, 10), (0, 10), (10, 20)]
    assert sum(got["c"][2][0][2]) == 0 and [got[k][2][0][0] for k in "gh"] == [1, 1]
