"""Running policies on the same windows and comparing them in pairs, window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from jaxsched.errors import InputError, nearest
from jaxsched.evaluation.metrics import COLUMNS, schedule_metrics
from jaxsched.sim.rollout import run
from jaxsched.types import EnvConfig, EnvParams, Schedule, World
from jaxsched.workloads.pool import WorldInfo

BLOCK = 16  # windows that run side by side: their states fit a core's cache
RESAMPLES = 10_000
_COUNTS = ("jobs", "completed", "unfinished", "impossible")

Watch = Callable[[str, int, Schedule], None]


def compare_policies(
    policies: Mapping[str, tuple[Any, Any]],
    config: EnvConfig,
    params: EnvParams,
    infos: Sequence[WorldInfo],
    key: jax.Array,
    reference: str | None = None,
    *,
    scenario: str = "",
    seed: int = 0,
    watch: Watch | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs every policy on every window of the pool and compares each with ``reference``.

    Args:
        policies: name -> (policy, policy_params).
        infos: one ``WorldInfo`` per window.
        key: draws of random policies; window w sees ``fold_in(key, w)`` under every policy.
        reference: name of the policy that effects are measured against; None leaves them empty.
        seed: of the bootstrap.
        watch: called with (policy, window, schedule) after each run, for progress bars and plots.

    Returns:
        evaluation: a row per policy and window: ``scenario, episode, policy`` and the metrics.
        summary: a row per policy, see ``summarise``.

    Raises InputError when the running table bound (the results would depend on its size) and when the
    policies did not complete the same jobs.
    """
    if reference is not None and reference not in policies:
        raise InputError(f"reference {reference!r} is not among the policies; {nearest(reference, policies)}")
    worlds = host_worlds(params)
    fgd_class = np.asarray(params.fgd_class)
    rows = []
    for name, (policy, policy_params) in policies.items():
        for episode, schedule in enumerate(window_schedules(policy, policy_params, config, params, key)):
            info = infos[episode]
            metrics = schedule_metrics(
                schedule, worlds[episode], info.tick_s, name, len(info.impossible), fgd_class
            )
            rows.append({"scenario": scenario, "episode": episode, **metrics})
            if watch is not None:
                watch(name, episode, schedule)
    evaluation = pd.DataFrame(rows, columns=["scenario", "episode", *COLUMNS])
    return evaluation, summarise(evaluation, reference, seed)


def host_worlds(params: EnvParams) -> list[World]:
    """The windows of the pool, each on the host."""
    pool = jax.tree.map(np.asarray, params.pool)
    return [jax.tree.map(lambda leaf: leaf[w], pool) for w in range(len(pool.num_jobs))]  # noqa: B023


def window_schedules(
    policy: Any, policy_params: Any, config: EnvConfig, params: EnvParams, key: jax.Array
) -> Iterator[Schedule]:
    """The schedule of each window of the pool, on the host, in order.

    Raises InputError when the running table bound.
    """
    windows = params.pool.num_jobs.shape[0]
    block = min(BLOCK, windows)
    for first in range(0, windows, block):
        rows = np.minimum(np.arange(first, first + block), windows - 1)  # the last block repeats its last row
        schedules = jax.device_get(_run_block(policy, policy_params, key, params, jnp.asarray(rows), config))
        for offset in range(min(block, windows - first)):
            schedule = jax.tree.map(lambda leaf: leaf[offset], schedules)  # noqa: B023
            if schedule.running_bound > 0:
                raise InputError(
                    f"window {first + offset}: the running table of {config.running} rows is too small; "
                    "set running higher"
                )
            yield schedule


@partial(jax.jit, static_argnames=("policy", "config"))
def _run_block(
    policy: Any, policy_params: Any, key: jax.Array, params: EnvParams, worlds: jax.Array, config: EnvConfig
) -> Schedule:
    def one(world: jax.Array) -> Schedule:
        return run(policy, policy_params, jax.random.fold_in(key, world), params, world, config)

    return jax.vmap(one)(worlds)


def summarise(evaluation: pd.DataFrame, reference: str | None = None, seed: int = 0) -> pd.DataFrame:
    """A row per policy over its windows.

    Counts are sums and the other metrics means over windows. ``mean_jct_low_s`` and ``mean_jct_high_s``
    bound the mean JCT, ``log_jct_ratio_low`` and ``_high`` the effect ``log_jct_ratio`` (mean over windows of
    the log of the ratio of mean JCTs to the reference's); both are 95 % percentile bootstraps over windows.
    ``jct_change_pct`` is the effect in per cent, ``wins`` the number of windows with a lower mean JCT.

    Raises InputError when the policies did not complete the same jobs.
    """
    check_same_jobs(evaluation)
    jct = evaluation.pivot(index="episode", columns="policy", values="mean_jct_s").astype(float)
    resamples = np.random.default_rng(seed).integers(len(jct), size=(RESAMPLES, len(jct)))
    rows = []
    for policy, group in evaluation.groupby("policy", sort=False):
        row: dict[str, Any] = {"policy": policy}
        for column in COLUMNS[1:]:
            values = group[column].dropna()
            row[column] = None if values.empty else values.sum() if column in _COUNTS else values.mean()
        low, high = bootstrap_interval(jct[policy].to_numpy(), resamples)
        row |= {"episodes": len(group), "mean_jct_low_s": low, "mean_jct_high_s": high}
        if reference is not None:
            row |= paired_effect(jct[policy].to_numpy(), jct[reference].to_numpy(), resamples)
        rows.append({**row, "reference": reference})
    return pd.DataFrame(rows)


def check_same_jobs(evaluation: pd.DataFrame) -> None:
    """Raises InputError unless every policy completed the same jobs of each window, that is all of them."""
    unfinished = evaluation[evaluation["unfinished"] > 0]
    if len(unfinished):
        row = unfinished.iloc[0]
        raise InputError(
            f"policies can only be compared on the same jobs: {row['policy']} left {row['unfinished']} of "
            f"{row['jobs']} jobs of window {row['episode']} unfinished"
        )
    for episode, group in evaluation.groupby("episode"):
        if len(set(zip(group["jobs"], group["impossible"], strict=True))) > 1:
            raise InputError(
                f"policies can only be compared on the same jobs: they differ in window {episode}"
            )


def paired_effect(jct: np.ndarray, reference: np.ndarray, resamples: np.ndarray) -> dict[str, float | int]:
    """The effect of a policy against the reference from mean JCTs (f64[W], seconds) on the same windows."""
    ratios = np.log(np.maximum(jct, 1e-9) / np.maximum(reference, 1e-9))
    low, high = bootstrap_interval(ratios, resamples)
    effect = float(np.mean(ratios))
    return {
        "log_jct_ratio": effect,
        "log_jct_ratio_low": low,
        "log_jct_ratio_high": high,
        "jct_change_pct": 100 * float(np.expm1(effect)),
        "wins": int(np.sum(jct < reference)),
    }


def bootstrap_interval(values: np.ndarray, resamples: np.ndarray) -> tuple[float, float]:
    """95 % percentile interval of the mean of ``values`` (f64[W]) over ``resamples`` (i64[R, W], indices)."""
    low, high = np.percentile(values[resamples].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)
