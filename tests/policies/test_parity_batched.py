"""The named policies schedule as the reference does with 64 clusters in lockstep."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxsched.policies.library import get_policy
from jaxsched.sim.rollout import run
from tests.policies.parity import KEY, NAMED, SIZES, pools, reference, workloads
from tests.worlds import config_of, schedule_of

OPTIMISED = True


@pytest.mark.parametrize("name", NAMED)
def test_named_policies_vmapped(name):
    """64 clusters in lockstep give the schedules of 64 single runs."""
    config, policy = config_of(SIZES, 3), get_policy(name)
    batch = jax.tree.map(lambda leaf: leaf[:64], pools())
    runs = jax.jit(jax.vmap(lambda params: run(policy, policy.default_params, KEY, params, 0, config)))
    schedules = jax.tree.map(np.asarray, runs(batch))
    for w, workload in enumerate(workloads()[:64]):
        assert schedule_of(schedules, w) == reference(workload, name, 3), f"{name} on workload {w}"
