"""The state at the start of a window, and how small its integers can be."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsched.types import MILLI, NEVER, EnvConfig, EnvParams, EnvState


def index_dtype(size: int) -> jnp.dtype:
    """The smallest signed integer that holds -1..size-1: the one place where the state is packed."""
    for dtype in (jnp.int8, jnp.int16):
        if size - 1 <= jnp.iinfo(dtype).max:
            return jnp.dtype(dtype)
    return jnp.dtype(jnp.int32)


def empty_state(config: EnvConfig, params: EnvParams, world: jax.Array) -> EnvState:
    """Cluster ``world`` of the pool with nothing running, before its first arrival is taken in."""
    q, r, g = config.queue, config.running, config.gpus_per_node
    job, node = index_dtype(config.num_jobs), index_dtype(config.num_nodes)
    zero = jnp.zeros((), jnp.int32)
    has_device = jnp.arange(g)[None, :] < params.pool.node_gpus[world][:, None]
    return EnvState(
        world=jnp.asarray(world, jnp.int32),
        time=zero,
        steps=zero,
        arrived=zero,
        admitted=zero,
        finished=zero,
        queue=jnp.full((q,), -1, job),
        free_gpu=jnp.where(has_device, MILLI, 0).astype(jnp.int16),
        free_cpu=params.pool.node_cpu[world],
        free_memory=params.pool.node_memory[world],
        run_end=jnp.full((r,), NEVER, jnp.int32),
        run_estimate=jnp.full((r,), NEVER, jnp.int32),
        run_job=jnp.full((r,), -1, job),
        run_node=jnp.zeros((r,), node),
        run_instances=jnp.zeros((r,), jnp.int16),
        run_taken=jnp.zeros((r, g), jnp.int8),
        gang_job=jnp.full((), -1, job),
        gang_left=jnp.zeros((), jnp.int16),
        queue_bound=zero,
        running_bound=zero,
    )


def state_bytes(state: EnvState) -> int:
    """Bytes of one (unbatched) state."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def is_finished(state: EnvState, params: EnvParams) -> jax.Array:
    """bool[]: nothing left to arrive, wait or run."""
    return state.finished >= params.pool.num_jobs[state.world]
