"""Rewards against the schedule they are meant to price, and against numbers worked by hand."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.reward import REWARDS
from jaxsched.testing import random_action
from jaxsched.types import NEVER, EnvConfig
from tests.reference.simulator import Cluster
from tests.reference.workloads import random_workload
from tests.small_runs import KEY, job, node, small
from tests.worlds import Sizes, params_of, world_of

SIZES = Sizes()
CONFIG = EnvConfig(
    num_nodes=4, gpus_per_node=4, num_jobs=10, num_models=4, queue=3, running=64, offer_wait=True
)
WAIT = CONFIG.wait_action
ENVS = {name: ClusterEnv(CONFIG, name) for name in REWARDS}
RESET_TO = jax.jit(ENVS["jct"].reset_to)


@jax.jit
def step_all(state, action, params):
    """One decision priced by every reward: state, rewards by name, terminated, info."""
    outcomes = {name: env.step_env(KEY, state, action, params) for name, env in ENVS.items()}
    _, after, _, terminated, _, info = outcomes["jct"]
    return after, {name: outcome[2] for name, outcome in outcomes.items()}, terminated, info


@jax.jit
def choose(key, state, params):
    return random_action(key, ENVS["jct"].action_mask(state, params))


def episode(params, world, workload, seed):
    """A random episode: undiscounted sums and discounted returns by reward, sum of job_ticks, reference results."""
    state, done, decision, discount = RESET_TO(world, params), False, 0, 1.0
    cluster = Cluster(workload.nodes, workload.jobs, queue=CONFIG.queue)
    sums = dict.fromkeys(REWARDS, 0.0)
    job_ticks = 0
    while not done:
        action = choose(jax.random.fold_in(jax.random.key(seed), decision), state, params)
        follow(cluster, int(action))
        state, rewards, done, info = step_all(state, action, params)
        sums = {name: total + discount * float(rewards[name]) for name, total in sums.items()}
        discount *= float(info["discount"])
        job_ticks += int(info["job_ticks"])
        decision += 1
    assert cluster.done
    return sums, job_ticks, cluster.results


def follow(cluster, action):
    if action == WAIT:
        cluster.wait()
    else:
        slot, node_index = divmod(action, CONFIG.num_nodes)
        cluster.start(cluster.slots[slot], node_index)
    while not cluster.done and not cluster.legal_pairs():
        cluster.wait()


@pytest.fixture(scope="module")
def workloads():
    return [random_workload(seed) for seed in range(300, 400)]


@pytest.fixture(scope="module")
def pool(workloads):
    worlds = [world_of(w.nodes, w.jobs, SIZES) for w in workloads]
    return params_of(worlds, workloads[0].jobs, SIZES)


def test_undiscounted_returns_are_the_objectives(pool, workloads):  # ME-07
    for world, workload in enumerate(workloads):
        sums, job_ticks, results = episode(pool, world, workload, world)
        least = np.asarray(pool.pool.least_run_time[world])[: len(results)]
        weight = np.array([j.weight for j in workload.jobs])
        deadline = np.array([j.deadline for j in workload.jobs])
        finish = np.array([r.finish for r in results])
        jct = finish - [r.arrival for r in results]
        assert job_ticks == jct.sum()  # integers: exactly
        assert sums["jct"] == -jct.sum()
        assert sums["immediate"] == -(jct - least).sum()  # the same but for a constant of the world
        assert sums["weighted"] == -(weight * jct).sum()
        assert sums["makespan"] == -finish.max()
        assert sums["deadline"] == -weight[(deadline != NEVER) & (finish > deadline)].sum()
        assert sums["slowdown"] == pytest.approx(-np.maximum(1, jct / np.maximum(least, 10)).sum(), rel=1e-5)


def test_discounted_returns_add_up_over_transitions(pool, workloads):
    """However the episode is cut into transitions: the integral of n e^(-beta t), in closed form per job."""
    beta, tick = 0.05, 0.5
    params = pool.replace(beta=jnp.float32(beta), tick_s=jnp.float32(tick), reward_scale=jnp.float32(4))
    for world in range(10):
        sums, _, results = episode(params, world, workloads[world], world)
        start = [math.exp(-beta * tick * r.arrival) for r in results]
        end = [math.exp(-beta * tick * r.finish) for r in results]
        in_system = sum(a - b for a, b in zip(start, end, strict=True)) / beta
        weight = [
            j.weight * tick * (r.finish - r.arrival)
            for j, r in zip(workloads[world].jobs, results, strict=True)
        ]
        assert sums["jct"] == pytest.approx(-in_system / 4, rel=1e-4, abs=1e-5)
        assert sums["weighted"] == pytest.approx(-np.dot(weight, end) / 4, rel=1e-4, abs=1e-5)
        until = math.exp(-beta * tick * max(r.finish for r in results))
        assert sums["makespan"] == pytest.approx(-(1 - until) / beta / 4, rel=1e-4, abs=1e-5)


def hand(nodes, jobs, **changes):
    params = small(nodes, jobs, queue=3, sizes=SIZES)[1]
    return params.replace(**{name: jnp.float32(value) for name, value in changes.items()})


def play(name, params, *pairs):
    """Rewards and discounts when jobs are started in this order, each a (job row, node)."""
    state, answers = RESET_TO(0, params), []
    for row, node_index in pairs:
        slot = state.queue.tolist().index(row)
        state, rewards, _, info = step_all(state, jnp.int32(slot * CONFIG.num_nodes + node_index), params)
        assert not info["illegal_action"]
        answers.append((float(rewards[name]), float(info["discount"])))
    return answers


def test_two_equal_jobs_cost_thirty():  # ME-07
    params = hand([node(1)], [job("a", 0, 10, 1), job("b", 0, 10, 1)])
    assert [r for r, _ in play("jct", params, (0, 0), (1, 0))] == [-20, -10]


def test_events_inside_one_transition_are_discounted_from_its_beginning():
    """One job in [0, 1) s, two in [1, 1.5), three in [1.5, 5) s; then the second begins, the third waiting."""
    jobs = [job("a", 0, 10, 1), job("b", 2, 10, 1), job("c", 3, 10, 1)]
    beta = 0.1
    params = hand([node(1)], jobs, tick_s=0.5, beta=beta, reward_scale=7)
    (first, after_first), (second, after_second), _ = play("jct", params, (0, 0), (1, 0), (2, 0))
    e = {t: math.exp(-beta * t) for t in (1, 1.5, 5)}
    assert first == pytest.approx(
        -((1 - e[1]) + 2 * (e[1] - e[1.5]) + 3 * (e[1.5] - e[5])) / beta / 7, rel=1e-6
    )
    assert second == pytest.approx(-2 * (1 - e[5]) / beta / 7, rel=1e-6)
    assert after_first == after_second == pytest.approx(e[5], rel=1e-6)


def test_starts_within_one_instant_are_not_discounted():
    params = hand([node(2)], [job("a", 0, 10, 1), job("b", 0, 10, 1)], beta=0.1)
    (reward, discount), (_, later) = play("jct", params, (0, 0), (1, 0))
    assert (reward, discount) == (0, 1) and later == pytest.approx(math.exp(-1))


def slow(name, arrival, **more):
    """Ten ticks on model 1, four on model 2."""
    return dataclasses.replace(
        job(name, arrival, 10, 1, **more),
        duration_by_model=[10, 10, 4, 10],
        estimate_by_model=[10, 10, 4, 10],
    )


def test_immediate_charges_a_slow_node_at_the_start_and_waiting_as_it_passes():
    params = hand([node(1, 1), node(1, 2)], [slow("a", 0), slow("b", 1), slow("c", 2)])
    rewards = [r for r, _ in play("immediate", params, (0, 0), (1, 1), (2, 1))]
    # a on the slow node: 6 too long. b on the fast one, 1-5, while c waits 2-5. c on the fast one, 5-9.
    assert rewards == [-6, -3, 0]


def test_immediate_charges_a_gang_by_its_slowest_node():
    params = hand([node(1, 1), node(1, 2)], [slow("g", 0, instances=2), job("z", 0, 0, 0)])
    assert (
        play("immediate", params, (0, 1))[0][0] == -6
    )  # first node fast, the other instance on the slow one


def test_energy_counts_a_used_device_in_full_and_an_idle_one_at_rest():
    power = jnp.zeros((4, 2), jnp.float32).at[1].set(jnp.array([10.0, 100.0]))
    jobs = [job("a", 0, 10, 1, 500), job("b", 15, 5, 2)]
    params = hand([node(2), node(0)], jobs).replace(power_w=power)
    assert [r for r, _ in play("energy", params, (0, 0), (1, 0))] == [-(10 * 110 + 5 * 20), -5 * 200]


def test_lumps_by_hand():
    """a 0-10, b 10-40, c 40-41: their costs fall due as each ends."""
    jobs = [
        job("a", 0, 10, 1, weight=2.0, deadline=10),
        job("b", 0, 30, 1, weight=3.0, deadline=39),
        job("c", 0, 1, 1, weight=5.0),
    ]
    params = hand([node(1)], jobs)
    in_order = (0, 0), (1, 0), (2, 0)
    assert [r for r, _ in play("weighted", params, *in_order)] == [-20, -120, -205]
    assert [r for r, _ in play("deadline", params, *in_order)] == [0, -3, 0]
    slowdowns = [r for r, _ in play("slowdown", params, *in_order)]
    assert slowdowns == pytest.approx([-1, -40 / 30, -41 / 10])
    assert [r for r, _ in play("makespan", params, *in_order)] == [-10, -30, -1]
