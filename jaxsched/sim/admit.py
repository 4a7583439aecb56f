"""Arrivals: taking jobs in from outside and giving them queue slots in arrival order."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsched.sim.fit import QueueView, capacity, free_nodes, job_request
from jaxsched.sim.place import first_minimum
from jaxsched.types import NEVER, EnvParams, EnvState


def next_arrival(state: EnvState, params: EnvParams) -> jax.Array:
    """Tick of the next job still outside, NEVER when all have arrived."""
    last = params.pool.arrival.shape[-1] - 1
    tick = params.pool.arrival[state.world, jnp.minimum(state.arrived, last)]
    return jnp.where(state.arrived < params.pool.num_jobs[state.world], tick, NEVER)


def can_admit(state: EnvState) -> jax.Array:
    """bool[]: a job waits outside and a slot is free."""
    return (state.admitted < state.arrived) & (state.queue < 0).any()


def take_arrival(state: EnvState, params: EnvParams) -> EnvState:
    """Count one due arrival; it waits outside until ``admit_job``."""
    due = next_arrival(state, params) <= state.time
    return state.replace(arrived=state.arrived + due)


def admit_job(state: EnvState, view: QueueView, params: EnvParams) -> tuple[EnvState, QueueView]:
    """Give the lowest free slot to the first job of the backlog, if there are both."""
    admit = can_admit(state)
    slot = first_minimum((state.queue >= 0).astype(jnp.int32))
    job = state.admitted
    request = job_request(state, params, jnp.where(admit, job, -1))
    total = capacity(request[:, None], free_nodes(state, params)).sum(-1)
    dtype = state.queue.dtype
    state = state.replace(
        queue=state.queue.at[slot].set(jnp.where(admit, job.astype(dtype), state.queue[slot])),
        admitted=state.admitted + admit,
    )
    view = QueueView(
        request=view.request.at[:, slot].set(jnp.where(admit, request, view.request[:, slot])),
        total=view.total.at[slot].set(jnp.where(admit, total, view.total[slot])),
    )
    return state, view
