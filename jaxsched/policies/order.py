"""Queue orders and blocking rules: which job a policy starts next."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import startable
from jaxsched.types import NUM_STATIC_ORDERS, EnvParams, Order

NO_JOB = np.float32(np.inf)


def order_keys(order: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
    """f32[Q]: the smaller the earlier; inf in empty slots. ``order`` is an i32[] of ``Order``.

    Static orders are host-made ranks (exact in float32 below 2^24 jobs). wfp3 is -(wait/e)^3 n, unicep is
    -wait/(log2(n) e): Tang et al. 2009 and Carastan-Santos & de Camargo 2017, with e the least estimate.
    """
    state = cluster.state
    job = jnp.maximum(state.queue, 0).astype(jnp.int32)
    world = state.world
    rank = params.pool.rank[world, job, jnp.minimum(order, NUM_STATIC_ORDERS - 1)].astype(jnp.float32)
    wait = (state.time - params.pool.arrival[world, job]).astype(jnp.float32)
    urgency = params.pool.urgency[world, job]
    wfp3 = -(((wait * wait) * wait) * urgency[:, 0])
    unicep = -(wait * urgency[:, 1])
    key = jnp.where(order == Order.WFP3, wfp3, jnp.where(order == Order.UNICEP, unicep, rank))
    return jnp.where(state.queue >= 0, key, NO_JOB)


def first_slot(keys: jax.Array, eligible: jax.Array, cluster: Cluster) -> tuple[jax.Array, jax.Array]:
    """Slot of the first eligible job in order (ties to the earlier job row) and whether there is one."""
    job = cluster.state.queue.astype(jnp.int32)
    best = jnp.where(eligible, keys, NO_JOB).min()
    among = eligible & (keys == best)
    row = jnp.where(among, job, jnp.iinfo(jnp.int32).max).min()
    slots = jnp.arange(job.shape[0], dtype=jnp.int32)
    slot = jnp.where(among & (job == row), slots, job.shape[0]).min()
    found = eligible.any()
    return jnp.where(found, slot, 0), found


def skip_or_strict(keys: jax.Array, strict: jax.Array, cluster: Cluster) -> tuple[jax.Array, jax.Array]:
    """The first job that fits (skip), or the first job of all if it fits (strict)."""
    fits = startable(cluster.state, cluster.view)
    waiting = cluster.state.queue >= 0
    slot, found = first_slot(keys, jnp.where(strict, waiting, fits), cluster)
    return slot, found & fits[slot]
