"""The contract of ``ClusterEnv``: masks, illegal actions, auto-reset, endings, types, batching."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.reward import REWARDS
from jaxsched.testing import (
    assert_invariants,
    assert_same_types,
    assert_single_trace,
    check_env,
    random_action,
)
from jaxsched.types import EnvConfig
from tests.reference.simulator import Cluster as RefCluster
from tests.reference.workloads import random_workload
from tests.small_runs import KEY, job, node, small
from tests.worlds import Sizes, params_of, world_of

SIZES = Sizes()
WORKLOADS = [random_workload(seed) for seed in range(12)]
CONFIG = EnvConfig(num_nodes=4, gpus_per_node=4, num_jobs=10, num_models=4, queue=3, running=64)
ENV = ClusterEnv(CONFIG)
WAIT = CONFIG.wait_action
STEP_ENV = jax.jit(ENV.step_env)
STEP = jax.jit(ENV.step)
RESET = jax.jit(ENV.reset)
RESET_MANY = jax.jit(jax.vmap(ENV.reset, in_axes=(0, None)))
RESET_TO = jax.jit(ENV.reset_to)
OBSERVE = jax.jit(ENV.observe)


@pytest.fixture(scope="module")
def pool():
    worlds = [world_of(w.nodes, w.jobs, SIZES) for w in WORKLOADS]
    return params_of(worlds, [j for w in WORKLOADS for j in w.jobs][:5], SIZES)


def hand(nodes, jobs):
    """Parameters of one hand-made world in the shape of ``CONFIG``."""
    return small(nodes, jobs, queue=3, sizes=SIZES)[1]


def same(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((np.asarray(x) == np.asarray(y)).all()), a, b)))


def random_mask_walk(params, world, steps):
    """States and masks of a random episode without auto-reset, with the actions between them."""
    state = RESET_TO(world, params)
    for i in range(steps):
        mask = np.asarray(OBSERVE(state, params).action_mask)
        action = int(random_action(jax.random.fold_in(KEY, 100 * world + i), mask))
        yield state, mask, action
        state = STEP_ENV(KEY, state, action, params)[1]


def reference_at_choice(workload):
    return RefCluster(workload.nodes, workload.jobs, queue=CONFIG.queue)


def follow(cluster, action):
    """The same decision in the reference: then on to the next choice, as ``step`` does."""
    if action == WAIT:
        cluster.wait()
    else:
        slot, node_index = divmod(action, CONFIG.num_nodes)
        cluster.start(cluster.slots[slot], node_index)
    while not cluster.done and not cluster.legal_pairs():
        cluster.wait()


def expected_mask(cluster):
    mask = np.zeros(CONFIG.num_actions, bool)
    for row, node_index in cluster.legal_pairs():
        mask[cluster.slots.index(row) * CONFIG.num_nodes + node_index] = True
    mask[WAIT] = not mask.any()
    return mask


def test_the_mask_is_what_fits_after_every_step(pool):  # PO-07
    steps = 0
    for world, workload in enumerate(WORKLOADS):
        cluster = reference_at_choice(workload)
        for state, mask, action in random_mask_walk(pool, world, 2 * len(workload.jobs)):
            assert (mask == expected_mask(cluster)).all()
            assert int(state.time) == cluster.time and int(state.finished) == cluster.finished
            assert_invariants(state, pool)
            if cluster.done:
                break
            follow(cluster, action)
            steps += 1
        assert cluster.done
    assert steps >= 90


def test_the_mask_is_what_fits_after_auto_reset(pool):  # PO-07
    observation, state = RESET(KEY, pool)
    cluster, resets = reference_at_choice(WORKLOADS[int(state.world)]), 0
    for i in range(120):
        key = jax.random.fold_in(KEY, i)
        action = int(random_action(key, observation.action_mask))
        observation, state, _, terminated, truncated, _ = STEP(key, state, jnp.int32(action), pool)
        if terminated | truncated:
            cluster, resets = reference_at_choice(WORKLOADS[int(state.world)]), resets + 1
        else:
            follow(cluster, action)
        assert (np.asarray(observation.action_mask) == expected_mask(cluster)).all()
    assert resets >= 3


def test_the_shipped_check_passes_on_random_worlds(pool):  # JX-01, over several auto-resets
    assert check_env(ENV, pool, KEY, steps=100) >= 3


def test_equal_envs_share_one_compiled_program(pool):
    mask = assert_single_trace(ClusterEnv.action_mask, static_argnums=0)
    state = RESET_TO(0, pool)
    for env in (ENV, ClusterEnv(EnvConfig(**dataclasses.asdict(CONFIG)))):
        assert mask(env, state, pool).any()
    with pytest.raises(AssertionError, match="traced again"):
        mask(ClusterEnv(CONFIG, "jct"), state, pool)


def test_a_weak_type_is_caught():
    add = assert_single_trace(lambda x: x + 1)
    add(jnp.int32(1))
    with pytest.raises(AssertionError, match="weak"):
        add(1)


def test_reset_and_step_have_the_same_strong_types(pool):
    first = ENV.reset(KEY, pool)
    after = ENV.step(KEY, first[1], 0, pool)  # a Python int as action, and eager: still the same types
    assert_same_types(after[:2], first, "step")
    assert_same_types(after[5]["final_observation"], first[0], "final observation")


@pytest.mark.parametrize("offset", [-1, -(2**31), 5 * CONFIG.num_actions, 2**31 - 1, WAIT])
def test_actions_out_of_range_change_nothing_and_are_counted(offset):  # JX-09
    params = hand([node(2)], [job("a", 0, 10, 1, 500), job("b", 0, 10, 1, 500)])
    state = RESET_TO(0, params)
    observation, after, reward, terminated, truncated, info = STEP_ENV(KEY, state, jnp.int32(offset), params)
    assert info["illegal_action"] and same(after, state) and same(observation, OBSERVE(state, params))
    assert (reward, info["discount"], info["job_ticks"], info["events"]) == (0, 1, 0, 0)
    assert not terminated and not truncated


@pytest.mark.parametrize(
    "action",
    [
        0 * 4 + 1,  # node 1 has no GPU
        0 * 4 + 3,  # a padding node
        2 * 4 + 0,  # an empty slot
        CONFIG.num_actions + 0,  # device 0 named for a whole-GPU job
        2 * CONFIG.num_actions + WAIT,  # WAIT on a device
    ],
)
def test_pairs_that_do_not_fit_change_nothing(action):
    params = hand([node(1), node(0)], [job("a", 0, 10, 1), job("b", 0, 10, 1)])
    state = RESET_TO(0, params)
    _, after, *_, info = STEP_ENV(KEY, state, jnp.int32(action), params)
    assert info["illegal_action"] and same(after, state)


def test_a_fraction_may_name_its_device():
    params = hand([node(2)], [job("a", 0, 10, 1, 500), job("b", 0, 10, 1, 700), job("c", 9, 1, 1, 200)])
    state = RESET_TO(0, params)
    second = jnp.int32(2 * CONFIG.num_actions + 0)  # slot 0, node 0, device 1
    _, state, *_, info = STEP_ENV(KEY, state, second, params)
    assert not info["illegal_action"] and state.free_gpu[0].tolist() == [1000, 500, 0, 0]
    again = jnp.int32(2 * CONFIG.num_actions + 4)  # 700 does not fit beside 500
    assert STEP_ENV(KEY, state, again, params)[-1]["illegal_action"]
    no_such_device = jnp.int32(3 * CONFIG.num_actions + 4)
    assert STEP_ENV(KEY, state, no_such_device, params)[-1]["illegal_action"]


def test_a_finished_state_is_left_alone():
    params = hand([node(1)], [job("a", 0, 10, 1)])
    _, end, reward, terminated, truncated, _ = STEP_ENV(KEY, RESET_TO(0, params), jnp.int32(0), params)
    assert terminated and not truncated and reward == 0 and end.time == 10
    assert np.flatnonzero(OBSERVE(end, params).action_mask).tolist() == [WAIT]
    for action, illegal in ((WAIT, False), (0, True), (-1, True)):
        _, after, reward, terminated, _, info = STEP_ENV(KEY, end, jnp.int32(action), params)
        assert same(after, end) and reward == 0 and terminated
        assert bool(info["illegal_action"]) == illegal


def test_step_runs_on_while_only_waiting_is_legal():
    jobs = [job("a", 0, 10, 1), job("b", 2, 10, 1), job("c", 3, 10, 1)]
    params = hand([node(1)], jobs)
    _, state, *_, info = STEP_ENV(KEY, RESET_TO(0, params), jnp.int32(0), params)
    assert (state.time, state.steps, info["events"]) == (10, 1, 1 + 2 + 1)  # start, two arrivals, end
    assert info["job_ticks"] == 10 + 8 + 7


def test_offer_wait_decides_only_the_mask():
    jobs = [job("a", 0, 10, 1), job("b", 5, 10, 1)]
    params = hand([node(2)], jobs)
    offering = ClusterEnv(dataclasses.replace(CONFIG, offer_wait=True))
    state = RESET_TO(0, params)
    assert not OBSERVE(state, params).action_mask[WAIT]
    assert offering.observe(state, params).action_mask[WAIT]
    _, waited, *_, info = STEP_ENV(KEY, state, jnp.int32(WAIT), params)
    assert not info["illegal_action"] and waited.time == 5  # accepted all the same
    assert not offering.observe(waited, params).action_mask[WAIT]  # both have come, nothing runs


def truncating():
    """A world in which waiting uses up 2 J = 6 decisions while a job is still unstarted."""
    jobs = [job("a", 0, 100, 1), job("b", 1, 3, 1), job("c", 2, 1, 1)]
    return hand([node(4)], jobs), [WAIT, WAIT, 0, 1 * 4, WAIT]  # t = 1, 2; start a and b; t = 5


def test_the_step_limit_truncates_and_the_final_observation_is_the_last():  # LE-03
    params, actions = truncating()
    state = RESET_TO(0, params)
    for action in actions:
        _, state, _, terminated, truncated, _ = STEP_ENV(KEY, state, jnp.int32(action), params)
        assert not terminated and not truncated
    last, end, _, terminated, truncated, info = STEP_ENV(KEY, state, jnp.int32(WAIT), params)
    assert truncated and not terminated and (end.steps, end.finished, end.time) == (6, 2, 102)
    observation, fresh, *_, truncated, auto = STEP(KEY, state, jnp.int32(WAIT), params)
    assert truncated and info["truncated"] and same(auto["final_observation"], last)
    assert same(fresh, RESET_TO(0, params)) and same(observation, OBSERVE(fresh, params))
    assert not same(observation, last)


def test_a_natural_end_terminates_and_begins_another_episode():  # LE-03
    params = hand([node(1)], [job("a", 0, 10, 1)])
    state = RESET_TO(0, params)
    last, *_ = STEP_ENV(KEY, state, jnp.int32(0), params)
    observation, fresh, _, terminated, truncated, info = STEP(KEY, state, jnp.int32(0), params)
    assert terminated and not truncated
    assert same(info["final_observation"], last) and not same(observation, last)
    assert same(fresh, state) and info["finished"] == 1


def test_the_cap_on_events_truncates():  # JX-04
    jobs = [job("a", 0, 100, 1), *(job(f"j{i}", i, 1, 1) for i in range(1, 9))]
    params = hand([node(1)], jobs)
    capped = ClusterEnv(dataclasses.replace(CONFIG, max_events_per_step=5))
    state = RESET_TO(0, params)
    _, after, _, terminated, truncated, info = jax.jit(capped.step_env)(KEY, state, jnp.int32(0), params)
    assert truncated and not terminated and 0 < after.time < 100 and info["events"] <= 5
    assert not STEP_ENV(KEY, state, jnp.int32(0), params)[4]


@pytest.mark.usefixtures("optimised")
def test_batch_equals_loop_bit_for_bit(
    pool,
):  # JX-03, JX-04: rows of very different lengths do not disturb each other
    keys = jax.random.split(KEY, 64)
    many = jax.jit(jax.vmap(ENV.step, in_axes=(0, 0, 0, None)))
    observations, states = RESET_MANY(keys, pool)
    for i in range(12):
        step_keys = jax.vmap(functools.partial(jax.random.fold_in, data=i))(keys)
        actions = jax.vmap(random_action)(step_keys, observations.action_mask)
        batch = many(step_keys, states, actions, pool)
        for row in range(0, 64, 7):
            state = jax.tree.map(lambda leaf, row=row: leaf[row], states)
            alone = STEP(step_keys[row], state, actions[row], pool)
            assert same(alone, jax.tree.map(lambda leaf, row=row: leaf[row], batch))
        observations, states = batch[:2]


def test_new_episodes_are_other_windows(pool):
    worlds = RESET_MANY(jax.random.split(KEY, 64), pool)[1].world
    assert len(set(worlds.tolist())) == len(WORKLOADS)


def test_unknown_reward_is_refused():
    with pytest.raises(InputError, match="slowdown"):
        ClusterEnv(CONFIG, "slowdwn")


def test_the_examples_of_the_documentation_run():
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/simulator.md", "exec"), {"__name__": "example"})
    assert not [name for name in REWARDS if f"`{name}`" not in text]
