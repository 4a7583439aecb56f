"""Double DQN (van Hasselt et al. 2016) on candidate placements: action choice, targets, loss, update.

Targets carry a discount per transition, exp(-beta dt) over n steps and 0 after a termination, so that many starts at
one instant are not punished. Masks act in the argmax and in the target. What is drawn from the ring, which targets it
gets and how they are compared with the network is an ``Objective``: ``td`` here, ``paired`` in ``paired.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxsched.learner.candidates import Candidates, choose_candidates
from jaxsched.learner.features import describe
from jaxsched.learner.networks import ILLEGAL, NetworkConfig, QNetwork
from jaxsched.learner.ring import Ring, Row, Sample, empty_ring, sample_transitions
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import view_queue
from jaxsched.types import EnvParams, EnvState

BLOCK = 64  # transitions whose activations are computed together


@dataclass(frozen=True)
class LearnerConfig:
    """Everything about learning. Steps are environment steps (decisions summed over all clusters)."""

    total_steps: int = 131_072
    num_envs: int = 64
    chunk_steps: int = 8  # decisions of each cluster between updates
    updates: int = 4  # per chunk
    batch: int = 256
    capacity: int = 512  # how many decisions of each cluster the ring reaches back
    learning_starts: int = 4096
    target: Literal["paired", "td"] = "paired"
    labels: int = 128  # paired: states of a chunk whose placements are rolled out
    compared: int = 4  # paired: placements of such a state, all under the same future
    advantage_weight: float = 30.0  # paired: of the differences between placements, against their mean's 1
    n_step: int = 16
    time_constant_s: float = 3600.0  # 1/beta
    reward_scale: float = 30_000.0  # job-seconds per unit of reward
    learning_rate: float = 1e-3  # falls to 0 by a cosine
    epsilon_start: float = 0.3
    epsilon_end: float = 0.02
    epsilon_steps: int = 40_000
    target_rate: float = 0.02  # Polyak step; used when target_period is 0
    target_period: int = 0  # updates between copies of the online network
    average_rate: float = 0.01  # step of the averaged weights that act in evaluation
    huber_delta: float = 1.0
    max_grad_norm: float = 10.0
    network: NetworkConfig = field(default_factory=NetworkConfig)

    def __post_init__(self) -> None:
        for name in ("num_envs", "chunk_steps", "batch", "n_step", "labels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.compared < 2:
            raise ValueError(f"compared must be at least 2, found {self.compared}")
        if self.capacity % self.chunk_steps:
            raise ValueError(f"capacity {self.capacity} is not a multiple of chunk_steps {self.chunk_steps}")
        if self.capacity <= self.n_step:
            raise ValueError(f"capacity {self.capacity} must be above n_step {self.n_step}")


class Weights(NamedTuple):
    """Three sets of network parameters."""

    online: Any
    target: Any
    average: Any  # exponential average of online: acts in evaluation, is what checkpoints keep


def epsilon(config: LearnerConfig, env_steps: jax.Array) -> jax.Array:
    """Share of random actions after ``env_steps`` environment steps: linear, then constant."""
    progress = jnp.clip(env_steps / max(config.epsilon_steps, 1), 0.0, 1.0)
    return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)


def score(
    network: QNetwork, weights: Any, cluster: Cluster, params: EnvParams
) -> tuple[jax.Array, Candidates]:
    """Values f32[K*M + 1] of one settled cluster's candidates, ``ILLEGAL`` where not legal, and the candidates."""
    size = network.config
    candidates = choose_candidates(cluster, params, size.max_jobs, size.max_nodes, size.reserving)
    values: Any = network.apply(weights, describe(cluster, params, candidates))
    return jnp.where(is_legal(values), values + waiting_value(cluster.state, params), ILLEGAL), candidates


