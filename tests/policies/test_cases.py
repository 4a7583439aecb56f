"""The classical policies against schedules worked by hand, and against padding, batching and odd numbers.

The names PO- number well-known faults of schedulers. PO-09, the jitted policy equals the plain Python one, is
``test_parity.py``; PO-07, the mask of every state is what really fits, is ``tests/sim/test_env.py``.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.errors import InputError
from jaxsched.policies import place
from jaxsched.policies.library import PLACEMENTS, Rule, decision_draw, get_policy, list_policies
from jaxsched.policies.order import order_keys
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import free_nodes, view_queue
from jaxsched.sim.rollout import run
from jaxsched.testing import random_action
from jaxsched.types import Blocking, Order
from tests.policies.parity import NAMED, all_rules
from tests.reference.policies import reference_policy
from tests.reference.simulator import simulate
from tests.reference.workloads import random_workload
from tests.small_runs import KEY, SIZES, job, node, schedule, small, times
from tests.worlds import Sizes, reference_schedule, schedule_of

ALL = list(list_policies())
DRAWS = [int(decision_draw(jax.random.fold_in(KEY, i))) for i in range(64)]


def turnaround(nodes, jobs, name):
    """JCT of each job by name."""
    arrival = {j.name: j.arrival for j in jobs}
    return {k: finish - arrival[k] for k, (_, finish) in times(nodes, jobs, name).items()}


def unpadded(workload, name, sizes):
    """What the plain-Python reference, which has no capacities at all, makes of it."""
    results = simulate(workload.nodes, workload.jobs, reference_policy(name), queue=64, draws=DRAWS)
    return reference_schedule(results, sizes)


def test_po_01_strict_and_skipping_fifo():
    jobs = [job("a", 0, 10, 1), job("b", 0, 10, 2), job("c", 0, 10, 1)]
    assert turnaround([node(2)], jobs, "fifo-strict+best_fit") == {"a": 10, "b": 20, "c": 30}
    assert turnaround([node(2)], jobs, "fifo+best_fit") == {"a": 10, "b": 20, "c": 10}


def test_po_02_sjf_values_and_ties():
    jobs = [job("a", 0, 30, 1), job("b", 0, 10, 1), job("c", 0, 20, 1)]
    assert turnaround([node(1)], jobs, "sjf+best_fit") == {"a": 60, "b": 10, "c": 30}
    assert turnaround([node(1)], jobs, "fifo+best_fit") == {"a": 30, "b": 40, "c": 60}
    late = [job("L", 0, 100, 1), job("s", 1, 1, 1)]
    assert times([node(1)], late, "sjf+best_fit")["s"] == (100, 101)  # no preemption


@pytest.mark.parametrize("name", [n for n in ALL if n.endswith("+best_fit")])
def test_po_02_equal_jobs_run_in_the_order_of_arrival_then_row(name):
    jobs = [job("a", 0, 10, 1), job("b", 0, 10, 1), job("c", 1, 10, 1), job("d", 1, 10, 1)]
    starts = {k: start for k, (start, _) in times([node(1)], jobs, name).items()}
    assert starts == {"a": 0, "b": 10, "c": 20, "d": 30}


def test_po_03_easy_does_not_delay_the_head():
    jobs = [job("a", 0, 10, 2), job("b", 1, 10, 4), job("c", 2, 8, 1), job("d", 3, 8, 1)]
    easy = times([node(4)], jobs, "fifo-easy+best_fit")
    assert easy == {
        "a": (0, 10),
        "c": (2, 10),
        "b": (10, 20),
        "d": (20, 28),
    }  # 2 + 8 = 10 is in time, 3 + 8 is not
    assert times([node(4)], jobs, "fifo+best_fit")["b"] == (11, 21)


def test_po_04_starvation_of_the_wide_job():
    jobs = [job("W", 1, 10, 2), *(job(f"s{k}", 5 * k, 10, 1) for k in range(10))]
    mean_and_wide = {}
    for name in ("fifo+best_fit", "fifo-strict+best_fit", "fifo-easy+best_fit"):
        jct = turnaround([node(2)], jobs, name)
        mean_and_wide[name] = round(sum(jct.values()) / 11, 2), jct["W"]
    assert mean_and_wide["fifo+best_fit"] == (14.91, 64)
    assert mean_and_wide["fifo-strict+best_fit"] == mean_and_wide["fifo-easy+best_fit"] == (21.27, 19)


@pytest.fixture(scope="module")
def settled():
    """Parameters and four settled states: nothing queued, nothing fits, the first job fits, the second fits."""
    config, params = small([node(1)], [job("a", 0, 10, 1), job("b", 1, 10, 1)])
    env = ClusterEnv(config)
    first = jax.jit(env.reset_to)(0, params)
    second = jax.jit(env.step_env)(KEY, first, jnp.int32(0), params)[
        1
    ]  # a has run; b has come, in slot 0 again
    nothing_queued = first.replace(queue=jnp.full_like(first.queue, -1))
    nothing_fits = first.replace(free_gpu=jnp.zeros_like(first.free_gpu))
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), nothing_queued, nothing_fits, first, second)
    return config, params, states


@pytest.mark.parametrize("name", ["fifo+first_fit", "fifo+worst_fit", "fifo+random", "spt_pair"])
def test_po_05_with_nothing_to_start_every_policy_waits(settled, name):
    """Never 'action 0, because every score is -inf'."""
    config, params, states = settled
    rules = Rule(jnp.zeros(1), jnp.zeros(1)) if name == "spt_pair" else all_rules()[0]
    policy = get_policy(name)

    def decide(state):
        return jax.lax.map(lambda rule: policy(rule, KEY, state, params), rules)

    actions = np.asarray(jax.jit(lambda states: jax.lax.map(decide, states))(states))
    assert (actions[:2] == config.wait_action).all()
    assert (
        actions[2:] % config.num_actions == 0
    ).all()  # slot 0 on node 0; worst_fit names no device for a whole GPU


def test_po_05_a_random_agent_waits_too():
    mask = jnp.zeros(101, bool).at[100].set(True)
    assert {int(random_action(jax.random.fold_in(KEY, i), mask)) for i in range(20)} == {100}


CAPACITIES = {
    "tight": (Sizes(nodes=2, gpus=2, jobs=8), 8, 16),
    "jobs and queue": (Sizes(nodes=2, gpus=2, jobs=64), 64, 16),
    "nodes, gpus and running": (Sizes(nodes=16, gpus=8, jobs=8), 8, 96),
    "all": (Sizes(nodes=16, gpus=8, jobs=64), 64, 96),
}
SWEEP = [
    *(("sjf-easy+best_fit", capacity) for capacity in CAPACITIES),
    ("saf+fgd", "all"),
    ("spt_pair", "all"),
]


@pytest.mark.parametrize(("name", "capacity"), SWEEP)
def test_po_06_capacities_do_not_change_the_schedule(name, capacity):
    sizes, queue, running = CAPACITIES[capacity]
    policy = get_policy(name)
    for seed in range(5):
        workload = random_workload(seed, max_jobs=8, max_nodes=2, max_gpus=2)
        config, params = small(workload.nodes, workload.jobs, queue, sizes)
        config = dataclasses.replace(config, running=running)
        got = schedule_of(run(policy, policy.default_params, KEY, params, 0, config))
        assert got == unpadded(workload, name, sizes), f"workload {seed}"


@pytest.mark.parametrize("batch", [1, 64])
def test_po_06_batch_size_does_not_change_the_schedule(batch):
    workload = random_workload(11, max_jobs=8, max_nodes=2, max_gpus=2)
    config, params = small(workload.nodes, workload.jobs, 64, CAPACITIES["tight"][0])
    policy = get_policy("spt_pair")
    worlds = jnp.zeros(batch, jnp.int32)
    many = jax.vmap(lambda world: run(policy, policy.default_params, KEY, params, world, config))(worlds)
    want = unpadded(workload, policy.name, CAPACITIES["tight"][0])
    assert all(schedule_of(many, row) == want for row in {0, batch // 2, batch - 1})


ODD = [job("a", 0, 0, 0), job("b", 0, 10, 1), job("c", 5, 0, 1)]


@pytest.mark.parametrize("name", ALL)
def test_po_08_zero_times_and_zero_gpus_under_every_policy(name):
    assert times([node(1)], ODD, name) == {"a": (0, 0), "b": (0, 10), "c": (10, 10)}


def test_po_08_scores_are_finite():
    """Orders: finite for extreme waits. Placements: integers, so neither nan nor inf can arise."""
    config, params = small([node(1)], [*ODD, job("d", 5, 2**29, 1, instances=1)])
    state = jax.jit(ClusterEnv(config).reset_to)(0, params)
    queue = jnp.arange(config.queue, dtype=state.queue.dtype).at[4:].set(-1)
    for time in (5, 2**30 - 1):
        late = state.replace(queue=queue, time=jnp.int32(time))
        cluster = Cluster(late, view_queue(late, params))
        for order in Order:
            keys = np.asarray(order_keys(jnp.int32(order), cluster, params))
            assert np.isfinite(keys[:4]).all() and (keys[4:] == np.inf).all(), order
    situation = place.Situation(state, params, jnp.int32(0), jnp.int32(0))
    for score in PLACEMENTS.values():
        for row in range(4):
            choice = score(params.pool.request[0, row], free_nodes(state, params), situation)
            assert choice.key.dtype == choice.device.dtype == jnp.int32


@pytest.mark.parametrize("seed", range(3))
def test_policies_do_not_see_true_run_times(seed):
    """Other true durations under the same estimates: what starts in the first instant stays, placement included."""
    workload = random_workload(seed + 40)
    jobs = [dataclasses.replace(j, arrival=0) for j in workload.jobs]
    config, params = small(workload.nodes, jobs)
    true = params.pool.run_time + 1  # none is zero, so no job of the first instant also ends in it
    swapped = jax.random.permutation(KEY, true[:, : len(jobs)], axis=1)
    other = true.at[:, : len(jobs)].set(swapped)
    for name in NAMED:
        policy = get_policy(name)
        first = []
        for run_time in (true, other):
            world = params.replace(pool=params.pool.replace(run_time=run_time))
            parts = run(policy, policy.default_params, KEY, world, 0, config)
            started = [(i, row[2]) for i, row in enumerate(schedule_of(parts)) if row[0] == 0]
            first.append(started)
        assert first[0] == first[1] and first[0], name


def test_the_documented_policy_of_your_own_works():
    """The example of docs/policies.md, run as it stands."""
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    (example,) = re.findall(r"```python\n(.*?@register_policy.*?)```", text, re.DOTALL)
    exec(compile(example, "docs/policies.md", "exec"), {"__name__": "example"})
    jobs = [job("a", 0, 5, 1), job("b", 1, 9, 1, 250), job("c", 2, 3, 1, 500), job("d", 2, 4, 1)]
    got = times([node(1)], jobs, "narrowest")
    assert got == {"a": (0, 5), "b": (5, 14), "c": (5, 8), "d": (14, 18)}
    assert "narrowest" in list_policies()


def test_every_policy_and_rule_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    words = [
        *(o.name.lower() for o in Order),
        *(b.name.lower() for b in Blocking),
        *PLACEMENTS,
        "spt_pair",
        "spt_pair-easy",
    ]
    assert not [word for word in words if f"`{word}`" not in text]


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"sjf\+best_fit"):
        get_policy("sjf+bestfit")


def test_small_runs_agree_with_the_reference_on_larger_queues():
    """One padded shape for all 211 names: the schedules of the reference, which knows no padding."""
    workload = random_workload(3)
    for name in ALL:
        got = schedule_of(schedule(workload.nodes, workload.jobs, name, 8))
        results = simulate(workload.nodes, workload.jobs, reference_policy(name), queue=8, draws=DRAWS)
        assert got == reference_schedule(results, SIZES), name
