"""One event at a time: the micro-step that every loop of the simulator is made of.

A micro-step does what is due, in this order of precedence: place one part of a started job, or move the
clock and release one part; then take in one arrival and admit one job. In a finished cluster it
changes nothing. Between two decisions the cluster *settles* (DESIGN rule: end all jobs due, take in all
arrivals due, fill free slots) by running micro-steps until nothing is due.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.sim.admit import admit_job, can_admit, next_arrival, take_arrival
from jaxsched.sim.fit import (
    FreeNodes,
    QueueView,
    capacity,
    fits_cluster,
    free_nodes,
    job_request,
    leftover,
    num_actions,
    startable,
)
from jaxsched.sim.place import first_minimum, take_devices
from jaxsched.sim.state import empty_state, is_finished
from jaxsched.types import NEVER, EnvConfig, EnvParams, EnvState, Request

HOLD = -1  # the action that leaves a settled cluster as it is


class Cluster(NamedTuple):
    """What the fast loops carry: the state and the view of its queue."""

    state: EnvState
    view: QueueView


class Record(NamedTuple):
    """What happened in one micro-step. ``devices`` counts instances per device."""

    started: jax.Array  # bool[] a job left the queue
    placed: jax.Array  # bool[] a part was placed (every gang has several)
    ended: jax.Array  # bool[] the last part of a job was released
    admitted: jax.Array  # bool[] a job arrived
    job: jax.Array  # i32[] of the part placed or released
    node: jax.Array  # i32[]
    instances: jax.Array  # i32[]
    devices: jax.Array  # i32[G]
    tick: jax.Array  # i32[] after the micro-step


class Move(NamedTuple):
    """The one change of a node in a micro-step: a part placed on it or released from it."""

    placing: jax.Array  # bool[]
    releasing: jax.Array  # bool[]
    starts: jax.Array  # bool[] placing a job from the queue, not the rest of a gang
    slot: jax.Array  # i32[] queue slot of the decision
    row: jax.Array  # i32[] running row written or cleared
    job: jax.Array  # i32[]
    node: jax.Array  # i32[]
    instances: jax.Array  # i32[]
    devices: jax.Array  # i32[G]
    request: jax.Array  # i32[6]


def start_cluster(config: EnvConfig, params: EnvParams, world: jax.Array) -> Cluster:
    """An empty cluster at tick 0, not yet settled."""
    nothing = jnp.zeros((len(Request), config.queue), jnp.int32)
    return Cluster(empty_state(config, params, world), QueueView(request=nothing, total=nothing[0]))


def is_settled(state: EnvState, params: EnvParams) -> jax.Array:
    """bool[]: nothing is due at the present tick, so a decision may be taken."""
    busy = (state.run_end.min() <= state.time) | (next_arrival(state, params) <= state.time)
    return ~(busy | can_admit(state) | (state.gang_left > 0))


def next_instant(state: EnvState, params: EnvParams) -> jax.Array:
    """Tick of the next arrival or end, NEVER when nothing is to come."""
    return jnp.minimum(state.run_end.min(), next_arrival(state, params))


def _advance_clock(state: EnvState, params: EnvParams, advance: jax.Array) -> EnvState:
    instant = next_instant(state, params)
    return state.replace(time=jnp.where(advance & (instant != NEVER), instant, state.time))


def _plan_placement(
    state: EnvState, nodes: FreeNodes, request: jax.Array, chosen: jax.Array, device: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Node, instances and devices of the next part: the chosen node first, then best_fit's order."""
    gang = state.gang_left > 0
    cap = capacity(request[:, None], nodes)
    spare = jnp.where(cap > 0, leftover(request[:, None], nodes), NEVER)
    node = jnp.where(gang, first_minimum(spare), chosen)
    left = jnp.where(gang, state.gang_left, request[Request.INSTANCES]).astype(jnp.int32)
    instances = jnp.minimum(cap[node], left)
    devices = take_devices(request, nodes.gpu[node], instances)
    named = (jnp.arange(devices.shape[0]) == device - 1).astype(jnp.int32)
    return node, instances, jnp.where((device > 0) & ~gang, named, devices)


def _plan_move(params: EnvParams, state: EnvState, start: jax.Array, action: jax.Array) -> Move:
    """Decide the one node change: the part to place, or else the due row to release."""
    gang = state.gang_left > 0
    placing = gang | start
    releasing = ~placing & (state.run_end.min() <= state.time)
    base, num_nodes = num_actions(state), state.free_cpu.shape[0]
    slot, chosen = jnp.divmod(action % base, num_nodes)
    due = first_minimum(state.run_end)
    row = jnp.where(placing, first_minimum(-(state.run_job < 0).astype(jnp.int32)), due)
    starting = jnp.where(gang, state.gang_job, state.queue[jnp.minimum(slot, state.queue.shape[0] - 1)])
    job = jnp.where(placing, starting, state.run_job[due]).astype(jnp.int32)
    request = job_request(state, params, job)
    node, instances, devices = _plan_placement(
        state, free_nodes(state, params), request, chosen, action // base
    )
    return Move(
        placing=placing,
        releasing=releasing,
        starts=start & ~gang,
        slot=slot,
        row=row,
        job=job,
        node=jnp.where(placing, node, state.run_node[due]).astype(jnp.int32),
        instances=jnp.where(placing, instances, state.run_instances[due]).astype(jnp.int32),
        devices=jnp.where(placing, devices, state.run_taken[due]).astype(jnp.int32),
        request=request,
    )


