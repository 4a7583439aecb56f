"""Placement scores: which node a chosen job goes to. Every score is an integer.

A placement is a function ``(request, nodes, situation) -> Choice`` for one instance of one job. Nodes where the job
cannot start are left out by the caller's mask; the least key wins, ties go to the lower node index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import FreeNodes, capacity, free_nodes, is_fraction, leftover
from jaxsched.sim.place import first_minimum
from jaxsched.types import MILLI, NEVER, EnvParams, EnvState, Request

CPU_SCALE = 128_000  # MaxSpecCpu and MaxSpecGpu of the FGD study's simulator, milli
GPU_SCALE = 8_000


class Situation(NamedTuple):
    """What a score may look at besides the job's request and the free nodes."""

    state: EnvState
    params: EnvParams
    job: jax.Array  # i32[]
    draw: jax.Array  # i32[] uniform in [0, 2^30), for the random placement


class Choice(NamedTuple):
    """Keys of all nodes, and the device a fraction should use on each (0: the default rule, else 1 + device)."""

    key: jax.Array  # i32[N]
    device: jax.Array  # i32[N]


Placement = Callable[[jax.Array, FreeNodes, Situation], Choice]


def _any_device(key: jax.Array) -> Choice:
    return Choice(key, jnp.zeros_like(key))


def first_fit(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Lowest node index."""
    return _any_device(jnp.zeros_like(nodes.cpu))


def best_fit(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Least leftover of the resource that the job is short of."""
    return _any_device(leftover(request[:, None], nodes))


def worst_fit(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Greatest leftover; a fraction goes to the emptiest device."""
    emptiest = nodes.gpu.max(-1)
    index = jnp.arange(nodes.gpu.shape[-1], dtype=jnp.int32)
    device = jnp.where(nodes.gpu == emptiest[:, None], index, index.shape[0]).min(-1)
    fraction = is_fraction(request)
    spare = jnp.where(fraction, emptiest - request[Request.GPU_MILLI], leftover(request[:, None], nodes))
    return Choice(-spare, jnp.where(fraction, device + 1, 0))


def fastest(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Least estimated run time, then best_fit."""
    state, params, job, _ = situation
    run_time = params.pool.estimate[state.world, job][nodes.model]
    fits = capacity(request[:, None], nodes) > 0
    least = jnp.where(fits, run_time, NEVER).min()
    return _any_device(jnp.where(run_time == least, leftover(request[:, None], nodes), NEVER - 1))


def random(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Uniform over the nodes that fit: the (draw mod count)-th of them."""
    fits = capacity(request[:, None], nodes) > 0
    place = jnp.cumsum(fits, dtype=jnp.int32) - 1
    chosen = situation.draw % jnp.maximum(fits.sum(dtype=jnp.int32), 1)
    return _any_device((place != chosen).astype(jnp.int32))


def dot_product(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """DotProd of the FGD study: 100 - ceil(100 (C c/128000^2 + G g/8000^2) / 2), largest first.

    With both terms over the common denominator the ceiling is ceil((C c/256 + G g) / 1 280 000); C c needs more than
    32 bits, so C is split into bytes. Exact for cpu_milli below 2^20.
    """
    cpu = jnp.maximum(nodes.cpu, 0).astype(jnp.uint32)
    need = request[Request.CPU_MILLI].astype(jnp.uint32)
    low = (cpu & 255) * need
    whole = (cpu >> 8) * need + (low >> 8)
    gpu = nodes.gpu.sum(-1) * request[Request.NUM_GPU] * request[Request.GPU_MILLI]
    total = whole + gpu.astype(jnp.uint32) + ((low & 255) > 0)
    return _any_device(((total + 1_279_999) // 1_280_000).astype(jnp.int32))


def best_fit_vector(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """BestFit of the FGD study: 100 - ceil(50 (dC/128000 + dG/8000)), d = left after placing; largest first."""
    cpu = nodes.cpu - request[Request.CPU_MILLI]
    gpu = nodes.gpu.sum(-1) - request[Request.NUM_GPU] * request[Request.GPU_MILLI]
    return _any_device((cpu + (CPU_SCALE // GPU_SCALE) * gpu + 2559) // 2560)


def gpu_packing(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """GpuPacking of the FGD study: shared devices before untouched ones of a used node before empty nodes."""
    num_gpu, milli = request[Request.NUM_GPU], request[Request.GPU_MILLI]
    untouched = nodes.gpu == MILLI
    idle = untouched.sum(-1, dtype=jnp.int32)
    devices = situation.params.pool.node_gpus[situation.state.world]
    tightest = jnp.where(nodes.gpu >= milli, nodes.gpu, 2 * MILLI).min(-1)
    used = jnp.where(is_fraction(request), tightest * 100 // MILLI, num_gpu * 100)
    taken_idle = jnp.where(is_fraction(request), (tightest == MILLI).astype(jnp.int32), num_gpu)
    partly = jnp.where(taken_idle > 0, jnp.maximum(50 - taken_idle, 33), jnp.maximum(100 - used // 10, 50))
    score = jnp.where(idle == devices, jnp.maximum(33 - idle, idle), partly)
    return _any_device(jnp.where(num_gpu > 0, -score, 0))


def _running_tags(state: EnvState, params: EnvParams) -> jax.Array:
    """i32[N] bit set of what GPU jobs run on each node: bit 0 fractions, bit k jobs of k whole devices."""
    request = params.pool.request[state.world, jnp.maximum(state.run_job, 0)].T
    tag = jnp.where(is_fraction(request), 0, request[Request.NUM_GPU])
    counts = (state.run_job >= 0) & (request[Request.NUM_GPU] > 0)
    num_nodes, kinds = state.free_cpu.shape[0], state.free_gpu.shape[1] + 1
    here = state.run_node[None, :] == jnp.arange(num_nodes)[:, None]
    present = (here & counts)[:, :, None] & (tag[None, :, None] == jnp.arange(kinds))
    return (present.any(1).astype(jnp.int32) << jnp.arange(kinds)).sum(-1)


def gpu_clustering(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """GpuClustering of the FGD study: jobs of the same size together."""
    tags = _running_tags(situation.state, situation.params)
    mine = 1 << jnp.where(is_fraction(request), 0, request[Request.NUM_GPU])
    base = 25 * (GPU_SCALE - nodes.gpu.sum(-1)) // GPU_SCALE
    bonus = jnp.where(tags == mine, 75, jnp.where((tags & mine) > 0, 50, jnp.where(tags == 0, 25, 0)))
    return _any_device(jnp.where(request[Request.NUM_GPU] > 0, -(base + bonus), 0))


def choose_node(
    placement: Placement, cluster: Cluster, params: EnvParams, slot: jax.Array, draw: jax.Array
) -> jax.Array:
    """The action (device named where the placement does) that starts the job of ``slot``, i32[]."""
    state = cluster.state
    request = cluster.view.request[:, slot]
    job = jnp.maximum(state.queue[slot], 0).astype(jnp.int32)
    nodes = free_nodes(state, params)
    choice = placement(request, nodes, Situation(state, params, job, draw))
    fits = capacity(request[:, None], nodes) > 0
    node = first_minimum(jnp.where(fits, choice.key, NEVER))
    node = jnp.minimum(node, fits.shape[0] - 1)
    single = request[Request.INSTANCES] == 1
    device = jnp.where(single, choice.device[node], 0)
    num_nodes = fits.shape[0]
    return slot * num_nodes + node + device * (state.queue.shape[0] * num_nodes + 1)
