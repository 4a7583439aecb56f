"""What the network sees: relative to now and to the cluster, unsaturated, within the documented range."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner.candidates import choose_candidates, to_action
from jaxsched.learner.ddqn import score
from jaxsched.learner.features import (
    CONTEXT_FEATURES,
    JOB_FEATURES,
    NODE_FEATURES,
    PAIR_FEATURES,
    log_hours,
)
from jaxsched.learner.networks import NetworkConfig
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import legal_pairs, view_queue
from jaxsched.testing import random_action
from jaxsched.types import NEVER, EnvConfig
from tests.learner.small import describe_state, network_and_weights
from tests.reference.resources import RefJob, RefNode
from tests.reference.workloads import random_workload
from tests.worlds import Sizes, params_of, world_of

LOW, HIGH = -8, 16  # documented at the top of ``features``
SIZES = Sizes(nodes=4, gpus=8, jobs=10, running=16)
ENV = ClusterEnv(EnvConfig(num_nodes=4, gpus_per_node=8, num_jobs=10, num_models=4, queue=8, running=16))
WIDE = NetworkConfig(width=8, max_jobs=8, max_nodes=4)
RESET, STEP = jax.jit(ENV.reset_to), jax.jit(ENV.step_env)
DESCRIBE = jax.jit(lambda state, params: describe_state(state, params, WIDE))
CHOOSE = jax.jit(
    lambda state, params: choose_candidates(Cluster(state, view_queue(state, params)), params, 8, 4)
)
YEAR = 31_536_000


def hand(nodes, jobs):
    """State at the first decision of one hand-made window, and its parameters."""
    params = params_of([world_of(nodes, jobs, SIZES)], jobs, SIZES)
    return RESET(jnp.int32(0), params), params


def job(duration, num_gpu=1, milli=1000, arrival=0, **more) -> RefJob:
    return RefJob("j", arrival, [duration] * 4, [duration] * 4, num_gpu, milli if num_gpu else 0, **more)


def busy_cluster():
    """A decision in the middle of a window: something runs, something waits."""
    state, params = hand(
        [RefNode(1, 2), RefNode(2, 4)], [job(500, 2), job(900), job(70, 1, 500), job(3000, arrival=40)]
    )
    for _ in range(2):
        candidates = CHOOSE(state, params)
        index = jnp.argmax(candidates.legal.reshape(-1))
        state = STEP(jax.random.key(0), state, to_action(candidates, index, state), params)[1]
    return state, params


def test_shapes_are_the_declared_ones():
    features = DESCRIBE(*busy_cluster())
    assert features.job.shape == (8, JOB_FEATURES)
    assert features.node.shape == (4, NODE_FEATURES)
    assert features.pair.shape == (8, 4, PAIR_FEATURES)
    assert features.context.shape == (CONTEXT_FEATURES,)
    assert {leaf.dtype for leaf in features[:4]} == {jnp.dtype(jnp.float32)}


def test_time_origin_does_not_matter():  # LE-13
    state, params = busy_cluster()
    assert int((state.run_job >= 0).sum()) == 2 and int((state.queue >= 0).sum()) >= 1
    shift = 12_902_960

    def later(ticks):
        return jnp.where(ticks == NEVER, NEVER, ticks + shift)

    pool = params.pool.replace(arrival=later(params.pool.arrival), deadline=later(params.pool.deadline))
    moved = state.replace(
        time=state.time + shift, run_end=later(state.run_end), run_estimate=later(state.run_estimate)
    )
    got, want = DESCRIBE(moved, params.replace(pool=pool)), DESCRIBE(state, params)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_scale_of_ticks_does_not_matter():
    """Seconds counted as ticks, or ticks of two seconds with half the numbers: the same features."""
    state, params = busy_cluster()
    halves = {"time": state.time // 2}
    halves |= {
        name: jnp.where(getattr(state, name) == NEVER, NEVER, getattr(state, name) // 2)
        for name in ("run_end", "run_estimate")
    }
    pool = {
        name: jnp.where(getattr(params.pool, name) == NEVER, NEVER, getattr(params.pool, name) // 2)
        for name in ("arrival", "estimate", "least_estimate", "run_time", "least_run_time")
    }
    coarse = params.replace(pool=params.pool.replace(**pool), tick_s=jnp.float32(2))
    jax.tree.map(
        np.testing.assert_array_equal, DESCRIBE(state.replace(**halves), coarse), DESCRIBE(state, params)
    )


def test_long_jobs_and_waits_are_told_apart():  # LE-13
    hour = 3600
    state, params = hand([RefNode(1, 4)], [job(13 * hour), job(130 * hour, 2)])
    rows = np.asarray(DESCRIBE(state, params).job[:2])
    assert abs(rows[0, 0] - rows[1, 0]) > 0.25
    waits = [np.asarray(DESCRIBE(state.replace(time=jnp.int32(h * hour)), params).job[0]) for h in (13, 130)]
    assert abs(waits[0][2] - waits[1][2]) > 0.25
    pairs = np.asarray(DESCRIBE(state, params).pair[:2, 0])
    assert abs(pairs[0, 0] - pairs[1, 0]) > 0.25


def test_log_hours_is_as_documented():
    hours = np.asarray(log_hours(jnp.array([0.0, 3600.0, 15 * 3600.0, 1e9])))
    np.testing.assert_allclose(hours[:3], [0, 1, 1.7], atol=0.03)
    assert 4 < hours[3] < 5
    assert float(log_hours(jnp.float32(-5))) == 0


EXTREMES = {
    "a year on a gang of 64": [job(YEAR, 8, instances=8, cpu_milli=0), job(YEAR)],
    "no time at all": [job(0), job(0, 1, 10)],
    "CPU only": [job(YEAR, 0), job(1, 0)],
    "models that differ a thousandfold": [
        replace(job(YEAR), estimate_by_model=[YEAR, YEAR, YEAR // 1000, 1], duration_by_model=[YEAR] * 4)
    ],
    "tiny shares": [job(60, 1, 1), job(60, 1, 999)],
}


@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("waited", [0, YEAR])
def test_features_stay_within_the_documented_range(case, waited):  # LE-13
    nodes = [RefNode(1, 8), RefNode(2, 8), RefNode(1, 8), RefNode(0, 0)]
    state, params = hand(nodes, [*EXTREMES[case], job(5)])
    features = DESCRIBE(state.replace(time=state.time + waited), params)
    assert features.legal.any()
    for leaf in features[:4]:
        assert np.isfinite(leaf).all() and leaf.min() >= LOW and leaf.max() <= HIGH


def test_estimates_are_all_it_sees():
    """True run times may be anything: features do not move."""
    state, params = busy_cluster()
    secret = params.replace(
        pool=params.pool.replace(
            run_time=params.pool.run_time * 7, least_run_time=params.pool.least_run_time * 7
        )
    )
    hidden = state.replace(run_end=jnp.where(state.run_end == NEVER, NEVER, state.run_end + 999))
    jax.tree.map(np.testing.assert_array_equal, DESCRIBE(hidden, secret), DESCRIBE(state, params))


def test_padded_cluster_has_the_same_values():  # LE-11
    """Three jobs on two nodes: K x M = 3 x 2 and no padding, against 8 x 4 with padding nodes and slots."""
    jobs = [job(60, 1), job(300, 2), job(40, 1, 500)]
    nodes = [RefNode(1, 2), RefNode(2, 3)]
    values = []
    for sizes, queue, k, m in ((Sizes(nodes=2, gpus=3, jobs=3), 3, 3, 2), (SIZES, 8, 8, 4)):
        config = EnvConfig(
            num_nodes=sizes.nodes, gpus_per_node=sizes.gpus, num_jobs=sizes.jobs, num_models=4, queue=queue
        )
        params = params_of([world_of(nodes, jobs, sizes)], jobs, sizes)
        state = jax.jit(ClusterEnv(config).reset_to)(jnp.int32(0), params)
        network, weights = network_and_weights(max_jobs=k, max_nodes=m)
        q, found = jax.jit(
            lambda state, params, network=network, weights=weights: score(
                network, weights, Cluster(state, view_queue(state, params)), params
            )
        )(state, params)
        q = q[:-1].reshape(found.legal.shape)
        legal = np.argwhere(np.asarray(found.legal))
        values.append({(int(found.slot[a]), int(found.node[b])): float(q[a, b]) for a, b in legal})
    assert values[0].keys() == values[1].keys() and len(values[0]) == 6
    for pair, value in values[0].items():
        assert values[1][pair] == pytest.approx(value, abs=1e-5)


def test_candidates_are_legal_and_never_lacking():
    """On random walks with few candidates: some exist whenever something can start, and each can be taken."""
    few = jax.jit(
        lambda state, params: choose_candidates(
            Cluster(state, view_queue(state, params)), params, 2, 2, reserving=False
        )
    )
    pairs = jax.jit(lambda state, params: legal_pairs(state, params, view_queue(state, params)))
    mask = jax.jit(ENV.action_mask)
    seen = 0
    for seed in range(12):
        workload = random_workload(seed)
        params = params_of([world_of(workload.nodes, workload.jobs, SIZES)], workload.jobs, SIZES)
        state = RESET(jnp.int32(0), params)
        for step in range(6):
            legal, found = np.asarray(pairs(state, params)), few(state, params)
            assert bool(found.legal.any()) == bool(legal.any())
            for k, m in np.argwhere(np.asarray(found.legal)):
                assert legal[found.slot[k], found.node[m]]
                seen += 1
            action = random_action(jax.random.key(step), mask(state, params))
            state = STEP(jax.random.key(0), state, action, params)[1]
    assert seen > 50
