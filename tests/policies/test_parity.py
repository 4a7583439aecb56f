"""Every policy schedules exactly as the plain-Python reference does, jitted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.policies.library import PLACEMENTS, get_policy, grid_names
from jaxsched.sim.rollout import run
from jaxsched.types import Order
from tests.policies.parity import COUNT, KEY, NAMED, QUEUES, SIZES, all_rules, pools, reference, workloads
from tests.reference.policies import PAIRS
from tests.worlds import config_of, schedule_of

OPTIMISED = True


def one_by_one(policy, rules, config):
    """Unbatched runs, one after another inside one compiled program: every rule on every world."""

    def on_world(params):
        return jax.lax.map(lambda rule: run(policy, rule, KEY, params, 0, config), rules)

    return jax.jit(lambda pools: jax.lax.map(on_world, pools))


def compare(schedules, workloads, heads, placement, queue, first):
    host = jax.tree.map(np.asarray, schedules)
    assert host.complete.all() and not host.running_bound.any()
    for w, workload in enumerate(workloads):
        for r, head in enumerate(heads):
            name = f"{head}+{placement}" if placement else head
            got = schedule_of(jax.tree.map(lambda leaf, w=w, r=r: leaf[w, r], host))
            want = reference(workload, name, queue)
            assert got == want, f"{name} on workload {first + w}, queue {queue}"


@pytest.mark.parametrize("placement", [*PLACEMENTS, *PAIRS])
@pytest.mark.parametrize("queue", QUEUES)
def test_every_policy_equals_the_reference(placement, queue):
    """Half of the random workloads with a queue that overflows, half with one that holds all jobs."""
    half = slice(0, COUNT // 2) if queue == QUEUES[0] else slice(COUNT // 2, COUNT)
    config = config_of(SIZES, queue)
    if placement in PAIRS:
        policy, rules, heads, placement = get_policy(placement), jnp.zeros(1), [placement], None
    else:
        policy = get_policy(f"fifo+{placement}")
        rules, heads = all_rules()
    schedules = one_by_one(policy, rules, config)(jax.tree.map(lambda leaf: leaf[half], pools()))
    compare(schedules, workloads()[half], heads, placement, queue, half.start)


def test_the_named_policies_cover_the_grid():
    assert len(NAMED) == len(set(NAMED)) == 25
    assert set(NAMED) - set(PAIRS) <= set(grid_names())
    heads = [name.partition("+") for name in NAMED if "+" in name]
    assert {head.partition("-")[0] for head, _, _ in heads} == {order.name.lower() for order in Order}
    assert {head.partition("-")[2] for head, _, _ in heads} == {"", "strict", "easy"}
    assert {placement for _, _, placement in heads} == set(PLACEMENTS)
