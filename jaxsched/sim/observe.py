"""What an agent sees of a cluster. Times are relative to now; every feature is of order one."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsched.sim.clock import Cluster, is_settled, next_instant
from jaxsched.sim.fit import capacity, free_nodes, legal_pairs, startable
from jaxsched.sim.state import is_finished
from jaxsched.types import MILLI, NEVER, EnvParams, Observation, Request

CPU_SCALE, MEMORY_SCALE, GPU_SCALE = 128_000.0, 786_432.0, 8.0  # the largest common node of the 2023 trace
TIME_SCALE = 10.0  # log1p(22 000 s): 0.24 for 10 s, 1.07 for 13 h, 1.30 for 130 h


def log_time(seconds: jax.Array) -> jax.Array:
    """log(1 + s)/10: between 0 and 2 for all times below 2^30 ticks, and never saturated."""
    return jnp.log1p(jnp.maximum(seconds, 0.0)) / TIME_SCALE


def _job_features(cluster: Cluster, params: EnvParams) -> jax.Array:
    state, view = cluster
    job = jnp.maximum(state.queue, 0)
    request = view.request.astype(jnp.float32)
    wait = (state.time - params.pool.arrival[state.world, job]) * params.tick_s
    least = params.pool.least_estimate[state.world, job] * params.tick_s
    features = (
        jnp.ones_like(wait),
        log_time(wait),
        log_time(least),
        request[Request.NUM_GPU] * request[Request.GPU_MILLI] / (MILLI * GPU_SCALE),
        request[Request.GPU_MILLI] / MILLI,
        request[Request.CPU_MILLI] / CPU_SCALE,
        request[Request.MEMORY_MIB] / MEMORY_SCALE,
        request[Request.INSTANCES] / GPU_SCALE,
    )
    return jnp.where((state.queue >= 0)[:, None], jnp.stack(features, -1), 0.0)


def _node_features(cluster: Cluster, params: EnvParams) -> jax.Array:
    nodes = free_nodes(cluster.state, params)
    devices = params.pool.node_gpus[cluster.state.world]
    features = (
        devices / GPU_SCALE,
        nodes.gpu.sum(-1) / (MILLI * GPU_SCALE),
        (nodes.gpu == MILLI).sum(-1) / GPU_SCALE,
        nodes.gpu.max(-1) / MILLI,
        jnp.maximum(nodes.cpu, 0) / CPU_SCALE,
        nodes.memory / MEMORY_SCALE,
    )
    return jnp.stack([f.astype(jnp.float32) for f in features], -1)


def _pair_features(cluster: Cluster, params: EnvParams) -> jax.Array:
    state, view = cluster
    by_model = params.pool.estimate[state.world, jnp.maximum(state.queue, 0)]
    run_time = log_time(by_model * params.tick_s)[:, params.pool.node_model[state.world]]
    fits = capacity(view.request[:, :, None], free_nodes(state, params))
    share = fits / jnp.maximum(view.request[Request.INSTANCES], 1)[:, None]
    present = (state.queue >= 0)[:, None, None]
    return jnp.where(present, jnp.stack([run_time, share.astype(jnp.float32)], -1), 0.0)


def _context(cluster: Cluster, params: EnvParams) -> jax.Array:
    state = cluster.state
    running = (state.run_job >= 0).mean(dtype=jnp.float32)
    ends = jnp.where(state.run_job >= 0, jnp.maximum(state.run_estimate, state.time + 1), NEVER)
    soonest = jnp.where(state.run_job.max() >= 0, ends.min() - state.time, 0)
    features = (
        (state.queue >= 0).mean(dtype=jnp.float32),
        jnp.log1p((state.arrived - state.admitted).astype(jnp.float32)) / TIME_SCALE,
        running,
        log_time(soonest * params.tick_s),
    )
    return jnp.stack([jnp.asarray(f, jnp.float32) for f in features])


def action_mask(cluster: Cluster, params: EnvParams, offer_wait: bool) -> jax.Array:
    """bool[Q*N+1]: placements legal now; WAIT when nothing else is, or when it is offered and an event is to come."""
    state, view = cluster
    pairs = legal_pairs(state, params, view) & (is_settled(state, params) & ~is_finished(state, params))
    wait = ~startable(state, view).any() | is_finished(state, params)
    if offer_wait:
        wait = wait | (next_instant(state, params) != NEVER)
    return jnp.concatenate([pairs.reshape(-1), wait[None]])


def observe(cluster: Cluster, params: EnvParams, offer_wait: bool) -> Observation:
    """The observation of a settled cluster."""
    return Observation(
        job=_job_features(cluster, params),
        node=_node_features(cluster, params),
        pair=_pair_features(cluster, params),
        context=_context(cluster, params),
        action_mask=action_mask(cluster, params, offer_wait),
    )
