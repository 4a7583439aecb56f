"""The training program: collect, write to the ring, update - scanned inside one donated, jitted chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.learner.candidates import choose_candidates, to_action
from jaxsched.learner.ddqn import (
    METRICS,
    LearnerConfig,
    Objective,
    Weights,
    epsilon,
    explore,
    make_optimizer,
    score,
    td_objective,
    update,
)
from jaxsched.learner.features import Features, describe
from jaxsched.learner.networks import QNetwork
from jaxsched.learner.paired import paired_objective
from jaxsched.learner.ring import Ring, Row, write_chunk
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import view_queue
from jaxsched.types import EnvParams, EnvState


class LearnerState(NamedTuple):
    """Everything that training changes; saved whole, so that a resumed run gives the same numbers."""

    weights: Weights
    opt_state: Any
    ring: Ring
    states: EnvState  # leaves [B, ...]
    final: jax.Array  # bool[B] the state is the last of its episode
    returns: jax.Array  # f32[B] return of the running episode
    key: jax.Array
    chunks: jax.Array  # i32[]
    updates: jax.Array  # i32[]


class Trainer(NamedTuple):
    """The jitted pieces of a run. ``train_chunk`` collects a chunk and, once the ring is filled, updates."""

    init: Callable[[jax.Array, EnvParams], LearnerState]
    train_chunk: Callable[[LearnerState, EnvParams], tuple[LearnerState, dict[str, jax.Array]]]
    network: QNetwork
    chunk_size: int  # environment steps per chunk
    fill_chunks: int  # chunks before the first update
    total_chunks: int


def with_objective(params: EnvParams, config: LearnerConfig) -> EnvParams:
    """Parameters whose reward is the learner's: its time constant and its scale."""
    return params.replace(
        beta=jnp.float32(1.0 / config.time_constant_s), reward_scale=jnp.float32(config.reward_scale)
    )


