"""Checks for your own environments, policies and loops; the package's tests are built from the same ones.

    from jaxsched.testing import assert_invariants, assert_single_trace, check_env

    check_env(env, params, jax.random.key(0))       # a random masked walk, every step checked
    step = assert_single_trace(env.step)            # jit that refuses to be traced a second time
    assert_invariants(state, params)                # the books of one cluster balance

Every check raises ``AssertionError`` with one line that says what is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.sim.env import ClusterEnv
from jaxsched.types import MILLI, NEVER, EnvParams, EnvState, Observation, Request


def assert_single_trace(function: Callable, **jit_options: Any) -> Callable:
    """``jax.jit(function)`` that raises when JAX has to trace it a second time, naming what changed.

    ``jit_options`` go to ``jax.jit``; with ``static_argnums`` unequal static arguments count as a change too.
    """
    seen: list[str] = []

    @functools.wraps(function)
    def traced_once(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree_util.tree_leaves_with_path((args, kwargs))
        seen.append("\n".join(f"{jax.tree_util.keystr(path)}: {_describe(leaf)}" for path, leaf in leaves))
        if len(seen) > 1:
            changed = sorted(set(seen[-1].splitlines()) ^ set(seen[0].splitlines()))
            raise AssertionError(f"{function.__name__} was traced again; changed: {changed[:4]}")
        return function(*args, **kwargs)

    return jax.jit(traced_once, **jit_options)


def _describe(leaf: Any) -> str:
    if not isinstance(leaf, jax.Array):
        return repr(leaf)
    return f"{leaf.dtype}{list(leaf.shape)}{' weak' if leaf.weak_type else ''}"


def assert_same_types(got: Any, want: Any, what: str) -> None:
    """Two pytrees have the same structure, shapes and dtypes, and neither has a weak type."""
    got_tree, want_tree = jax.tree.structure(got), jax.tree.structure(want)
    assert got_tree == want_tree, f"{what}: structure {got_tree} instead of {want_tree}"
    pairs = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, leaf), other in pairs:
        name = f"{what}{jax.tree_util.keystr(path)}"
        assert _describe(leaf) == _describe(other), f"{name}: {_describe(leaf)} instead of {_describe(other)}"
        assert not leaf.weak_type, f"{name} has a weak type, which makes jit trace again"


@jax.jit
def random_action(key: jax.Array, action_mask: jax.Array) -> jax.Array:
    """One of the legal actions, each equally likely, i32[]; ``action_mask`` is bool[A] with at least one True."""
    return jax.random.categorical(key, jnp.where(action_mask, 0.0, -jnp.inf)).astype(jnp.int32)


def check_env(env: ClusterEnv, params: EnvParams, key: jax.Array, *, steps: int = 200) -> int:
    """Walk ``steps`` random legal actions through ``env.step`` under jit, checking every one of them.

    Checked: ``reset`` and ``step`` are traced once and give the same structure, shapes and strong dtypes; everything
    is finite; the mask always offers something; no legal action is called illegal; flags and discount make sense;
    the cluster's books balance (``assert_invariants``). Returns the number of episodes that ended.
    """
    reset, step = assert_single_trace(env.reset), assert_single_trace(env.step)
    observation, state = reset(key, params)
    first = (observation, state)
    assert_same_types(first, first, "reset")
    _check_observation(observation)
    assert_invariants(state, params)
    episodes, infos = 0, None
    for i in range(steps):
        before = state
        step_key, action_key = jax.random.split(jax.random.fold_in(key, i))
        action = random_action(action_key, observation.action_mask)
        observation, state, reward, terminated, truncated, info = step(step_key, state, action, params)
        infos = infos or info
        assert_same_types((observation, state), first, "step")
        assert_same_types(info, infos, "info")
        _check_outcome(reward, terminated, truncated, info)
        _check_observation(observation)
        done = bool(terminated | truncated)
        assert_invariants(state, params, previous=None if done else before)
        episodes += done
    return episodes


def _check_outcome(reward: jax.Array, terminated: jax.Array, truncated: jax.Array, info: dict) -> None:
    assert (reward.shape, reward.dtype) == ((), jnp.float32), f"reward is {_describe(reward)}, not float32[]"
    assert np.isfinite(reward), f"reward is {reward}"
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        assert (flag.shape, flag.dtype) == ((), jnp.bool_), f"{name} is {_describe(flag)}, not bool[]"
    assert not bool(terminated & truncated), "terminated and truncated at once"
    assert 0 < float(info["discount"]) <= 1, f"discount is {info['discount']}"
    assert not bool(info["illegal_action"]), "an action of the mask was called illegal"
    _check_observation(info["final_observation"])


def _check_observation(observation: Observation) -> None:
    assert np.asarray(observation.action_mask).any(), "the mask offers nothing"
    for path, leaf in jax.tree_util.tree_leaves_with_path(observation):
        assert np.isfinite(leaf).all(), f"observation{jax.tree_util.keystr(path)} is not finite"


def assert_invariants(state: EnvState, params: EnvParams, previous: EnvState | None = None) -> None:
    """The books of one (unbatched) cluster balance, to the integer.

    Free + taken = capacity for every device and every node's cpu and memory; nothing is negative; each job that was
    admitted is queued, running or finished, and in one of these only; a running gang is whole; nothing is overdue.
    With ``previous``, an earlier state of the same episode, clock and counters have not gone back.
    """
    s = jax.tree.map(np.asarray, state)
    world = jax.tree.map(lambda leaf: np.asarray(leaf[int(s.world)]), params.pool)
    _assert_resources(s, world)
    _assert_jobs(s, world)
    if previous is not None:
        assert int(previous.world) == int(s.world), "another world in the middle of an episode"
        for name in ("time", "steps", "arrived", "admitted", "finished", "queue_bound", "running_bound"):
            before, after = int(getattr(previous, name)), int(getattr(s, name))
            assert before <= after, f"{name} went back from {before} to {after}"


def _assert_resources(s: EnvState, world: Any) -> None:
    running = s.run_job >= 0
    node, request = s.run_node[running].astype(int), world.request[s.run_job[running].astype(int)]
    instances, devices = s.run_instances[running].astype(int), s.run_taken[running].astype(int)
    has_device = np.arange(s.free_gpu.shape[1]) < world.node_gpus[:, None]
    books = (
        ("gpu_milli", s.free_gpu.astype(int), has_device * MILLI, devices * request[:, [Request.GPU_MILLI]]),
        ("cpu_milli", s.free_cpu.astype(int), world.node_cpu, instances * request[:, Request.CPU_MILLI]),
        (
            "memory_mib",
            s.free_memory.astype(int),
            world.node_memory,
            instances * request[:, Request.MEMORY_MIB],
        ),
    )
    for name, free, capacity, taken in books:
        total = free.copy()
        np.add.at(total, node, taken)
        wrong = np.argwhere(total != capacity)
        assert not len(wrong), (
            f"{name} of {wrong[0].tolist()}: free {free[tuple(wrong[0])]} + taken is not the capacity"
        )
        assert (free >= np.minimum(capacity, 0)).all(), f"{name}: negative free amount"
    assert (devices.sum(1) == instances * request[:, Request.NUM_GPU]).all(), (
        "a part holds too few or too many devices"
    )


def _assert_jobs(s: EnvState, world: Any) -> None:
    queued = s.queue[s.queue >= 0].astype(int)
    rows = s.run_job[s.run_job >= 0].astype(int)
    running = set(rows.tolist()) | ({int(s.gang_job)} if s.gang_job >= 0 else set())
    assert len(set(queued.tolist())) == len(queued), "a job is in two queue slots"
    assert not running & set(queued.tolist()), "a job is queued and running"
    assert max([-1, *queued, *running]) < s.admitted <= s.arrived <= world.num_jobs, "a job from the future"
    assert len(queued) + len(running) + s.finished == s.admitted, "a job was lost or counted twice"
    for job in running:
        parts = s.run_job == job
        placed = s.run_instances[parts].sum(dtype=int) + (s.gang_left if job == s.gang_job else 0)
        wanted = world.request[job, Request.INSTANCES]
        ending = placed < wanted and (s.run_end[parts] == s.time).all()  # a due gang is released part by part
        assert placed == wanted or ending, f"job {job} runs {placed} instances instead of {wanted}"
    assert (s.run_end[s.run_job < 0] == NEVER).all(), "an empty running row has an end"
    assert (s.run_end >= s.time).all(), "a running job is overdue"
