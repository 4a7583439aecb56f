"""A time-major ring of experience on the device.

Capacity is a whole number of chunks, so that a chunk is written by one slice update and never wraps inside. The next
state of row t is row t + 1 of the same column; nothing is stored twice. Rows are written *before* auto-reset: the
last state of an episode has a row of its own, marked ``final``, from which no transition starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Row(NamedTuple):
    """One time step of one cluster."""

    state: Any  # EnvState
    action: jax.Array  # i32[] candidate index
    reward: jax.Array  # f32[]
    discount: jax.Array  # f32[] exp(-beta dt)
    terminated: jax.Array  # bool[] the step from here ended the episode
    final: jax.Array  # bool[] last state of an episode: action and reward are void


class Ring(NamedTuple):
    """Rows [T, B] and where the next chunk goes."""

    rows: Any  # leaves [T, B, ...]
    head: jax.Array  # i32[] next time row to write
    size: jax.Array  # i32[] time rows filled


class Sample(NamedTuple):
    """n-step transitions, leaves [batch, ...]."""

    state: Any
    action: jax.Array  # i32
    ret: jax.Array  # f32 discounted sum of the rewards up to the bootstrap state
    discount: jax.Array  # f32 discount of the bootstrap value, 0 after termination
    next_state: Any
    weight: jax.Array  # f32 0 for rows from which no transition starts


def empty_ring(row: Any, columns: int, capacity: int) -> Ring:
    """An empty ring of ``capacity`` time rows by ``columns``, each shaped like ``row`` (unbatched)."""
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, columns, *leaf.shape), leaf.dtype), row)
    head, size = (
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
    )  # apart: one buffer cannot be donated twice
    return Ring(rows, head, size)


def ring_bytes(ring: Ring) -> int:
    """Device memory of the rows; the ring may be one of shapes alone."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(ring.rows))


def write_chunk(ring: Ring, chunk: Any) -> Ring:
    """Write a chunk, leaves [L, B, ...]; L must divide the capacity. Stored dtypes never change."""
    length = jax.tree.leaves(chunk)[0].shape[0]
    capacity = jax.tree.leaves(ring.rows)[0].shape[0]

    def write(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), ring.head, axis=0)

    rows = jax.tree.map(write, ring.rows, chunk)
    return Ring(rows, (ring.head + length) % capacity, jnp.minimum(ring.size + length, capacity))


def sample_transitions(ring: Ring, key: jax.Array, batch: int, n_step: int) -> Sample:
    """``batch`` n-step transitions, uniform with replacement over all rows with n successors in the ring.

    The ring must hold more than ``n_step`` time rows.

    A transition that meets the end of an episode stops there: at a termination its bootstrap discount is 0, at a
    truncation it bootstraps from the true final state. Rows marked final get weight 0.
    """
    capacity, num_envs = ring.rows.reward.shape
    time_key, env_key = jax.random.split(key)
    age = jax.random.randint(time_key, (batch,), 0, jnp.maximum(ring.size - n_step, 1))
    start = (ring.head - ring.size + age) % capacity
    column = jax.random.randint(env_key, (batch,), 0, num_envs)
    return transitions_from(ring, start, column, n_step)


def transitions_from(ring: Ring, start: jax.Array, column: jax.Array, n_step: int) -> Sample:
    """n-step transitions that start at time rows ``start`` i32[batch] of columns ``column`` i32[batch]."""
    rows, capacity = ring.rows, ring.rows.reward.shape[0]
    final = rows.final[start, column]
    zero, one = jnp.zeros(start.shape), jnp.ones(start.shape)

    def look(carry: tuple, step: jax.Array) -> tuple[tuple, None]:
        ret, discount, alive, length = carry
        at = (start + step) % capacity
        going = alive & ~rows.final[at, column]
        ret = ret + jnp.where(going, discount * rows.reward[at, column], 0.0)
        discount = discount * jnp.where(going, rows.discount[at, column], 1.0)
        discount = jnp.where(going & rows.terminated[at, column], 0.0, discount)
        return (ret, discount, going, length + going), None

    begin = (zero, one, ~final, jnp.zeros(start.shape, jnp.int32))
    (ret, discount, _, length), _ = jax.lax.scan(look, begin, jnp.arange(n_step))
    after = (start + length) % capacity
    return Sample(
        state=jax.tree.map(lambda leaf: leaf[start, column], rows.state),
        action=rows.action[start, column],
        ret=ret,
        discount=discount,
        next_state=jax.tree.map(lambda leaf: leaf[after, column], rows.state),
        weight=(~final).astype(jnp.float32),
    )
