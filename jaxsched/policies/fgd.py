"""Fragmentation gradient descent (Weng et al., USENIX ATC 2023), in integers.

F_n(m) is the idle milli-GPU of node n that class m cannot use; F_n weighs it by the class counts of
``EnvParams.fgd_class``. The score of a placement is trunc(100 sigmoid((F_n - F_n')/1000)), found by comparing the
integer gain with host-made thresholds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsched.policies.place import Choice, Situation
from jaxsched.sim.fit import FreeNodes, is_fraction
from jaxsched.sim.place import first_minimum, take_devices
from jaxsched.types import EnvParams, Request


def fragmentation(nodes: FreeNodes, classes: jax.Array) -> jax.Array:
    """Numerator of F_n, i32[...] for nodes [...]: sum over classes of count * unusable idle milli.

    Args:
        classes: i32[C, 6] with the count in the INSTANCES column.
    """
    row = classes.reshape(classes.shape[0], *[1] * nodes.cpu.ndim, classes.shape[1])
    milli = row[..., Request.GPU_MILLI]
    fits_device = nodes.gpu >= milli[..., None]
    idle = nodes.gpu.sum(-1)
    enough = (fits_device & (nodes.gpu > 0)).sum(-1) >= row[..., Request.NUM_GPU]
    allowed = ((row[..., Request.MODELS] >> nodes.model) & 1) == 1
    usable = (row[..., Request.NUM_GPU] > 0) & allowed & enough & (nodes.cpu >= row[..., Request.CPU_MILLI])
    too_small = jnp.where(fits_device, 0, nodes.gpu).sum(-1)
    return (row[..., Request.INSTANCES] * jnp.where(usable, too_small, idle)).sum(0)


def _after(request: jax.Array, nodes: FreeNodes, devices: jax.Array) -> FreeNodes:
    """Nodes [...] after one instance took ``devices`` i32[..., G]."""
    return nodes._replace(
        cpu=nodes.cpu - request[Request.CPU_MILLI], gpu=nodes.gpu - devices * request[Request.GPU_MILLI]
    )


def _score(gain: jax.Array, params: EnvParams) -> jax.Array:
    return jnp.searchsorted(params.fgd_threshold, gain, side="right", method="scan_unrolled").astype(
        jnp.int32
    )


def fgd(request: jax.Array, nodes: FreeNodes, situation: Situation) -> Choice:
    """Largest FGD score; a single fraction uses the first device with the node's best score."""
    params = situation.params
    before = fragmentation(nodes, params.fgd_class)
    num_devices = nodes.gpu.shape[-1]
    one = jnp.ones((), jnp.int32)
    default = jax.vmap(lambda free: take_devices(request, free, one))(nodes.gpu)
    score = _score(before - fragmentation(_after(request, nodes, default), params.fgd_class), params)

    tried = jnp.eye(num_devices, dtype=jnp.int32)[:, None, :]
    many = FreeNodes(*(field[None] for field in nodes))
    gains = before[None] - fragmentation(_after(request, many, tried), params.fgd_class)
    fits = (nodes.gpu >= request[Request.GPU_MILLI]).T
    by_device = jnp.where(fits, _score(gains, params), -1)
    device = jax.vmap(first_minimum, in_axes=1)(-by_device)
    single = is_fraction(request) & (request[Request.INSTANCES] == 1)
    key = -jnp.where(single, by_device.max(0), score)
    return Choice(key, jnp.where(single, device + 1, 0))
