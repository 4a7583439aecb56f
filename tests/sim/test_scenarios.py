"""The shipped scenarios are what they claim: the running table never binds and every job ends."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import pytest

from jaxsched.policies.library import get_policy
from jaxsched.sim.rollout import run
from jaxsched.workloads.scenarios import list_scenarios, load_scenario, scenario_pool

NEEDS_TRACES = pytest.mark.skipif("JAXSCHED_TRACES" not in os.environ, reason="JAXSCHED_TRACES is not set")
SCENARIOS = [
    pytest.param(name, marks=NEEDS_TRACES if load_scenario(name).source != "synthetic" else ())
    for name in list_scenarios()
]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", ["sjf+best_fit", "fifo+first_fit"])
def test_running_table_never_binds(scenario, name):
    config, params, infos = scenario_pool(load_scenario(scenario), "test", 8, 0)
    policy = get_policy(name)
    key = jax.random.key(0)
    runs = jax.vmap(lambda w: run(policy, policy.default_params, key, params, w, config, parts=False))
    schedules = jax.jit(runs)(jnp.arange(len(infos), dtype=jnp.int32))
    assert schedules.complete.all()
    assert not schedules.running_bound.any()
    assert (schedules.events == 3 * params.pool.num_jobs).all()
