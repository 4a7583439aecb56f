"""Policies that judge (job, node) pairs at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsched.policies.easy import undelaying_pairs
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import capacity, free_nodes, leftover, legal_pairs, num_actions, startable
from jaxsched.types import NEVER, EnvParams


def first_pair(key: jax.Array, legal: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
    """Action of the legal pair with the least key f32/i32[Q, N], WAIT when no pair is legal.

    Ties go to the earlier job, then to best_fit's node, then to the lower node.
    """
    state = cluster.state
    big = jnp.asarray(NEVER, jnp.int32)
    high = jnp.inf if jnp.issubdtype(key.dtype, jnp.floating) else NEVER
    best = legal & (key == jnp.where(legal, key, high).min())
    job = jnp.where(best, state.queue.astype(jnp.int32)[:, None], big)
    best = best & (job == job.min())
    spare = leftover(cluster.view.request[:, :, None], free_nodes(state, params))
    spare = jnp.where(best, spare, big)
    best = best & (spare == spare.min())
    action = jnp.arange(best.size, dtype=jnp.int32).reshape(best.shape)
    return jnp.where(best, action, num_actions(state) - 1).min()


def pair_estimates(cluster: Cluster, params: EnvParams) -> jax.Array:
    """i32[Q, N]: estimated ticks of each queued job on each node; garbage in empty slots."""
    state = cluster.state
    by_model = params.pool.estimate[state.world, jnp.maximum(state.queue, 0)]
    return by_model[:, params.pool.node_model[state.world]]


def spt_pair(policy_params: Any, key: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
    """Shortest processing time over pairs: the least estimated run time among the legal (job, node) pairs."""
    legal = legal_pairs(cluster.state, params, cluster.view)
    return first_pair(pair_estimates(cluster, params), legal, cluster, params)


def spt_pair_easy(policy_params: Any, key: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
    """``spt_pair`` among the placements that do not delay the shortest job of the queue, WAIT when there is none."""
    state, view = cluster
    slots = jnp.arange(state.queue.shape[0])
    nodes = jnp.arange(state.free_cpu.shape[0])
    fits = capacity(view.request[:, :, None], free_nodes(state, params))
    legal = (fits > 0) & startable(state, view)[:, None]
    legal &= undelaying_pairs(cluster, params, slots, nodes, fits)
    return first_pair(pair_estimates(cluster, params), legal, cluster, params)
