"""Running a policy on a cluster to the end of its window, in one compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsched.sim.clock import HOLD, Cluster, Record, has_choice, micro_step, start_cluster, wait_or_hold
from jaxsched.sim.state import is_finished
from jaxsched.types import NEVER, EnvConfig, EnvParams, Schedule


def while_any(cond: Callable, body: Callable, operand: Any, carry: Any) -> Any:
    """``lax.while_loop`` whose batched form runs until no row wants to go on.

    What ``body`` does to a row whose ``cond`` is false must not matter. The stock batching rule copies the whole carry
    through a select on every turn; this one does not.
    """

    @custom_vmap
    def loop(operand, carry):
        return jax.lax.while_loop(lambda c: cond(operand, c), lambda c: body(operand, c), carry)

    @loop.def_vmap
    def _batched(axis_size, in_batched, operand, carry):
        operand_axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched[0])
        carry = jax.tree.map(
            lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf))),
            carry,
            in_batched[1],
        )
        batched_cond = jax.vmap(cond, in_axes=(operand_axes, 0))
        batched_body = jax.vmap(body, in_axes=(operand_axes, 0))
        out = while_any(lambda o, c: batched_cond(o, c).any(), batched_body, operand, carry)
        return out, jax.tree.map(lambda _: True, out)

    return loop(operand, carry)


class Log(NamedTuple):
    """The part of ``Schedule`` that grows during a run."""

    start: jax.Array  # i32[J]
    finish: jax.Array  # i32[J]
    part_job: jax.Array  # i32[L]
    part_node: jax.Array  # i32[L]
    part_instances: jax.Array  # i32[L]
    part_devices: jax.Array  # i8[L, G]
    num_parts: jax.Array  # i32[]
    events: jax.Array  # i32[]


def _empty_log(config: EnvConfig, parts: int) -> Log:
    def never() -> jax.Array:
        return jnp.full((config.num_jobs,), NEVER, jnp.int32)

    def minus() -> jax.Array:
        return jnp.full((parts,), -1, jnp.int32)

    zero = jnp.zeros((), jnp.int32)
    devices = jnp.zeros((parts, config.gpus_per_node), jnp.int8)
    return Log(never(), never(), minus(), minus(), jnp.zeros((parts,), jnp.int32), devices, zero, zero)


def _write_if(array: jax.Array, index: jax.Array, wanted: jax.Array, value: jax.Array) -> jax.Array:
    """Set ``array[index]`` where ``wanted``; an index past the end writes nothing."""
    return array.at[jnp.where(wanted, index, array.shape[0])].set(value.astype(array.dtype), mode="drop")


def _write_log(log: Log, record: Record) -> Log:
    events = record.started.astype(jnp.int32) + record.ended + record.admitted
    log = log._replace(
        start=_write_if(log.start, record.job, record.started, record.tick),
        finish=_write_if(log.finish, record.job, record.ended, record.tick),
        events=log.events + events,
    )
    if log.part_job.shape[0] == 0:
        return log
    at = log.num_parts
    return log._replace(
        part_job=_write_if(log.part_job, at, record.placed, record.job),
        part_node=_write_if(log.part_node, at, record.placed, record.node),
        part_instances=_write_if(log.part_instances, at, record.placed, record.instances),
        part_devices=_write_if(log.part_devices, at, record.placed, record.devices),
        num_parts=at + record.placed,
    )


class Operand(NamedTuple):
    """What a run reads and never changes."""

    params: EnvParams
    policy_params: Any
    key: jax.Array
    until: jax.Array  # i32[] tick


class Carry(NamedTuple):
    """What a run changes."""

    cluster: Cluster
    log: Log
    turns: jax.Array  # i32[] micro-steps; not those in which a row of a batch held still for the others


def _apply(operand: Operand, carry: Carry, action: jax.Array) -> Carry:
    cluster, record = micro_step(operand.params, carry.cluster, action)
    return Carry(cluster, _write_log(carry.log, record), carry.turns + (action != HOLD))


def _go_on(operand: Operand, carry: Carry) -> Carry:
    return _apply(operand, carry, wait_or_hold(carry.cluster, operand.params))


def _turn(policy: Any, unfinished: Callable, operand: Operand, carry: Carry) -> Carry:
    """Ask the policy and obey; a costly one is asked again only at the next choice."""
    key = jax.random.fold_in(operand.key, carry.cluster.state.steps)
    action = policy.decide(operand.policy_params, key, carry.cluster, operand.params)
    carry = _apply(operand, carry, action)
    if not policy.costly:
        return carry

    def without_choice(operand: Operand, carry: Carry) -> jax.Array:
        return unfinished(operand, carry) & ~has_choice(carry.cluster, operand.params)

    return while_any(without_choice, _go_on, operand, carry)


@partial(jax.jit, static_argnames=("policy", "config", "parts"))
def run(
    policy: Any,
    policy_params: Any,
    key: jax.Array,
    params: EnvParams,
    world: jax.Array,
    config: EnvConfig,
    until: jax.Array | int = NEVER,
    parts: bool = True,
) -> Schedule:
    """Let ``policy`` schedule window ``world`` of the pool until all its jobs have ended.

    Unbatched; ``vmap`` it over ``world`` (and over ``policy_params`` or ``key``). Decision i sees
    ``fold_in(key, i)``.

    Args:
        policy: a ``Policy``; one that is ``costly`` is asked only where some job could start.
        until: i32[] tick; the run stops after the first event past it (which the log may still hold).
        parts: whether to log where each part ran; without it the part fields have length 0.
    """
    length = max(config.max_parts, config.num_jobs)
    limit = (
        4 * (config.num_jobs + length) + 1000
    )  # every turn handles an event; this only stops a broken policy

    def unfinished(operand: Operand, carry: Carry) -> jax.Array:
        state = carry.cluster.state
        return ~is_finished(state, operand.params) & (state.time <= operand.until) & (carry.turns < limit)

    operand = Operand(params, policy_params, key, jnp.asarray(until, jnp.int32))
    log = _empty_log(config, length if parts else 0)
    carry = Carry(start_cluster(config, params, world), log, jnp.zeros((), jnp.int32))
    carry = while_any(unfinished, partial(_turn, policy, unfinished), operand, carry)
    state = carry.cluster.state
    return Schedule(
        **carry.log._asdict(),
        time=state.time,
        queue_bound=state.queue_bound,
        running_bound=state.running_bound,
        complete=is_finished(state, params),
    )
