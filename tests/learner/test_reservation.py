"""The placements that the network may choose among: none delays the shortest job of the queue."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.learner.agent import gnn_policy
from jaxsched.learner.candidates import choose_candidates, to_action
from jaxsched.policies.easy import _keeps_reservation, reserve
from jaxsched.policies.order import first_slot, order_keys
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import num_actions, startable, view_queue
from jaxsched.sim.rollout import run
from jaxsched.testing import random_action
from jaxsched.types import NEVER, EnvConfig, Order, Request
from tests.learner.small import network_and_weights
from tests.reference.resources import RefJob, RefNode
from tests.reference.workloads import random_workload
from tests.worlds import Sizes, params_of, world_of

SIZES = Sizes(nodes=4, gpus=8, jobs=10, running=16)
CONFIG = EnvConfig(num_nodes=4, gpus_per_node=8, num_jobs=10, num_models=4, queue=8, running=16)
ENV = ClusterEnv(CONFIG)
RESET, STEP = jax.jit(ENV.reset_to), jax.jit(ENV.step_env)


def job(duration, num_gpu, arrival=0) -> RefJob:
    return RefJob("j", arrival, [duration] * 4, [duration] * 4, num_gpu, 1000)


@jax.jit
def by_both_rules(state, params):
    """Candidates with and without the reservation, the head, and EASY's own judgement of every placement."""
    cluster = Cluster(state, view_queue(state, params))
    free = choose_candidates(cluster, params, 8, 4, reserving=False)
    kept = choose_candidates(cluster, params, 8, 4, reserving=True)
    keys = order_keys(jnp.int32(Order.SJF), cluster, params)
    head, _ = first_slot(keys, state.queue >= 0, cluster)
    reservation = reserve(cluster, params, head)

    def exact(slot, node):
        return _keeps_reservation(reservation, cluster, params, slot, slot * 4 + node)

    judged = jax.vmap(jax.vmap(exact, (None, 0)), (0, None))(kept.slot, kept.node)
    return free, kept, head, judged, startable(*cluster).any()


def test_offered_placements_are_easys():
    """On random walks: the head, and the later jobs that EASY would let pass if they fit one node."""
    offered = refused = waits = 0
    for seed in range(20):
        workload = random_workload(seed)
        params = params_of([world_of(workload.nodes, workload.jobs, SIZES)], workload.jobs, SIZES)
        state = RESET(jnp.int32(0), params)
        for step in range(8):
            free, kept, head, exact, _ = jax.device_get(by_both_rules(state, params))
            whole = free.fits >= free.request[Request.INSTANCES][:, None]
            of_head = (free.slot == head)[:, None]
            np.testing.assert_array_equal(
                kept.legal & (whole | of_head), free.legal & (of_head | (exact & whole))
            )
            assert (kept.legal <= free.legal & (exact | of_head)).all()
            offered, refused = offered + kept.legal.sum(), refused + (free.legal & ~kept.legal).sum()
            waits += free.legal.any() and not kept.legal.any()
            mask = ENV.action_mask(state, params)
            state = STEP(jax.random.key(0), state, random_action(jax.random.key(step), mask), params)[1]
    assert offered > 200 and refused > 20 and waits > 3


def test_a_wide_short_job_is_not_starved():
    """Two devices: one is busy until 100, the short job needs both. A job of 50 may pass it, one of 500 may not."""
    nodes = [RefNode(1, 2)]
    for duration, passes in ((50, True), (500, False)):
        jobs = [job(100, 1), job(40, 2, arrival=1), job(duration, 1, arrival=1)]
        params = params_of([world_of(nodes, jobs, SIZES)], jobs, SIZES)
        state = STEP(jax.random.key(0), RESET(jnp.int32(0), params), jnp.int32(0), params)[1]
        _, kept, _, _, something = by_both_rules(state, params)
        assert bool(something)
        assert bool(kept.legal.any()) == passes
        wait = to_action(kept, jnp.int32(kept.legal.size), state)
        assert int(wait) == num_actions(state) - 1


def test_waiting_ends_and_batches_do_not_count_each_others_turns():
    """Windows under an untrained network, alone and side by side: all end, and in the same schedule."""
    workloads = [random_workload(seed) for seed in range(8)]
    everyone = [job for workload in workloads for job in workload.jobs]
    worlds = [world_of(workload.nodes, workload.jobs, SIZES) for workload in workloads]
    params = params_of(worlds, everyone, SIZES)
    network, weights = network_and_weights(max_jobs=8, max_nodes=4)
    policy = gnn_policy(network.config, weights)

    def finish(world):
        schedule = run(policy, weights, jax.random.key(0), params, world, CONFIG, parts=False)
        return schedule.finish, schedule.complete

    together, complete = jax.jit(jax.vmap(finish))(jnp.arange(8))
    assert complete.all()
    alone = [jax.jit(finish)(jnp.int32(world))[0] for world in range(8)]
    np.testing.assert_array_equal(together, np.stack(alone))
    assert (np.asarray(together) != NEVER).any(1).all()
