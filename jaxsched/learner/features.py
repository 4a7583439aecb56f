"""Numbers that describe candidate jobs, nodes and pairs to the network.

Everything is relative to now and to the cluster (shares, ratios, logarithms of ratios), so that a network
trained on one size and one time scale can be used on another. Policies see estimates only. Nothing saturates early
and nothing is large: for jobs and waits of up to a year and gangs of up to 64 GPUs all lie within -8..16.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.learner.candidates import Candidates
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import free_nodes, is_fraction, leftover, startable
from jaxsched.types import MILLI, EnvParams, Request

JOB_FEATURES, NODE_FEATURES, PAIR_FEATURES, CONTEXT_FEATURES = 9, 8, 10, 6
RUN_TIME = 1  # which pair feature grows in proportion to the run time
HOUR = 3600.0


class Features(NamedTuple):
    """Inputs of the network for one decision."""

    job: jax.Array  # f32[K, JOB_FEATURES]
    node: jax.Array  # f32[M, NODE_FEATURES]
    pair: jax.Array  # f32[K, M, PAIR_FEATURES]
    context: jax.Array  # f32[CONTEXT_FEATURES]
    has_job: jax.Array  # bool[K]
    allowed: jax.Array  # bool[K, M] edges of the graph
    legal: jax.Array  # bool[K, M] placements that may be chosen


def log_hours(seconds: jax.Array) -> jax.Array:
    """log(1 + s/60) / 4: 0 at once, 1 at an hour, 1.7 at fifteen; grows for ever."""
    return jnp.log1p(jnp.maximum(seconds, 0.0) / 60.0) / 4.0


def _seconds(ticks: jax.Array, params: EnvParams) -> jax.Array:
    return ticks.astype(jnp.float32) * params.tick_s


def _job_features(cluster: Cluster, params: EnvParams, c: Candidates) -> jax.Array:
    state = cluster.state
    wait = _seconds(state.time - params.pool.arrival[state.world, c.job], params)
    least = _seconds(params.pool.least_estimate[state.world, c.job], params)
    request = c.request.astype(jnp.float32)
    devices = request[Request.NUM_GPU] * request[Request.GPU_MILLI] / MILLI
    total = devices * request[Request.INSTANCES]
    features = (
        log_hours(least),
        jnp.minimum(least / HOUR, 8.0) / 4.0,
        log_hours(wait),
        jnp.log1p(wait / jnp.maximum(least, 10.0)) / 4.0,
        total / 8.0,
        log_hours(least * total),
        is_fraction(c.request).astype(jnp.float32),
        (request[Request.INSTANCES] - 1.0) / 4.0,
        (c.legal.sum(-1) / jnp.maximum(c.has_node.sum(), 1)).astype(jnp.float32),
    )
    return jnp.where(c.has_job[:, None], jnp.stack(features, -1), 0.0)


def _next_release(cluster: Cluster, params: EnvParams, c: Candidates) -> tuple[jax.Array, jax.Array]:
    """Per candidate node: seconds to its first estimated end, and milli-GPU-seconds of work left on it."""
    state = cluster.state
    busy = state.run_job >= 0
    left = _seconds(jnp.maximum(state.run_estimate - state.time, 1), params)
    here = (state.run_node[None, :] == c.node[:, None]) & busy[None, :]
    soonest = jnp.where(here, left[None, :], jnp.inf).min(-1)
    milli = params.pool.request[state.world, jnp.maximum(state.run_job, 0), Request.GPU_MILLI]
    work = jnp.where(busy, state.run_taken.sum(-1) * milli * left / MILLI, 0.0)
    return jnp.where(here.any(-1), soonest, 0.0), jnp.where(here, work[None, :], 0.0).sum(-1)


def _node_features(cluster: Cluster, params: EnvParams, c: Candidates, speed: jax.Array) -> jax.Array:
    state = cluster.state
    nodes = free_nodes(state, params)
    gpu = nodes.gpu[c.node]
    devices = jnp.maximum(params.pool.node_gpus[state.world, c.node], 1).astype(jnp.float32)
    soonest, work = _next_release(cluster, params, c)
    whole = params.pool.node_cpu[state.world, c.node].astype(jnp.float32)
    features = (
        devices / 8.0,
        gpu.sum(-1) / (MILLI * devices),
        (gpu == MILLI).sum(-1) / devices,
        ((gpu > 0) & (gpu < MILLI)).sum(-1) / devices,
        log_hours(soonest),
        log_hours(work / devices),
        nodes.cpu[c.node] / jnp.maximum(whole, 1.0),
        speed,
    )
    return jnp.where(c.has_node[:, None], jnp.stack([f.astype(jnp.float32) for f in features], -1), 0.0)


def _pair_features(cluster: Cluster, params: EnvParams, c: Candidates, run: jax.Array) -> jax.Array:
    state = cluster.state
    nodes = jax.tree.map(lambda field: field[c.node], free_nodes(state, params))
    least = _seconds(params.pool.least_estimate[state.world, c.job], params)[:, None]
    request = c.request[:, :, None]
    spare = leftover(request, nodes).astype(jnp.float32)
    on_gpu = c.request[Request.NUM_GPU][:, None] > 0
    spare = jnp.where(on_gpu, jnp.where(is_fraction(c.request)[:, None], spare / MILLI, spare), 0.0)
    devices = (c.request[Request.NUM_GPU] * c.request[Request.GPU_MILLI])[:, None] / MILLI
    taken = devices * jnp.minimum(c.fits, c.request[Request.INSTANCES][:, None])
    best = jnp.where(c.legal, run, jnp.inf).min()
    best = jnp.where(jnp.isfinite(best), best, 0.0)
    features = (
        log_hours(run),
        jnp.minimum(run / HOUR, 8.0) / 4.0,
        jnp.log((run + 1.0) / (least + 1.0)),
        jnp.minimum((run - least) / HOUR, 8.0) / 4.0,
        jnp.log((run + 1.0) / (best + 1.0)) / 4.0,
        jnp.minimum(spare, 8.0) / 8.0,
        (spare == 0).astype(jnp.float32),
        taken / jnp.maximum(nodes.gpu.sum(-1) / MILLI, 0.05)[None, :],
        (c.fits < c.request[Request.INSTANCES][:, None]).astype(jnp.float32),
        log_hours(run * devices * c.request[Request.INSTANCES][:, None]),
    )
    return jnp.where(c.legal[:, :, None], jnp.stack([jnp.asarray(f, jnp.float32) for f in features], -1), 0.0)


def _context(cluster: Cluster, params: EnvParams) -> jax.Array:
    state, view = cluster
    queued = state.queue >= 0
    job = jnp.maximum(state.queue, 0).astype(jnp.int32)
    least = _seconds(params.pool.least_estimate[state.world, job], params)
    milli = view.request[Request.NUM_GPU] * view.request[Request.GPU_MILLI] * view.request[Request.INSTANCES]
    devices = jnp.maximum(params.pool.node_gpus[state.world].sum(), 1).astype(jnp.float32)
    work = jnp.where(queued, least * milli / MILLI, 0.0).sum()
    features = (
        jnp.log1p(queued.sum().astype(jnp.float32)) / 4.0,
        jnp.log1p((state.arrived - state.admitted).astype(jnp.float32)) / 4.0,
        jnp.log1p(startable(state, view).sum().astype(jnp.float32)) / 4.0,
        state.free_gpu.sum(dtype=jnp.int32).astype(jnp.float32) / (MILLI * devices),
        log_hours(work / devices),
        jnp.log(devices) / 4.0,
    )
    return jnp.stack([jnp.asarray(f, jnp.float32) for f in features])


def describe(cluster: Cluster, params: EnvParams, c: Candidates) -> Features:
    """Features of one settled cluster and its candidates."""
    state = cluster.state
    model = params.pool.node_model[state.world, c.node]
    run = _seconds(params.pool.estimate[state.world, c.job], params)[:, model]
    least = _seconds(params.pool.least_estimate[state.world, c.job], params)[:, None]
    ratio = jnp.log((run + 1.0) / (least + 1.0))
    pairs = c.allowed & c.has_node[None, :]
    speed = jnp.where(pairs, ratio, 0.0).sum(0) / jnp.maximum(pairs.sum(0), 1)
    return Features(
        job=_job_features(cluster, params, c),
        node=_node_features(cluster, params, c, speed),
        pair=_pair_features(cluster, params, c, run),
        context=_context(cluster, params),
        has_job=c.has_job,
        allowed=pairs,
        legal=c.legal,
    )
