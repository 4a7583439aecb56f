"""Feasibility: how many instances of a job a node could take now, and which actions are legal."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.types import MILLI, NEVER, EnvParams, EnvState, Request


class FreeNodes(NamedTuple):
    """Free resources of one or more nodes; every field shares the leading shape ``[...]``."""

    cpu: jax.Array  # i32[...]
    memory: jax.Array  # i32[...]
    gpu: jax.Array  # i32[..., G] free milli of each device
    model: jax.Array  # i32[...] model column


def is_fraction(request: jax.Array) -> jax.Array:
    """Does the job share a device? ``request`` is i32[6, ...]."""
    return (request[Request.NUM_GPU] == 1) & (request[Request.GPU_MILLI] < MILLI)


def floor_divide(numerator: jax.Array, divisor: jax.Array) -> jax.Array:
    """Exact ``numerator // divisor`` for 0 <= numerator < 2^24: float division vectorises, integer does not.

    The quotient is corrected by one where needed, because XLA may multiply by a rounded reciprocal instead.
    """
    quotient = (numerator.astype(jnp.float32) / divisor.astype(jnp.float32)).astype(jnp.int32)
    rest = numerator - quotient * divisor
    return quotient + (rest >= divisor) - (rest < 0)


def small_floor_divide(numerator: jax.Array, divisor: jax.Array) -> jax.Array:
    """Exact ``numerator // divisor`` for 0 <= numerator < 2^16, as it is for devices and their milli.

    Half a unit keeps the quotient further from the next integer than any rounding of a reciprocal reaches.
    """
    return ((numerator.astype(jnp.float32) + 0.5) / divisor.astype(jnp.float32)).astype(jnp.int32)


def _times_fitting(free: jax.Array, need: jax.Array) -> jax.Array:
    """How often ``need`` goes into ``free``; NEVER for a zero need, 0 on padding (negative free)."""
    times = floor_divide(jnp.maximum(free, 0), jnp.maximum(need, 1))
    return jnp.where(free < 0, 0, jnp.where(need > 0, times, NEVER))


def capacity(request: jax.Array, nodes: FreeNodes) -> jax.Array:
    """Instances (at most the gang's size) that each node could take at once.

    ``request`` i32[6, ...] broadcasts against the node fields; returns i32[...]. A fraction needs one
    device with enough left, whole devices need that many untouched ones.
    """
    num_gpu, milli = request[Request.NUM_GPU], request[Request.GPU_MILLI]
    shares = small_floor_divide(nodes.gpu, jnp.maximum(milli, 1)[..., None]).sum(-1)
    untouched = (nodes.gpu == MILLI).sum(-1, dtype=jnp.int32)
    groups = small_floor_divide(untouched, jnp.maximum(num_gpu, 1))
    by_gpu = jnp.where(num_gpu == 0, NEVER, jnp.where(is_fraction(request), shares, groups))
    by_cpu = _times_fitting(nodes.cpu, request[Request.CPU_MILLI])
    by_memory = _times_fitting(nodes.memory, request[Request.MEMORY_MIB])
    allowed = (request[Request.MODELS] >> nodes.model) & 1
    fits = jnp.minimum(jnp.minimum(by_gpu, by_cpu), jnp.minimum(by_memory, request[Request.INSTANCES]))
    return fits * allowed


def leftover(request: jax.Array, nodes: FreeNodes) -> jax.Array:
    """best_fit's leftover for one instance, i32[...]; only meaningful where the instance fits.

    Fraction: milli left on the tightest device that fits. Whole devices: untouched devices left.
    CPU-only: free cpu_milli left.
    """
    num_gpu, milli = request[Request.NUM_GPU], request[Request.GPU_MILLI]
    fitting = nodes.gpu >= milli[..., None]
    tightest = jnp.where(fitting, nodes.gpu, 2 * MILLI).min(-1) - milli
    untouched = (nodes.gpu == MILLI).sum(-1, dtype=jnp.int32) - num_gpu
    cpu = nodes.cpu - request[Request.CPU_MILLI]
    return jnp.where(num_gpu == 0, cpu, jnp.where(is_fraction(request), tightest, untouched))


def num_actions(state: EnvState) -> int:
    """Q*N placements and WAIT; WAIT is the last of them."""
    return state.queue.shape[0] * state.free_cpu.shape[0] + 1


class QueueView(NamedTuple):
    """What can be derived from the state about the queue, kept up to date by the fast loops.

    It is carried beside the state, never inside it, and ``view_queue`` rebuilds it from nothing.
    """

    request: jax.Array  # i32[6, Q] zeros in empty slots
    total: jax.Array  # i32[Q] sum over nodes of the capacity for the slot's job


def free_nodes(state: EnvState, params: EnvParams) -> FreeNodes:
    """The whole cluster's free resources, fields [N] and [N, G]."""
    return FreeNodes(
        state.free_cpu,
        state.free_memory,
        state.free_gpu.astype(jnp.int32),
        params.pool.node_model[state.world],
    )


def job_request(state: EnvState, params: EnvParams, job: jax.Array) -> jax.Array:
    """Request row of ``job``, i32[6]; zeros (which fit nowhere) for job -1."""
    row = params.pool.request[state.world, jnp.maximum(job, 0)]
    return jnp.where(job >= 0, row, 0)


def view_queue(state: EnvState, params: EnvParams) -> QueueView:
    """Build the view of the queue from the state alone."""
    request = jax.vmap(lambda job: job_request(state, params, job), out_axes=1)(state.queue)
    nodes = free_nodes(state, params)
    return QueueView(request, capacity(request[:, :, None], nodes).sum(-1))


def free_rows(state: EnvState) -> jax.Array:
    """Empty rows of the running table, i32[]."""
    return (state.run_job < 0).sum(dtype=jnp.int32)


def fits_cluster(state: EnvState, view: QueueView) -> jax.Array:
    """bool[Q]: slots whose job the nodes could take now, were the running table unbounded."""
    return (state.queue >= 0) & (view.total >= view.request[Request.INSTANCES])


def startable(state: EnvState, view: QueueView) -> jax.Array:
    """bool[Q]: slots whose job could start now on some node."""
    rows = jnp.minimum(view.request[Request.INSTANCES], state.free_cpu.shape[0])
    return fits_cluster(state, view) & (rows <= free_rows(state))


def legal_pairs(state: EnvState, params: EnvParams, view: QueueView) -> jax.Array:
    """bool[Q, N]: placements that are legal now."""
    fits = capacity(view.request[:, :, None], free_nodes(state, params)) > 0
    return fits & startable(state, view)[:, None]