def _act(
    network: QNetwork, weights: Any, share: jax.Array, params: EnvParams, key: jax.Array, state: EnvState
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Candidate index, number of legal placements and environment action of one cluster."""
    values, candidates = score(network, weights, Cluster(state, view_queue(state, params)), params)
    index = explore(key, values, share)
    return index, candidates.legal.sum(dtype=jnp.int32), to_action(candidates, index, state)


def make_objective(env: ClusterEnv, network: QNetwork, config: LearnerConfig) -> Objective:
    """The objective that ``config.target`` names."""
    return (
        paired_objective(env, network, config) if config.target == "paired" else td_objective(network, config)
    )


def _collect(
    env: ClusterEnv,
    network: QNetwork,
    config: LearnerConfig,
    learner: LearnerState,
    params: EnvParams,
    key: jax.Array,
):
    """``chunk_steps`` decisions of every cluster: the new learner state, rows [L, B], choices [L, B], counts."""
    env_steps = learner.chunks.astype(jnp.float32) * (config.num_envs * config.chunk_steps)
    share = epsilon(config, env_steps)

    def step(carry, key):
        states, final, returns = carry
        keys = jax.random.split(key, (3, config.num_envs))
        act = partial(_act, network, learner.weights.online, share, params)
        index, choices, action = jax.vmap(act)(keys[0], states)
        out = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))(keys[1], states, action, params)
        _, after, reward, terminated, truncated, info = out
        row = Row(states, index, reward, info["discount"], terminated, final)
        after = jax.vmap(env.reset_if, in_axes=(0, 0, 0, None))(keys[2], after, final, params)
        ended = (terminated | truncated) & ~final
        total = jnp.where(final, 0.0, returns + reward)
        done = (jnp.where(ended, total, 0.0).sum(), ended.sum(), (~final).sum())
        return (after, ended, jnp.where(ended, 0.0, total)), (row, choices, done)

    carry = (learner.states, learner.final, learner.returns)
    keys = jax.random.split(key, config.chunk_steps)
    (states, final, returns), (rows, choices, done) = jax.lax.scan(step, carry, keys)
    learner = learner._replace(states=states, final=final, returns=returns, chunks=learner.chunks + 1)
    metrics = {
        "return_sum": done[0].sum(),
        "episodes": done[1].sum(),
        "decisions": done[2].sum(),
        "epsilon": share,
    }
    return learner, rows, choices, metrics


def _collect_and_keep(
    env: ClusterEnv,
    network: QNetwork,
    objective: Objective,
    config: LearnerConfig,
    learner: LearnerState,
    params: EnvParams,
):
    """A chunk of decisions, and in the ring what the objective keeps of it."""
    key, collect_key, keep_key = jax.random.split(learner.key, 3)
    learner, rows, choices, metrics = _collect(env, network, config, learner, params, collect_key)
    kept = objective.keep(learner.weights, rows, choices, keep_key, params)
    return learner._replace(key=key, ring=write_chunk(learner.ring, kept)), metrics


def make_train(env: ClusterEnv, config: LearnerConfig) -> Trainer:
    """The training program of ``config`` on ``env``; pure functions of the learner state and the parameters."""
    network = QNetwork(config.network)
    objective = make_objective(env, network, config)
    chunk_size = config.num_envs * config.chunk_steps
    total_chunks = max(1, -(-config.total_steps // chunk_size))
    rows_needed = max(-(-config.learning_starts // config.num_envs), config.n_step + 1)
    fill_chunks = min(total_chunks, -(-rows_needed // config.chunk_steps))
    optimizer = make_optimizer(config, (total_chunks - fill_chunks) * config.updates)

    def init(key: jax.Array, params: EnvParams) -> LearnerState:
        net_key, reset_key, key = jax.random.split(key, 3)
        reset_keys = jax.random.split(reset_key, config.num_envs)
        states = jax.vmap(lambda k: env.reset_env(k, params)[1])(reset_keys)
        one = jax.tree.map(lambda leaf: leaf[0], states)
        weights = network.init(net_key, _features(network, one, params))
        copies = Weights(*(jax.tree.map(jnp.array, weights) for _ in range(3)))
        zero = jnp.zeros((), jnp.int32)
        ring = objective.empty(one)
        flags, returns = jnp.zeros(config.num_envs, bool), jnp.zeros(config.num_envs, jnp.float32)
        return LearnerState(
            copies, optimizer.init(copies.online), ring, states, flags, returns, key, zero, zero
        )

    def one_update(params: EnvParams, learner: LearnerState, key: jax.Array):
        updates = learner.updates + 1
        batch = objective.sample(learner.ring, key)
        weights, opt_state, losses = update(
            objective, optimizer, config, learner.weights, learner.opt_state, updates, batch, params
        )
        return learner._replace(weights=weights, opt_state=opt_state, updates=updates), losses

    def learn(learner: LearnerState, params: EnvParams):
        key, update_key = jax.random.split(learner.key)
        keys = jax.random.split(update_key, config.updates)
        learner, losses = jax.lax.scan(partial(one_update, params), learner, keys)
        return learner._replace(key=key), jax.tree.map(jnp.mean, losses)

    def wait(learner: LearnerState, params: EnvParams):
        return learner, dict.fromkeys(METRICS, jnp.float32(jnp.nan))

    @partial(jax.jit, donate_argnums=0)
    def train_chunk(learner: LearnerState, params: EnvParams):
        filling = learner.chunks < fill_chunks
        learner, metrics = _collect_and_keep(env, network, objective, config, learner, params)
        learner, losses = jax.lax.cond(filling, wait, learn, learner, params)
        return learner, {**metrics, **losses}

    return Trainer(jax.jit(init), train_chunk, network, chunk_size, fill_chunks, total_chunks)


def _features(network: QNetwork, state: EnvState, params: EnvParams) -> Features:
    cluster = Cluster(state, view_queue(state, params))
    size = network.config
    candidates = choose_candidates(cluster, params, size.max_jobs, size.max_nodes, size.reserving)
    return describe(cluster, params, candidates)
