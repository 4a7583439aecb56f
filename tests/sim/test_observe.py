"""What the observation says, and what it must not know (LE-13)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.observe import TIME_SCALE
from jaxsched.testing import random_action
from jaxsched.types import EnvConfig
from tests.reference.workloads import random_workload
from tests.small_runs import KEY, job, node, small
from tests.worlds import Sizes, params_of, world_of

SIZES = Sizes()
CONFIG = EnvConfig(num_nodes=4, gpus_per_node=4, num_jobs=10, num_models=4, queue=3, running=64)
ENV = ClusterEnv(CONFIG)
RESET_TO = jax.jit(ENV.reset_to)
OBSERVE = jax.jit(ENV.observe)
STEP_ENV = jax.jit(ENV.step_env)


def hand(nodes, jobs):
    """Parameters of one hand-made world in the shape of ``CONFIG``."""
    return small(nodes, jobs, queue=3, sizes=SIZES)[1]


def same(a, b):
    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((np.asarray(x) == np.asarray(y)).all()), a, b)))


def shifted(params, state, ticks):
    """The same situation, every time later."""
    pool = params.pool
    arrival = jnp.where(pool.arrival < 2**30, pool.arrival + ticks, pool.arrival)
    late = {
        name: jnp.where(getattr(state, name) < 2**30, getattr(state, name) + ticks, getattr(state, name))
        for name in ("run_end", "run_estimate")
    }
    return params.replace(pool=pool.replace(arrival=arrival)), state.replace(time=state.time + ticks, **late)


@pytest.mark.parametrize("seed", range(3))
def test_observations_do_not_know_the_origin_of_time(seed):
    workload = random_workload(seed)
    params = params_of([world_of(workload.nodes, workload.jobs, SIZES)], workload.jobs[:5], SIZES)
    state = RESET_TO(0, params)
    for i in range(8):
        observation = OBSERVE(state, params)
        later_pool, later = shifted(params, state, 12_902_960)
        assert same(OBSERVE(later, later_pool), observation)
        action = random_action(jax.random.fold_in(KEY, i), observation.action_mask)
        state = STEP_ENV(KEY, state, action, params)[1]
    assert state.time > 0


def test_long_jobs_are_told_apart():
    hours = [job("a", 0, 13 * 3600, 1), job("b", 0, 130 * 3600, 1)]
    observation = OBSERVE(RESET_TO(0, params := hand([node(1)], hours)), params)
    a, b = np.asarray(observation.job)[:2]
    assert b[2] - a[2] > 0.2 and (np.delete(a, 2) == np.delete(b, 2)).all()
    pairs = np.asarray(observation.pair)[:2, 0, 0]
    assert pairs[1] - pairs[0] > 0.2
    assert pairs == pytest.approx(np.log1p([13 * 3600, 130 * 3600]) / TIME_SCALE)


def test_features_stay_in_the_documented_range():
    """Between 0 and 2.2 for nodes up to 8 GPUs, 128 cores and 768 GiB, gangs up to 16, times up to 2^30 s."""
    big = node(4, cpu_milli=128_000, memory_mib=786_432)
    jobs = [job("a", 0, 2**30 - 2, 1, instances=16, models=0b10), job("b", 0, 1, 1, 10, cpu_milli=1)]
    params = hand([big] * 4, [*jobs, job("c", 0, 0, 0, cpu_milli=128_000)])
    state = RESET_TO(0, params)
    for situation in (state, state.replace(time=jnp.int32(2**30 - 1))):
        for leaf in OBSERVE(situation, params)[:-1]:
            assert np.min(leaf) >= 0 and np.max(leaf) <= 2.2
