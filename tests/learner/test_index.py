"""The linear policy ``index``: its score, its start at ``spt_pair-easy``, and the same choice however it is run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner.candidates import choose_candidates
from jaxsched.learner.features import describe
from jaxsched.learner.index import (
    MAX_JOBS,
    MAX_NODES,
    NUM_WEIGHTS,
    first_weights,
    index_policy,
    index_scores,
)
from jaxsched.policies.library import get_policy
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import num_actions, view_queue
from jaxsched.sim.rollout import run
from jaxsched.testing import random_action
from jaxsched.types import EnvConfig
from tests.reference.workloads import random_workload
from tests.worlds import Sizes, params_of, schedule_of, world_of

SIZES = Sizes(nodes=4, gpus=8, jobs=10, running=16)
CONFIG = EnvConfig(num_nodes=4, gpus_per_node=8, num_jobs=10, num_models=4, queue=8, running=16, max_parts=80)
ENV = ClusterEnv(CONFIG)
RESET, STEP = jax.jit(ENV.reset_to), jax.jit(ENV.step_env)
KEY = jax.random.key(0)
RANDOM = np.random.default_rng(4).normal(size=NUM_WEIGHTS)
POLICY, RULE = index_policy(RANDOM), get_policy("spt_pair-easy")


def world(seed: int):
    workload = random_workload(seed)
    return params_of([world_of(workload.nodes, workload.jobs, SIZES)], workload.jobs, SIZES)


@jax.jit
def look(weights, state, params):
    """Features, candidates, scores, the index's action and the rule's."""
    cluster = Cluster(state, view_queue(state, params))
    candidates = choose_candidates(cluster, params, MAX_JOBS, MAX_NODES)
    features = describe(cluster, params, candidates)
    actions = [POLICY(weights, KEY, state, params), RULE((), KEY, state, params)]
    return features, candidates, index_scores(weights, features), *actions


def walks(weights, seeds: int = 12, steps: int = 8):
    """What ``look`` sees along random walks, and the state."""
    for seed in range(seeds):
        params = world(seed)
        state = RESET(jnp.int32(0), params)
        for step in range(steps):
            yield params, state, jax.device_get(look(weights, state, params))
            key = jax.random.fold_in(jax.random.key(seed), step)
            state = STEP(key, state, random_action(key, ENV.observe(state, params).action_mask), params)[1]


def test_the_choice_is_the_greatest_linear_score():
    placed = waited = 0
    for _, state, (features, candidates, scores, action, _) in walks(jnp.float32(RANDOM)):
        best, chosen = -np.inf, num_actions(state) - 1
        for k, m in np.argwhere(candidates.legal):
            row = np.concatenate([features.job[k], features.node[m], features.pair[k, m]])
            assert scores[k, m] == pytest.approx(row @ RANDOM, abs=1e-4)
            if scores[k, m] > best:
                best, chosen = scores[k, m], candidates.slot[k] * 4 + candidates.node[m]
        assert action == chosen
        placed, waited = placed + candidates.legal.any(), waited + ~candidates.legal.any()
    assert placed > 30 and waited > 3


def test_it_starts_at_the_shortest_pair_that_keeps_the_reservation():
    """Equal run times may be broken otherwise; the run time itself never differs."""
    compared = 0
    for params, state, (_, _, _, mine, rule) in walks(jnp.float32(first_weights())):
        wait = num_actions(state) - 1
        assert (mine == wait) == (rule == wait)
        if mine != wait:
            times = [
                params.pool.estimate[0, state.queue[a // 4], params.pool.node_model[0, a % 4]]
                for a in (int(mine), int(rule))
            ]
            assert times[0] == times[1]
            compared += 1
    assert compared > 30


def test_the_same_schedule_alone_and_in_a_batch():
    params = [world(seed) for seed in range(4)]
    alone = [run(POLICY, POLICY.default_params, KEY, each, jnp.int32(0), CONFIG) for each in params]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    batch = jax.vmap(lambda each: run(POLICY, POLICY.default_params, KEY, each, jnp.int32(0), CONFIG))(
        stacked
    )
    for i, schedule in enumerate(alone):
        assert schedule.complete
        assert schedule_of(schedule) == schedule_of(jax.tree.map(lambda leaf, i=i: leaf[i], batch))
