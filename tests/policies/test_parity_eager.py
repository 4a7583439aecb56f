"""The named policies schedule as the reference does with jit disabled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxsched.policies.library import get_policy
from jaxsched.sim.rollout import run
from tests.policies.parity import KEY, NAMED, SIZES, pools, reference, workloads
from tests.worlds import config_of, schedule_of


@pytest.fixture(autouse=True)
def forget_loops():
    """Every run compiles its loop anew, some 600 memory maps each: too many to keep to the end of the module."""
    yield
    jax.clear_caches()


@pytest.mark.parametrize("name", NAMED)
def test_named_policies_without_jit(name):
    """Each on a workload of its own: a run without jit takes seconds."""
    config, policy, w = config_of(SIZES, 3), get_policy(name), NAMED.index(name)
    with jax.disable_jit():
        params = jax.tree.map(lambda leaf: leaf[w], pools())
        schedule = run(policy, policy.default_params, KEY, params, jnp.int32(0), config)
    assert schedule_of(schedule) == reference(workloads()[w], name, 3), f"{name} on workload {w}"
