"""Every policy schedules exactly as the plain-Python reference does: jitted, vmapped, and with jit disabled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.policies.library import PLACEMENTS, Rule, decision_draw, get_policy, grid_names
from jaxsched.sim.rollout import run
from jaxsched.types import Blocking, Order
from tests.reference.policies import reference_policy
from tests.reference.simulator import simulate
from tests.reference.workloads import random_workload
from tests.worlds import Sizes, config_of, reference_schedule, schedule_of, workload_params

SIZES = Sizes()
COUNT = 200
QUEUES = (3, 16)
KEY = jax.random.key(7)
NAMED = (
    "fifo+first_fit", "fifo+best_fit", "fifo-strict+best_fit", "fifo-easy+best_fit",
    "sjf+best_fit", "sjf-strict+worst_fit", "sjf-easy+fastest", "sjf+fastest", "sjf+fgd",
    "saf+best_fit", "saf-easy+gpu_packing", "saf+random", "wfp3+best_fit", "wfp3-easy+best_fit_vector",
    "unicep+best_fit", "unicep-strict+dot_product", "f1+best_fit", "f1-easy+gpu_clustering",
    "edf+best_fit", "edf-strict+first_fit", "fifo+gpu_packing", "fifo+gpu_clustering", "fifo+dot_product",
    "spt_pair",
)  # fmt: skip


@pytest.fixture(scope="module")
def workloads():
    return [random_workload(seed) for seed in range(COUNT)]


@pytest.fixture(scope="module")
def pools(workloads):
    stacked = [workload_params(w, SIZES) for w in workloads]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacked)


@pytest.fixture(scope="module")
def draws():
    keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(64))
    return np.asarray(jax.vmap(decision_draw)(keys)).tolist()


def reference(workload, name, queue, draws):
    results = simulate(workload.nodes, workload.jobs, reference_policy(name), queue=queue, draws=draws)
    return reference_schedule(results, SIZES)


def all_rules():
    pairs = [(order, blocking) for order in Order for blocking in Blocking]
    rule = Rule(*(jnp.array(column, jnp.int32) for column in zip(*pairs, strict=True)))
    suffix = {Blocking.SKIP: "", Blocking.STRICT: "-strict", Blocking.EASY: "-easy"}
    return rule, [f"{order.name.lower()}{suffix[blocking]}" for order, blocking in pairs]


def one_by_one(policy, rules, config):
    """Unbatched runs, one after another inside one compiled program: every rule on every world."""

    def on_world(params):
        return jax.lax.map(lambda rule: run(policy, rule, KEY, params, 0, config), rules)

    return jax.jit(lambda pools: jax.lax.map(on_world, pools))


def compare(schedules, workloads, heads, placement, queue, draws, first):
    host = jax.tree.map(np.asarray, schedules)
    assert host.complete.all() and not host.running_bound.any()
    for w, workload in enumerate(workloads):
        for r, head in enumerate(heads):
            name = f"{head}+{placement}" if placement else head
            got = schedule_of(jax.tree.map(lambda leaf, w=w, r=r: leaf[w, r], host))
            want = reference(workload, name, queue, draws)
            assert got == want, f"{name} on workload {first + w}, queue {queue}"


@pytest.mark.parametrize("placement", [*PLACEMENTS, None])
@pytest.mark.parametrize("queue", QUEUES)
def test_every_policy_equals_the_reference(placement, queue, workloads, pools, draws):
    """Half of the random workloads with a queue that overflows, half with one that holds all jobs."""
    half = slice(0, COUNT // 2) if queue == QUEUES[0] else slice(COUNT // 2, COUNT)
    config = config_of(SIZES, queue)
    if placement is None:
        policy, rules, heads = get_policy("spt_pair"), jnp.zeros(1), ["spt_pair"]
    else:
        policy = get_policy(f"fifo+{placement}")
        rules, heads = all_rules()
    schedules = one_by_one(policy, rules, config)(jax.tree.map(lambda leaf: leaf[half], pools))
    compare(schedules, workloads[half], heads, placement, queue, draws, half.start)


@pytest.mark.parametrize("name", NAMED)
def test_named_policies_vmapped(name, workloads, pools, draws):
    """64 clusters in lockstep give the schedules of 64 single runs."""
    config, policy = config_of(SIZES, 3), get_policy(name)
    batch = jax.tree.map(lambda leaf: leaf[:64], pools)
    runs = jax.jit(jax.vmap(lambda params: run(policy, policy.default_params, KEY, params, 0, config)))
    schedules = jax.tree.map(np.asarray, runs(batch))
    for w, workload in enumerate(workloads[:64]):
        assert schedule_of(schedules, w) == reference(workload, name, 3, draws), f"{name} on workload {w}"


@pytest.mark.parametrize("name", NAMED)
def test_named_policies_without_jit(name, workloads, pools, draws):
    config, policy = config_of(SIZES, 3), get_policy(name)
    with jax.disable_jit():
        for w in range(3):
            params = jax.tree.map(lambda leaf, w=w: leaf[w], pools)
            schedule = run(policy, policy.default_params, KEY, params, jnp.int32(0), config)
            assert schedule_of(schedule) == reference(workloads[w], name, 3, draws), f"{name} on workload {w}"


def test_the_named_policies_cover_the_grid():
    assert len(NAMED) == len(set(NAMED)) == 24
    assert set(NAMED) - {"spt_pair"} <= set(grid_names())
    heads = [name.partition("+") for name in NAMED if "+" in name]
    assert {head.partition("-")[0] for head, _, _ in heads} == {order.name.lower() for order in Order}
    assert {head.partition("-")[2] for head, _, _ in heads} == {"", "strict", "easy"}
    assert {placement for _, _, placement in heads} == set(PLACEMENTS)
