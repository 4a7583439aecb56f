"""How fast the layers of the program run here: what ``bench`` measures.

Compiling is timed apart; every output is waited for, and depends on everything that was computed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxsched.learner.agent import gnn_policy
from jaxsched.learner.ddqn import LearnerConfig, q_values
from jaxsched.learner.networks import QNetwork
from jaxsched.learner.training import make_train, with_objective
from jaxsched.policies.library import Policy
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.rollout import run
from jaxsched.sim.state import empty_state
from jaxsched.types import EnvConfig, EnvParams

STEPS = 256  # decisions of each cluster in one timed repeat of ``env``
BLOCK = 256  # clusters stepped together: their states fit a core's cache


@dataclass(frozen=True)
class Measured:
    """One layer at one number of clusters."""

    per_s: list[float]  # of each repeat
    compile_s: float


def measure_sim(policy: Policy, config: EnvConfig, params: EnvParams, size: int, repeats: int) -> Measured:
    """Events of whole windows in the event loop: no observation, no record of places."""

    threads = threads_for(size)
    share = -(-size // threads)

    def events(key: jax.Array, params: EnvParams) -> jax.Array:
        def one(world: jax.Array) -> jax.Array:
            return run(policy, policy.default_params, key, params, world, config, parts=False).events

        worlds = jnp.arange(share, dtype=jnp.int32) % params.pool.num_jobs.shape[0]
        return jax.lax.map(one, worlds, batch_size=min(BLOCK, share)).sum()

    return _measure(events, params, repeats, threads)


def measure_env(policy: Policy, config: EnvConfig, params: EnvParams, size: int, repeats: int) -> Measured:
    """Decisions of ``policy`` through the public ``step``, observation and auto-reset included."""
    threads = threads_for(size)
    env, lanes = ClusterEnv(config), min(BLOCK, -(-size // threads))
    blocks = -(-size // (threads * lanes))

    def block(keys: jax.Array, params: EnvParams) -> jax.Array:
        states = jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1]

        def step(carry: Any, number: jax.Array) -> tuple[Any, jax.Array]:
            step_keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
            decide = jax.vmap(policy, in_axes=(None, 0, 0, None))
            actions = decide(policy.default_params, step_keys, carry, params)
            step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))
            observation, states, reward, *_ = step_all(step_keys, carry, actions, params)
            return states, checksum((observation, reward))

        return jax.lax.scan(step, states, jnp.arange(STEPS))[1].sum()

    def decisions(key: jax.Array, params: EnvParams) -> jax.Array:
        return jax.lax.map(lambda keys: block(keys, params), jax.random.split(key, (blocks, lanes))).sum()

    return _measure(decisions, params, repeats, threads, units=blocks * lanes * STEPS)


def measure_train(config: EnvConfig, params: EnvParams, size: int, repeats: int) -> Measured:
    """Decisions of the default learner on ``size`` clusters, updates included."""
    trainer = make_train(ClusterEnv(config), LearnerConfig(num_envs=size, learning_starts=0))
    params = with_objective(params, LearnerConfig())
    learner = trainer.init(jax.random.key(0), params)
    began = time.perf_counter()
    chunk = trainer.train_chunk.lower(learner, params).compile()  # type: ignore[attr-defined]
    compile_s = time.perf_counter() - began
    for _ in range(trainer.fill_chunks + 1):  # the last with updates, as those that are timed
        learner, _ = jax.block_until_ready(chunk(learner, params))
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        learner, _ = jax.block_until_ready(chunk(learner, params))
        rates.append(trainer.chunk_size / (time.perf_counter() - began))
    return Measured(rates, compile_s)


def untrained_network(config: EnvConfig, params: EnvParams) -> tuple[Policy, float]:
    """The default network with random weights as a policy, and its floating-point operations a decision."""
    trainer = make_train(ClusterEnv(config), LearnerConfig(num_envs=1))
    weights = trainer.init(jax.random.key(0), params).weights.online
    network = QNetwork(LearnerConfig().network)
    state = empty_state(config, params, jnp.int32(0))
    compiled = jax.jit(lambda weights: q_values(network, weights, state, params)).lower(weights).compile()
    return gnn_policy(network.config, weights), float((compiled.cost_analysis() or {}).get("flops", 0.0))


def checksum(tree: Any) -> jax.Array:
    """f32[]: a number that depends on every leaf, so that no output is dead code."""
    return jnp.asarray(sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(tree)))


def threads_for(size: int) -> int:
    """Host threads that share ``size`` clusters: XLA runs a loop on one core, so a CPU gets one loop a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(cores, size // 64)) if jax.default_backend() == "cpu" else 1


def _measure(
    work: Callable[[jax.Array, EnvParams], jax.Array],
    params: EnvParams,
    repeats: int,
    threads: int,
    units: int | None = None,
) -> Measured:
    """Times ``work(key, params)`` on each of ``threads``; ``units`` of work each, or as many as it returns."""
    began = time.perf_counter()
    compiled = jax.jit(work).lower(jax.random.key(0), params).compile()
    compile_s = time.perf_counter() - began

    def share(key: jax.Array) -> int:
        result = int(jax.block_until_ready(compiled(key, params)))
        return units or result

    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for repeat in range(-1, repeats):
            keys = list(jax.random.split(jax.random.key(repeat + 1), threads))
            began = time.perf_counter()
            done = sum(pool.map(share, keys))
            if repeat >= 0:  # the first call pays for memory and page faults
                rates.append(done / (time.perf_counter() - began))
    return Measured(rates, compile_s)