def waiting_value(state: EnvState, params: EnvParams) -> jax.Array:
    """f32[]: what the waiting jobs cost if none of them ever starts, -n/beta: the network learns the rest.

    This part of the value grows with the queue and would take most of a run to be learned from bootstraps alone;
    the same for every action, it changes no choice (a potential: Ng, Harada and Russell 1999). 0 when beta is 0.
    """
    waiting = state.arrived - state.admitted + (state.queue >= 0).sum(dtype=jnp.int32)
    horizon = jnp.where(params.beta > 0, 1.0 / jnp.maximum(params.beta, 1e-9), 0.0)
    return -waiting.astype(jnp.float32) * horizon / params.reward_scale


def q_values(network: QNetwork, weights: Any, state: EnvState, params: EnvParams) -> jax.Array:
    """f32[K*M + 1] of one state's candidates, ``ILLEGAL`` where not legal."""
    return score(network, weights, Cluster(state, view_queue(state, params)), params)[0]


def first_maximum(values: jax.Array) -> jax.Array:
    """Index of the first greatest value, i32[]."""
    index = jnp.arange(values.shape[0], dtype=jnp.int32)
    return jnp.where(values == values.max(), index, values.shape[0]).min()


def is_legal(values: jax.Array) -> jax.Array:
    """bool: values of legal candidates."""
    return values > ILLEGAL / 2


def explore(key: jax.Array, values: jax.Array, share: jax.Array) -> jax.Array:
    """epsilon-greedy candidate index: with probability ``share`` uniform over the legal ones."""
    coin, pick = jax.random.split(key)
    noise = jnp.where(is_legal(values), jax.random.uniform(pick, values.shape), -1.0)
    return jnp.where(jax.random.uniform(coin) < share, first_maximum(noise), first_maximum(values))


def double_q_target(
    ret: jax.Array, discount: jax.Array, next_online: jax.Array, next_target: jax.Array
) -> jax.Array:
    """ret + discount * target network's value of the online network's choice; unbatched, f32[].

    Args:
        next_online, next_target: f32[A], ``ILLEGAL`` where not legal in the next state. A state in which nothing is
            legal (its episode was cut off in the middle of a step) counts 0.
    """
    value = next_target[first_maximum(next_online)]
    return ret + jnp.where((discount > 0) & is_legal(value), discount * value, 0.0)


def huber(td: jax.Array, delta: float) -> jax.Array:
    """Quadratic within ``delta``, linear outside."""
    return optax.losses.huber_loss(td, delta=delta)


class Objective(NamedTuple):
    """What is kept of the experience, and what is learned from it."""

    empty: Callable[[EnvState], Ring]  # the ring, from the shapes of one state
    keep: Callable[..., Any]  # (weights, rows [L, B], choices i32[L, B], key, params) -> chunk for the ring
    sample: Callable[
        [Ring, jax.Array], Any
    ]  # (ring, key) -> batch; its ``weight`` f32[batch] is 0 in void rows
    loss: Callable[..., tuple[jax.Array, dict[str, jax.Array]]]
    """(online, weights, batch, params) -> sums over the batch: the loss and ``METRICS``. Only online is learned."""


METRICS = ("loss", "td_abs", "q_mean")


def td_objective(network: QNetwork, config: LearnerConfig) -> Objective:
    """Every decision is kept; targets are Double-Q on its n-step return."""

    def empty(state: EnvState) -> Ring:
        none, nothing, no = jnp.int16(0), jnp.float32(0), jnp.bool_(False)
        row = Row(state, none, nothing, nothing, no, no)
        return empty_ring(row, config.num_envs, config.capacity)

    def keep(weights: Weights, rows: Row, choices: jax.Array, key: jax.Array, params: EnvParams) -> Row:
        return rows

    def draw(ring: Ring, key: jax.Array) -> Sample:
        return sample_transitions(ring, key, config.batch, config.n_step)

    def loss(online: Any, weights: Weights, batch: Sample, params: EnvParams):
        targets = td_targets(network, weights, batch, params)
        return td_loss(online, network, batch, targets, params, config.huber_delta)

    return Objective(empty, keep, draw, loss)


