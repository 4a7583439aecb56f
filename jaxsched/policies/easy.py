"""EASY backfilling (Lifka 1995) on nodes, devices and gangs, recomputed at every decision.

The first job of the order is started when it fits. Otherwise it gets a reservation: the *shadow time*, the earliest
estimated end after whose releases it is legal. Later jobs may start only if they do not delay it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.policies.order import NO_JOB, first_slot, order_keys
from jaxsched.policies.place import Placement, choose_node
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import FreeNodes, capacity, free_nodes, num_actions, startable
from jaxsched.sim.place import allocate, take_devices
from jaxsched.types import NEVER, EnvParams, Order, Request


class Reservation(NamedTuple):
    """What later jobs must respect."""

    request: jax.Array  # i32[6] of the head
    shadow: jax.Array  # i32[] tick
    nodes: FreeNodes  # free resources at the shadow time


def _released_by(cluster: Cluster, params: EnvParams, tick: jax.Array, ends: jax.Array) -> FreeNodes:
    """Free resources once every running part with an estimated end up to ``tick`` is gone."""
    state = cluster.state
    gone = (state.run_job >= 0) & (ends <= tick)
    request = params.pool.request[state.world, jnp.maximum(state.run_job, 0)]
    times = jnp.where(gone, state.run_instances, 0).astype(jnp.int32)
    milli = state.run_taken * jnp.where(gone, request[:, Request.GPU_MILLI], 0)[:, None]
    nodes = free_nodes(state, params)
    here = state.run_node.astype(jnp.int32)
    return nodes._replace(
        cpu=nodes.cpu.at[here].add(times * request[:, Request.CPU_MILLI]),
        memory=nodes.memory.at[here].add(times * request[:, Request.MEMORY_MIB]),
        gpu=nodes.gpu.at[here].add(milli),
    )


def _is_legal(request: jax.Array, nodes: FreeNodes) -> jax.Array:
    return capacity(request[:, None], nodes).sum() >= request[Request.INSTANCES]


def reserve(cluster: Cluster, params: EnvParams, head: jax.Array) -> Reservation:
    """Bisect over the sorted estimated ends: legality is monotone in what has been released."""
    state = cluster.state
    request = cluster.view.request[:, head]
    ends = jnp.where(state.run_job >= 0, jnp.maximum(state.run_estimate, state.time + 1), NEVER)
    ordered = jnp.sort(ends)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        legal = _is_legal(request, _released_by(cluster, params, ordered[middle], ends))
        return jnp.where(legal, low, middle + 1), jnp.where(legal, middle, high)

    rows = ends.shape[0]
    zero = jnp.zeros((), jnp.int32)
    low, _ = jax.lax.fori_loop(0, rows.bit_length(), halve, (zero, zero + rows - 1))
    shadow = ordered[jnp.minimum(low, rows - 1)]
    return Reservation(request, shadow, _released_by(cluster, params, shadow, ends))


def _keeps_reservation(
    reservation: Reservation, cluster: Cluster, params: EnvParams, slot: jax.Array, action: jax.Array
) -> jax.Array:
    """bool[]: the job of ``slot``, started by ``action``, does not delay the head."""
    state = cluster.state
    nodes = free_nodes(state, params)
    num_nodes = nodes.cpu.shape[0]
    request = cluster.view.request[:, slot]
    take = allocate(request, nodes, action % num_actions(state) % num_nodes)
    devices = jax.vmap(lambda free, instances: take_devices(request, free, instances))(nodes.gpu, take)
    named = action // num_actions(state)
    chosen = (jnp.arange(devices.shape[1]) == named - 1) & (take > 0)[:, None]
    devices = jnp.where(named > 0, chosen.astype(jnp.int32), devices)
    estimate = params.pool.estimate[state.world, jnp.maximum(state.queue[slot], 0)]
    end = state.time + jnp.where(take > 0, estimate[nodes.model], 0).max()
    left = reservation.nodes
    left = left._replace(
        cpu=left.cpu - take * request[Request.CPU_MILLI],
        memory=left.memory - take * request[Request.MEMORY_MIB],
        gpu=left.gpu - devices * request[Request.GPU_MILLI],
    )
    return (end <= reservation.shadow) | _is_legal(reservation.request, left)


def undelaying_pairs(
    cluster: Cluster, params: EnvParams, slot: jax.Array, node: jax.Array, fits: jax.Array
) -> jax.Array:
    """bool[K, M]: placements that do not delay the job with the shortest run time in the queue, the head.

    The head may go anywhere. Another job must fit one node whole, and end before the head's shadow time or leave it its
    place; where the parts of a gang that spreads would go is not examined, so it never passes the head.

    Args:
        slot: i32[K] queue slots.
        node: i32[M] nodes.
        fits: i32[K, M] instances that the node could take now.
    """
    state, view = cluster
    head, _ = first_slot(order_keys(jnp.int32(Order.SJF), cluster, params), state.queue >= 0, cluster)
    reservation = reserve(cluster, params, head)
    request = view.request[:, slot]
    instances = request[Request.INSTANCES][:, None]
    take = jnp.minimum(fits, instances)
    devices_of_pairs = jax.vmap(jax.vmap(take_devices, (None, 0, 0)), (1, None, 0))
    devices = devices_of_pairs(request, state.free_gpu[node].astype(jnp.int32), take)
    then = reservation.nodes
    left = FreeNodes(
        then.cpu[node] - take * request[Request.CPU_MILLI][:, None],
        then.memory[node] - take * request[Request.MEMORY_MIB][:, None],
        then.gpu[node] - devices * request[Request.GPU_MILLI][:, None, None],
        then.model[node],
    )
    before = capacity(reservation.request[:, None], then)
    after = capacity(reservation.request[:, None, None], left)
    keeps_place = before.sum() - before[node] + after >= reservation.request[Request.INSTANCES]
    estimate = params.pool.estimate[state.world, jnp.maximum(state.queue[slot], 0)]
    in_time = state.time + estimate[:, then.model[node]] <= reservation.shadow
    return (slot == head)[:, None] | ((fits >= instances) & (in_time | keeps_place))


def easy_action(
    keys: jax.Array, placement: Placement, cluster: Cluster, params: EnvParams, draw: jax.Array
) -> jax.Array:
    """The action EASY takes: the head, else the first later job that respects its reservation, else WAIT."""
    fits = startable(cluster.state, cluster.view)
    head, waiting = first_slot(keys, cluster.state.queue >= 0, cluster)
    reservation = reserve(cluster, params, head)
    wait = jnp.asarray(num_actions(cluster.state) - 1, jnp.int32)
    slots = jnp.arange(keys.shape[0])

    def undecided(carry):
        untried, action = carry
        return (action == wait) & untried.any()

    def try_next(carry):
        untried, _ = carry
        slot, _ = first_slot(keys, untried, cluster)
        action = choose_node(placement, cluster, params, slot, draw)
        kept = _keeps_reservation(reservation, cluster, params, slot, action)
        return untried & (slots != slot), jnp.where(kept, action, wait)

    later = fits & (slots != head) & (keys < NO_JOB)
    _, action = jax.lax.while_loop(undecided, try_next, (later & ~fits[head], wait))
    return jnp.where(waiting & fits[head], choose_node(placement, cluster, params, head, draw), action)
