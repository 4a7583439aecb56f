"""Reward functions: small, pure, chosen by name.

A reward function looks at one micro-step and returns a *cost rate* that held from the tick before to the tick after
it, and a *lump cost* charged at the tick after it. The environment integrates and discounts both:
reward = -(sum rate_i e^(-beta(t_i-t)) (1-e^(-beta D_i))/beta + sum lump_i e^(-beta(t_i-t))) / reward_scale.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxsched.sim.clock import Record
from jaxsched.types import MILLI, NEVER, EnvParams, EnvState

RewardFn = Callable[[EnvParams, EnvState, EnvState, Record], tuple[jax.Array, jax.Array]]


def jobs_in_system(state: EnvState) -> jax.Array:
    """f32[]: arrived and not finished, wherever they wait."""
    return (state.arrived - state.finished).astype(jnp.float32)


def jct(params: EnvParams, before: EnvState, after: EnvState, record: Record) -> tuple[jax.Array, jax.Array]:
    """Job-seconds in the system: undiscounted, the sum is -sum(JCT) exactly (Little's law)."""
    return jobs_in_system(before), jnp.float32(0)


def _end_of(state: EnvState, job: jax.Array) -> jax.Array:
    """Tick at which the placed parts of ``job`` end, -1 when none is placed."""
    return jnp.where(state.run_job == job, state.run_end, -1).max()


def immediate(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """Waiting job-seconds, and at a start the run time beyond the job's least one.

    The same objective as ``jct`` up to a constant (the sum of least run times), with the cost of a slow node
    charged when it is chosen instead of spread over its run.
    """
    waiting = before.arrived - before.admitted + (before.queue >= 0).sum(dtype=jnp.int32)
    least = before.time + params.pool.least_run_time[before.world, record.job]
    known = jnp.where(record.started, least, _end_of(before, record.job))
    excess = jnp.where(record.placed, _end_of(after, record.job) - known, 0)
    return waiting.astype(jnp.float32), excess.astype(jnp.float32) * params.tick_s


def _sojourn(params: EnvParams, after: EnvState, record: Record) -> jax.Array:
    """Seconds from arrival to end of the job that this micro-step ended."""
    return (after.time - params.pool.arrival[after.world, record.job]).astype(jnp.float32) * params.tick_s


def weighted(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """weight * JCT of each job, charged when it ends."""
    cost = params.pool.weight[after.world, record.job] * _sojourn(params, after, record)
    return jnp.float32(0), jnp.where(record.ended, cost, 0.0)


def slowdown(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """Bounded slowdown max(1, JCT / max(least run time, 10 s)) of each job, charged when it ends."""
    run = params.pool.least_run_time[after.world, record.job].astype(jnp.float32) * params.tick_s
    ratio = jnp.maximum(1.0, _sojourn(params, after, record) / jnp.maximum(run, 10.0))
    return jnp.float32(0), jnp.where(record.ended, ratio, 0.0)


def makespan(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """One per second until the last job has ended."""
    unfinished = before.finished < params.pool.num_jobs[before.world]
    return unfinished.astype(jnp.float32), jnp.float32(0)


def deadline(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """weight of each job that ends after its deadline, charged when it ends."""
    due = params.pool.deadline[after.world, record.job]
    late = record.ended & (due != NEVER) & (after.time > due)
    return jnp.float32(0), jnp.where(late, params.pool.weight[after.world, record.job], 0.0)


def energy(
    params: EnvParams, before: EnvState, after: EnvState, record: Record
) -> tuple[jax.Array, jax.Array]:
    """Joules drawn by all devices: a device draws its model's full power while anything runs on it."""
    model = params.pool.node_model[before.world]
    devices = params.pool.node_gpus[before.world]
    exists = jnp.arange(before.free_gpu.shape[1])[None, :] < devices[:, None]
    used = exists & (before.free_gpu < MILLI)
    idle_w, full_w = params.power_w[model, 0], params.power_w[model, 1]
    watts = (exists & ~used).sum(-1) * idle_w + used.sum(-1) * full_w
    return watts.sum().astype(jnp.float32), jnp.float32(0)


REWARDS: dict[str, RewardFn] = {
    "immediate": immediate,
    "jct": jct,
    "weighted": weighted,
    "slowdown": slowdown,
    "makespan": makespan,
    "deadline": deadline,
    "energy": energy,
}
