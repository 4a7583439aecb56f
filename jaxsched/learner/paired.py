"""Paired roll-outs: what several placements of one state are worth under the same future.

The luck of coming arrivals is several times the gap between a good placement and a bad one, and a TD error holds it in
full. A simulator can be asked twice: each of the best few placements of a state is carried out, followed greedily for
n decisions on the window's own arrivals, and valued by Double-Q from there. What the futures have in common falls out
of the differences, and the differences are what the policy is made of. A label costs C x n decisions, so labels are
what the ring keeps: each is learned from several times.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.learner.candidates import to_action
from jaxsched.learner.ddqn import (
    LearnerConfig,
    Objective,
    Weights,
    double_q_target,
    first_maximum,
    huber,
    is_legal,
    num_blocks,
    q_values,
    score,
)
from jaxsched.learner.networks import QNetwork
from jaxsched.learner.ring import Ring, Row, empty_ring
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import view_queue
from jaxsched.types import EnvParams, EnvState

BLOCK = 16  # states rolled out together: more wait longer for the slowest, fewer leave the vector units idle


class Labelled(NamedTuple):
    """A state and the values of its best placements."""

    state: EnvState
    candidate: jax.Array  # i16[C] index in the candidate set
    legal: jax.Array  # bool[C]
    value: jax.Array  # f32[C]
    weight: jax.Array  # f32[] 0 for void rows


def paired_objective(env: ClusterEnv, network: QNetwork, config: LearnerConfig) -> Objective:
    """``config.labels`` states of each chunk are kept, with the values of their ``config.compared`` best placements."""
    labels = min(config.labels, config.num_envs * config.chunk_steps)
    compared = min(config.compared, network.config.max_jobs * network.config.max_nodes)
    follow = partial(label, env, network, config.n_step, compared)

    def empty(state: EnvState) -> Ring:
        none, no = jnp.zeros(compared, jnp.int16), jnp.zeros(compared, bool)
        row = Labelled(state, none, no, jnp.zeros(compared), jnp.float32(0))
        return empty_ring(row, labels, config.capacity // config.chunk_steps)

    def keep(weights: Weights, rows: Row, choices: jax.Array, key: jax.Array, params: EnvParams) -> Labelled:
        states, weight = draw_choices(rows, choices, key, labels)
        by_block = jax.tree.map(
            lambda leaf: leaf.reshape(num_blocks(labels, BLOCK), -1, *leaf.shape[1:]), states
        )
        labelled = jax.lax.map(lambda block: jax.vmap(partial(follow, weights, params))(block), by_block)
        candidate, legal, value = jax.tree.map(lambda leaf: leaf.reshape(labels, -1), labelled)
        kept = Labelled(states, candidate.astype(jnp.int16), legal, value, weight)
        return jax.tree.map(lambda leaf: leaf[None], kept)

    def draw(ring: Ring, key: jax.Array) -> Labelled:
        row = jax.random.randint(key, (config.batch,), 0, jnp.maximum(ring.size, 1) * labels)
        time, column = jnp.divmod(row, labels)  # the ring fills from row 0
        return jax.tree.map(lambda leaf: leaf[time, column], ring.rows)

    def loss(online: Any, weights: Weights, batch: Labelled, params: EnvParams):
        return paired_loss(online, network, batch, params, config.huber_delta, config.advantage_weight)

    return Objective(empty, keep, draw, loss)


def draw_choices(rows: Row, choices: jax.Array, key: jax.Array, count: int) -> tuple[EnvState, jax.Array]:
    """``count`` different states, uniform over those of a chunk with at least two legal placements.

    Args:
        rows, choices: leaves [L, B, ...]; legal placements of each state.

    Returns:
        States, leaves [count, ...], and weights f32[count]: 0 for those drawn because there were no more.
    """
    wanted = ((choices > 1) & ~rows.final).reshape(-1)
    noise = jax.random.uniform(key, wanted.shape)
    drawn, flat = jax.lax.top_k(jnp.where(wanted, noise, -1.0), count)
    time, column = jnp.divmod(flat, choices.shape[1])
    states = jax.tree.map(lambda leaf: leaf[time, column], rows.state)
    return states, (drawn >= 0).astype(jnp.float32)


def label(
    env: ClusterEnv,
    network: QNetwork,
    n_step: int,
    compared: int,
    weights: Weights,
    params: EnvParams,
    state: EnvState,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The placements of one state that the online network likes best.

    Returns: candidates i32[C], legal bool[C], values f32[C].
    """
    values, candidates = score(network, weights.online, Cluster(state, view_queue(state, params)), params)
    top, candidate = jax.lax.top_k(values, compared)
    action = jax.vmap(lambda index: to_action(candidates, index, state))(candidate)
    follow = partial(roll_out, env, network, n_step, weights, params, state)
    return candidate, is_legal(top), jax.vmap(follow)(action)


def roll_out(
    env: ClusterEnv,
    network: QNetwork,
    n_step: int,
    weights: Weights,
    params: EnvParams,
    state: EnvState,
    action: jax.Array,
) -> jax.Array:
    """f32[]: discounted rewards of ``action`` and n-1 greedy decisions after it, then the Double-Q value.

    The end of an episode counts as in ``sample_transitions``. An illegal action changes nothing and costs nothing.
    """

    def decide(carry: tuple, turn: None) -> tuple[tuple, None]:
        state, action, _, ret, discount, going = carry
        key = jax.random.key(0)  # a step draws nothing
        _, after, reward, terminated, truncated, info = env.step_env(key, state, action, params)
        ret = ret + jnp.where(going, discount * reward, 0.0)
        step = jnp.where(terminated, 0.0, info["discount"])
        discount = discount * jnp.where(going, step, 1.0)
        after = jax.tree.map(lambda new, old: jnp.where(going, new, old), after, state)
        values, candidates = score(network, weights.online, Cluster(after, view_queue(after, params)), params)
        following = to_action(candidates, first_maximum(values), after)
        return (after, following, values, ret, discount, going & ~(terminated | truncated)), None

    shape = jax.eval_shape(partial(q_values, network), weights.target, state, params)
    begin = (state, action, jnp.zeros(shape.shape), jnp.float32(0), jnp.float32(1), jnp.bool_(True))
    (last, _, values, ret, discount, _), _ = jax.lax.scan(decide, begin, None, length=n_step)
    return double_q_target(ret, discount, values, q_values(network, weights.target, last, params))


def paired_loss(
    online: Any,
    network: QNetwork,
    batch: Labelled,
    params: EnvParams,
    delta: float,
    advantage_weight: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Huber losses of the mean error over the placements and, weighted up, of each one's error beside that mean."""
    values = jax.vmap(lambda state: q_values(network, online, state, params))(batch.state)
    chosen = jnp.take_along_axis(values, batch.candidate.astype(jnp.int32), axis=1)
    error = jnp.where(batch.legal, chosen - batch.value, 0.0)
    mean = error.sum(1) / jnp.maximum(batch.legal.sum(1), 1)
    beside = jnp.where(batch.legal, error - mean[:, None], 0.0)
    loss = huber(mean, delta) + advantage_weight * huber(beside, delta).sum(1)
    metrics = {"loss": loss, "td_abs": jnp.abs(mean), "q_mean": chosen[:, 0]}
    metrics = {name: (batch.weight * value).sum() for name, value in metrics.items()}
    return metrics["loss"], metrics