def _change_node(
    state: EnvState, view: QueueView, params: EnvParams, move: Move
) -> tuple[EnvState, QueueView]:
    """Take from or give back to one node, and correct the queue's totals for that node alone."""
    sign = move.releasing.astype(jnp.int32) - move.placing.astype(jnp.int32)
    n, request = move.node, move.request
    model = params.pool.node_model[state.world, n]
    before = FreeNodes(state.free_cpu[n], state.free_memory[n], state.free_gpu[n].astype(jnp.int32), model)
    after = FreeNodes(
        before.cpu + sign * move.instances * request[Request.CPU_MILLI],
        before.memory + sign * move.instances * request[Request.MEMORY_MIB],
        before.gpu + sign * move.devices * request[Request.GPU_MILLI],
        model,
    )
    change = capacity(view.request, _beside_queue(after)) - capacity(view.request, _beside_queue(before))
    state = state.replace(
        free_cpu=state.free_cpu.at[n].set(after.cpu),
        free_memory=state.free_memory.at[n].set(after.memory),
        free_gpu=state.free_gpu.at[n].set(after.gpu.astype(state.free_gpu.dtype)),
    )
    return state, view._replace(total=view.total + change)


def _beside_queue(node: FreeNodes) -> FreeNodes:
    """One node shaped to be compared with the whole queue: fields [1] and [1, G]."""
    return FreeNodes(*(field[None] for field in node))


def _write_row(state: EnvState, params: EnvParams, move: Move) -> EnvState:
    """Fill the running row of a placed part, or clear that of a released one.

    All parts of a gang end together, at the end on its slowest node.
    """
    model = params.pool.node_model[state.world, move.node]
    same = state.run_job == move.job

    def latest(table: jax.Array, ends: jax.Array) -> jax.Array:
        end = state.time + table[state.world, move.job, model]
        end = jnp.maximum(end, jnp.where(same, ends, 0).max())
        ends = jnp.where(same & move.placing, end, ends)
        return ends.at[move.row].set(
            jnp.where(move.placing, end, jnp.where(move.releasing, NEVER, ends[move.row]))
        )

    def write(table: jax.Array, value: jax.Array, empty: int) -> jax.Array:
        old = table[move.row]
        new = jnp.where(move.placing, value.astype(table.dtype), jnp.where(move.releasing, empty, old))
        return table.at[move.row].set(new.astype(table.dtype))

    return state.replace(
        run_end=latest(params.pool.run_time, state.run_end),
        run_estimate=latest(params.pool.estimate, state.run_estimate),
        run_job=write(state.run_job, move.job, -1),
        run_node=write(state.run_node, move.node, 0),
        run_instances=write(state.run_instances, move.instances, 0),
        run_taken=write(state.run_taken, move.devices, 0),
    )


def _leave_queue(state: EnvState, view: QueueView, move: Move) -> tuple[EnvState, QueueView]:
    """Empty the slot of a started job and remember how much of its gang is left to place."""
    slot = jnp.minimum(move.slot, state.queue.shape[0] - 1)
    gang = state.gang_left > 0
    size = jnp.where(gang, state.gang_left, move.request[Request.INSTANCES]).astype(jnp.int32)
    left = jnp.where(move.placing, size - move.instances, 0)
    state = state.replace(
        queue=state.queue.at[slot].set(
            jnp.where(move.starts, -1, state.queue[slot]).astype(state.queue.dtype)
        ),
        gang_left=left.astype(state.gang_left.dtype),
        gang_job=jnp.where(left > 0, move.job, -1).astype(state.gang_job.dtype),
    )
    return state, view._replace(
        request=view.request.at[:, slot].set(jnp.where(move.starts, 0, view.request[:, slot]))
    )


def wait_or_hold(cluster: Cluster, params: EnvParams) -> jax.Array:
    """The action that runs a cluster on to its next choice and keeps it there, i32[]."""
    return jnp.where(has_choice(cluster, params), HOLD, num_actions(cluster.state) - 1)


def has_choice(cluster: Cluster, params: EnvParams) -> jax.Array:
    """bool[]: the cluster is settled and some job could start."""
    return is_settled(cluster.state, params) & startable(*cluster).any()


def _count_decision(state: EnvState, view: QueueView, decides: jax.Array) -> EnvState:
    """Count decisions with a choice, and those at which the running table held a job back."""
    can_start = startable(state, view)
    held = (fits_cluster(state, view) & ~can_start).any()
    return state.replace(
        steps=state.steps + (decides & can_start.any()), running_bound=state.running_bound + (decides & held)
    )


def micro_step(params: EnvParams, cluster: Cluster, action: jax.Array) -> tuple[Cluster, Record]:
    """Process one event; ``action`` is obeyed only in a settled cluster and must then be legal, WAIT or HOLD.

    Args:
        action: i32[], slot*N + node, or WAIT = Q*N; plus (Q*N+1)*(device+1) to name the device of a fraction.
    """
    state, view = cluster
    decides = is_settled(state, params) & ~is_finished(state, params) & (action != HOLD)
    start = decides & (action % num_actions(state) != num_actions(state) - 1)
    state = _count_decision(state, view, decides)
    state = _advance_clock(state, params, decides & ~start)
    move = _plan_move(params, state, start, action)
    state, view = _change_node(state, view, params, move)
    state = _write_row(state, params, move)
    state, view = _leave_queue(state, view, move)
    ended = move.releasing & ~(state.run_job == move.job).any()
    state = state.replace(finished=state.finished + ended)
    before = state.arrived
    state = take_arrival(state, params)
    state, view = admit_job(state, view, params)
    arrived = state.arrived > before
    state = state.replace(queue_bound=state.queue_bound + (arrived & (state.admitted < state.arrived)))
    record = Record(
        started=move.starts,
        placed=move.placing,
        ended=ended,
        admitted=arrived,
        job=move.job,
        node=move.node,
        instances=move.instances,
        devices=move.devices,
        tick=state.time,
    )
    return Cluster(state, view), record
