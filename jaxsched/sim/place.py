"""Which devices of a node a placement takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsched.sim.fit import FreeNodes, capacity, is_fraction, leftover, small_floor_divide
from jaxsched.types import MILLI, Request


def first_minimum(key: jax.Array) -> jax.Array:
    """Index of the first least element, i32[]: two min reductions are several times faster than argmin on CPU."""
    index = jnp.arange(key.shape[0], dtype=jnp.int32)
    return jnp.where(key == key.min(), index, key.shape[0]).min()


def _exclusive_sum(counts: jax.Array, before: jax.Array) -> jax.Array:
    """For each d the sum of counts[e] over all e with before[d, e]."""
    return jnp.where(before, counts[None, :], 0).sum(-1)


def take_devices(request: jax.Array, free: jax.Array, instances: jax.Array) -> jax.Array:
    """Instances put on each device of one node, i32[G].

    Fractions fill the tightest device that fits, then the next tightest (ties to the lower index);
    whole devices are the lowest-indexed untouched ones.

    Args:
        request: i32[6].
        free: i32[G] free milli of the node's devices.
        instances: i32[] how many of them, at most ``capacity``.
    """
    index = jnp.arange(free.shape[0])
    shares = small_floor_divide(free, jnp.maximum(request[Request.GPU_MILLI], 1))
    tighter = (free[None, :] < free[:, None]) | (
        (free[None, :] == free[:, None]) & (index[None, :] < index[:, None])
    )
    shared = jnp.clip(instances - _exclusive_sum(shares, tighter), 0, shares)
    untouched = (free == MILLI).astype(jnp.int32)
    earlier = index[None, :] < index[:, None]
    wanted = instances * request[Request.NUM_GPU]
    whole = jnp.clip(wanted - _exclusive_sum(untouched, earlier), 0, untouched)
    return jnp.where(is_fraction(request), shared, whole)


def allocate(request: jax.Array, nodes: FreeNodes, first: jax.Array) -> jax.Array:
    """Instances of a whole gang on each node, i32[N], when ``first`` is the node chosen for it.

    The rest goes to the other nodes in the order of best_fit's leftover (ties to the lower index).
    """
    request = request[:, None]
    cap = capacity(request, nodes)
    spare = leftover(request, nodes)
    index = jnp.arange(cap.shape[0])
    order = jnp.lexsort((index, spare, cap == 0, index != first))
    filled = jnp.cumsum(cap[order]) - cap[order]
    take = jnp.clip(request[Request.INSTANCES] - filled, 0, cap[order])
    return jnp.zeros_like(cap).at[order].set(take)
