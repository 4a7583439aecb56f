"""The fixed-size set of placements that the network scores: K jobs x M node groups.

Queues and clusters grow; the price of a decision must not. The jobs are the legal ones that come first by three
keys in turn (least run time, least area, earliest arrival), the nodes stand for groups of nodes that are alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.policies.easy import undelaying_pairs
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import FreeNodes, capacity, free_nodes, num_actions, startable
from jaxsched.types import MILLI, NEVER, EnvParams, EnvState, Request


class Candidates(NamedTuple):
    """Queue slots and nodes that may be chosen, padded with masks."""

    slot: jax.Array  # i32[K]
    node: jax.Array  # i32[M]
    job: jax.Array  # i32[K] job rows, 0 where the slot is padding
    request: jax.Array  # i32[6, K]
    has_job: jax.Array  # bool[K]
    has_node: jax.Array  # bool[M]
    fits: jax.Array  # i32[K, M] instances that the node could take now
    legal: jax.Array  # bool[K, M] placements that may be chosen now
    allowed: jax.Array  # bool[K, M] pairs that may ever run


def _places(key: jax.Array, among: jax.Array) -> jax.Array:
    """Place of each element in the order of ``key`` (ties by index) among those marked; large elsewhere."""
    key = jnp.where(among, key, jnp.inf)
    index = jnp.arange(key.shape[0])
    before = (key[None, :] < key[:, None]) | (
        (key[None, :] == key[:, None]) & (index[None, :] < index[:, None])
    )
    return jnp.where(among, (before & among[None, :]).sum(-1), key.shape[0])


def choose_jobs(cluster: Cluster, params: EnvParams, count: int) -> tuple[jax.Array, jax.Array]:
    """Slots i32[K] and validity bool[K]: legal jobs by least run time, least area and earliest arrival in turn."""
    state, view = cluster
    legal = startable(state, view)
    job = jnp.maximum(state.queue, 0).astype(jnp.int32)
    run_time = params.pool.least_estimate[state.world, job].astype(jnp.float32)
    gpus = view.request[Request.NUM_GPU] * view.request[Request.GPU_MILLI] * view.request[Request.INSTANCES]
    keys = (run_time, run_time * jnp.maximum(gpus, 1), job.astype(jnp.float32))
    turns = jnp.stack([3 * _places(key, legal) + i for i, key in enumerate(keys)]).min(0)
    count = min(count, legal.shape[0])
    _, slots = jax.lax.top_k(-turns, count)
    return slots.astype(jnp.int32), legal[slots]


def group_nodes(nodes: FreeNodes, fits: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Nodes i32[M] and validity bool[M]: the lowest index of each group alike in model and free resources.

    When there are more groups than M, every model gives its fullest group first, then its second fullest, and so on.

    Args:
        fits: bool[N], some candidate job fits the node.
    """
    num_nodes = nodes.cpu.shape[0]
    count = min(count, num_nodes)
    index = jnp.arange(num_nodes)
    model = nodes.model[:, None] == nodes.model[None, :]
    same = (
        model & (nodes.cpu[:, None] == nodes.cpu[None, :]) & (nodes.memory[:, None] == nodes.memory[None, :])
    )
    same &= (nodes.gpu[:, None] == nodes.gpu[None, :]).all(-1)
    first = ~(same & (index[None, :] < index[:, None])).any(-1)
    wanted = fits & first
    if count == num_nodes:
        return index.astype(jnp.int32), wanted
    free = nodes.gpu.sum(-1)
    fuller = (free[None, :] < free[:, None]) | (
        (free[None, :] == free[:, None]) & (index[None, :] < index[:, None])
    )
    place = (model & fuller & wanted[None, :]).sum(-1)
    key = place * (MILLI * nodes.gpu.shape[1] + 1) + free
    _, chosen = jax.lax.top_k(-jnp.where(wanted, key, NEVER), count)
    return chosen.astype(jnp.int32), wanted[chosen]


def choose_candidates(
    cluster: Cluster, params: EnvParams, max_jobs: int, max_nodes: int, reserving: bool = True
) -> Candidates:
    """The candidate set of a settled cluster.

    Args:
        reserving: offer only placements that do not delay the shortest job of the queue; wait when there is none.
    """
    state, view = cluster
    slot, has_job = choose_jobs(cluster, params, max_jobs)
    nodes = free_nodes(state, params)
    request = view.request[:, slot]
    every = capacity(request[:, :, None], nodes) * has_job[:, None]
    node, has_node = group_nodes(nodes, (every > 0).any(0), max_nodes)
    fits = every[:, node]
    allowed = (request[Request.MODELS][:, None] >> nodes.model[node]) & 1
    enough = nodes.gpu[node].shape[-1] * MILLI >= request[Request.GPU_MILLI]
    legal = (fits > 0) & has_job[:, None] & has_node[None, :]
    if reserving:
        legal &= undelaying_pairs(cluster, params, slot, node, fits)
    return Candidates(
        slot=slot,
        node=node,
        job=jnp.where(has_job, state.queue[slot].astype(jnp.int32), 0),
        request=request,
        has_job=has_job,
        has_node=has_node,
        fits=fits,
        legal=legal,
        allowed=(allowed == 1) & has_job[:, None] & enough[:, None],
    )


def to_action(candidates: Candidates, index: jax.Array, state: EnvState) -> jax.Array:
    """Environment action of candidate ``index``: k*M + m is a placement, K*M is WAIT; i32[]."""
    last = candidates.legal.size
    k, m = jnp.divmod(jnp.minimum(index, last - 1), candidates.node.shape[0])
    placement = candidates.slot[k] * state.free_cpu.shape[0] + candidates.node[m]
    return jnp.where(index == last, num_actions(state) - 1, placement).astype(jnp.int32)
