"""Choosing a checkpoint: mean JCT on validation windows, and a paired test against a lucky minimum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.policies.library import Policy
from jaxsched.sim.rollout import run
from jaxsched.types import EnvConfig, EnvParams


def window_runs(
    policy: Policy, policy_params: Any, key: jax.Array, params: EnvParams, config: EnvConfig
) -> tuple[jax.Array, jax.Array]:
    """Ticks i32[P, J] at which the jobs of every window of the pool end, and whether all did, bool[P]."""

    def one(world: jax.Array) -> Any:
        schedule = run(
            policy, policy_params, jax.random.fold_in(key, world), params, world, config, parts=False
        )
        return schedule.finish, schedule.complete

    return jax.vmap(one)(jnp.arange(params.pool.num_jobs.shape[0], dtype=jnp.int32))


_window_runs = jax.jit(window_runs, static_argnames=("policy", "config"))


def mean_jcts(params: EnvParams, finish: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """f64[P]: mean JCT in seconds of each window of the pool; inf where a job did not end."""
    arrival, num_jobs = np.asarray(params.pool.arrival), np.asarray(params.pool.num_jobs)
    real = np.arange(arrival.shape[1]) < num_jobs[:, None]
    total = np.where(real, finish.astype(np.float64) - arrival, 0.0).sum(1)
    return np.where(complete, total / num_jobs * float(params.tick_s), np.inf)


def window_jcts(
    policy: Policy, policy_params: Any, key: jax.Array, params: EnvParams, config: EnvConfig
) -> np.ndarray:
    """f64[P]: mean JCT in seconds of each window of the pool under a policy; inf where a job did not end."""
    return mean_jcts(params, *jax.device_get(_window_runs(policy, policy_params, key, params, config)))


def clearly_better(candidate: np.ndarray, best: np.ndarray) -> bool:
    """Is the candidate's mean log JCT ratio to the best below zero by more than its standard error?"""
    ratio = np.log(np.maximum(candidate, 1e-9) / np.maximum(best, 1e-9))
    return bool(
        ratio.mean() < -ratio.std(ddof=1) / np.sqrt(len(ratio)) if len(ratio) > 1 else ratio.mean() < 0
    )