def td_targets(network: QNetwork, weights: Weights, batch: Sample, params: EnvParams) -> jax.Array:
    """f32[batch]: Double-Q on n-step returns."""

    def one(ret: jax.Array, discount: jax.Array, state: EnvState) -> jax.Array:
        next_online = q_values(network, weights.online, state, params)
        next_target = q_values(network, weights.target, state, params)
        return double_q_target(ret, discount, next_online, next_target)

    return jax.lax.stop_gradient(jax.vmap(one)(batch.ret, batch.discount, batch.next_state))


def td_loss(
    online: Any, network: QNetwork, batch: Sample, targets: jax.Array, params: EnvParams, delta: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Weighted sum of the Huber losses of the chosen candidates' values against ``targets`` f32[batch]."""
    values = jax.vmap(lambda state: q_values(network, online, state, params))(batch.state)
    chosen = jnp.take_along_axis(values, batch.action[:, None].astype(jnp.int32), axis=1)[:, 0]
    if not chosen.shape == targets.shape == batch.weight.shape:
        raise ValueError(f"shapes differ: {chosen.shape}, {targets.shape}, {batch.weight.shape}")
    td = chosen - targets
    loss = (batch.weight * huber(td, delta)).sum()
    metrics = {
        "loss": loss,
        "td_abs": (batch.weight * jnp.abs(td)).sum(),
        "q_mean": (batch.weight * chosen).sum(),
    }
    return loss, metrics


def num_blocks(count: int, least: int) -> int:
    """Into how many equal blocks ``count`` rows are cut: the most that hold at least ``least`` each."""
    return next(blocks for blocks in range(max(1, count // least), 0, -1) if count % blocks == 0)


def mean_gradient(
    objective: Objective, config: LearnerConfig, weights: Weights, batch: Any, params: EnvParams
) -> tuple[Any, dict[str, jax.Array]]:
    """Gradient and metrics of the mean loss over the batch, gathered in blocks that fit the cache.

    A block's activations are a few megabytes, a batch's hundreds: blocks are more than twice as fast on CPU.
    """
    blocks = num_blocks(config.batch, BLOCK)
    by_block = jax.tree.map(lambda leaf: leaf.reshape(blocks, -1, *leaf.shape[1:]), batch)
    gradient = jax.grad(objective.loss, has_aux=True)

    def add_block(total: Any, block: Any) -> tuple[Any, None]:
        here = gradient(weights.online, weights, block, params)
        return jax.tree.map(jnp.add, total, here), None

    zeros = jax.tree.map(jnp.zeros_like, weights.online)
    metrics = dict.fromkeys(METRICS, jnp.zeros((), jnp.float32))
    total, _ = jax.lax.scan(add_block, (zeros, metrics), by_block)
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(batch.weight.sum(), 1.0), total)


def make_optimizer(config: LearnerConfig, total_updates: int) -> optax.GradientTransformation:
    """Adam with clipped gradients and a learning rate that falls to zero by a cosine."""
    schedule = optax.cosine_decay_schedule(config.learning_rate, max(total_updates, 1))
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.adam(schedule))


def sync_target(config: LearnerConfig, weights: Weights, updates: jax.Array) -> Any:
    """The target network after ``updates`` updates: a Polyak step, or a copy every ``target_period``."""
    if config.target_period:
        due = updates % config.target_period == 0
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), weights.online, weights.target)
    return optax.incremental_update(weights.online, weights.target, config.target_rate)


def update(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    config: LearnerConfig,
    weights: Weights,
    opt_state: optax.OptState,
    updates: jax.Array,
    batch: Any,
    params: EnvParams,
) -> tuple[Weights, optax.OptState, dict[str, jax.Array]]:
    """One gradient step; ``updates`` i32[] counts it in."""
    grads, metrics = mean_gradient(objective, config, weights, batch, params)
    step, opt_state = optimizer.update(grads, opt_state, weights.online)
    online = optax.apply_updates(weights.online, step)
    weights = weights._replace(online=online)
    target = sync_target(config, weights, updates)
    average = optax.incremental_update(online, weights.average, config.average_rate)
    return Weights(online, target, average), opt_state, metrics
