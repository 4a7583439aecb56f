"""The environment in decisions, shaped like gymnax 1.0 (with ``truncated`` from ``step_env`` too)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsched.errors import InputError, nearest
from jaxsched.sim.clock import (
    HOLD,
    Cluster,
    has_choice,
    is_settled,
    micro_step,
    next_instant,
    start_cluster,
    wait_or_hold,
)
from jaxsched.sim.fit import (
    FreeNodes,
    capacity,
    free_nodes,
    is_fraction,
    num_actions,
    startable,
    view_queue,
)
from jaxsched.sim.observe import action_mask, observe
from jaxsched.sim.reward import REWARDS, jobs_in_system
from jaxsched.sim.rollout import while_any
from jaxsched.sim.state import is_finished
from jaxsched.types import NEVER, EnvConfig, EnvParams, EnvState, Observation, Request
from jaxsched.workloads.scenarios import load_scenario, scenario_pool


class Totals(NamedTuple):
    """What one ``step`` adds up over its micro-steps."""

    reward: jax.Array  # f32[]
    job_ticks: jax.Array  # i32[] integral of jobs in the system, ticks (exact; sums to sum(JCT))
    events: jax.Array  # i32[] admissions, starts and ends
    turns: jax.Array  # i32[] micro-steps


def is_legal(cluster: Cluster, params: EnvParams, action: jax.Array) -> jax.Array:
    """bool[]: the action would be accepted. WAIT needs an event to come, a named device must fit the fraction."""
    state, view = cluster
    base = num_actions(state)
    wait = base - 1
    target, device = jnp.divmod(jnp.where(action < 0, wait, action), base)[::-1]
    in_range = (action >= 0) & (device <= state.free_gpu.shape[1])
    slot, node = jnp.divmod(jnp.minimum(target, wait - 1), state.free_cpu.shape[0])
    request = view.request[:, slot]
    there = FreeNodes(*(field[node] for field in free_nodes(state, params)))
    named_fits = there.gpu[jnp.maximum(device - 1, 0)] >= request[Request.GPU_MILLI]
    single = is_fraction(request) & (request[Request.INSTANCES] == 1)
    fits = (capacity(request, there) > 0) & startable(state, view)[slot]
    pair = fits & ((device == 0) | (single & named_fits))
    can_wait = (next_instant(state, params) != NEVER) & (device == 0)
    ready = is_settled(state, params) & ~is_finished(state, params)
    return in_range & ready & jnp.where(target == wait, can_wait, pair)


def _discounted(params: EnvParams, elapsed: jax.Array, interval: jax.Array) -> jax.Array:
    """Integral of e^(-beta t) over ``interval`` seconds that begin ``elapsed`` seconds into the transition."""
    beta = jnp.maximum(params.beta, 1e-30)
    factor = jnp.where(params.beta > 0, -jnp.expm1(-beta * interval) / beta, interval)
    return jnp.exp(-params.beta * elapsed) * factor


@dataclass(frozen=True)
class ClusterEnv:
    """One cluster as an environment. Holds no arrays; equal envs share compiled programs.

    Actions: i32[], slot*N + node starts that job there, Q*N is WAIT. Observations: ``types.Observation``.
    ``reward`` names a function of ``sim.reward``. A finished state's mask is WAIT alone and a step changes nothing.
    """

    config: EnvConfig
    reward: str = "immediate"

    version = "1"

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise InputError(f"reward: unknown {self.reward!r}; {nearest(self.reward, REWARDS)}")

    @property
    def num_actions(self) -> int:
        return self.config.num_actions

    def action_mask(self, state: EnvState, params: EnvParams) -> jax.Array:
        """bool[A]: what an agent may do."""
        return action_mask(Cluster(state, view_queue(state, params)), params, self.config.offer_wait)

    def observe(self, state: EnvState, params: EnvParams) -> Observation:
        return observe(Cluster(state, view_queue(state, params)), params, self.config.offer_wait)

    def reset_to(self, world: jax.Array, params: EnvParams) -> EnvState:
        """Settled state at the first decision of window ``world``."""
        return self._run_to_choice(start_cluster(self.config, params, world), params).state

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[Observation, EnvState]:
        """Start a random window of the pool."""
        world = jax.random.randint(key, (), 0, params.pool.num_jobs.shape[0], dtype=jnp.int32)
        state = self.reset_to(world, params)
        return self.observe(state, params), state

    reset = reset_env

    def step_env(
        self, key: jax.Array, state: EnvState, action: jax.Array, params: EnvParams
    ) -> tuple[Observation, EnvState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """One decision, without auto-reset.

        Returns (obs, state, reward f32[], terminated bool[], truncated bool[], info). An illegal action changes
        nothing and sets ``info["illegal_action"]``. ``info["discount"]`` is exp(-beta dt).
        """
        after, *outcome = self._decide(state, action, params)
        return outcome[-1]["final_observation"], after.state, *outcome

    def _decide(
        self, state: EnvState, action: jax.Array, params: EnvParams
    ) -> tuple[Cluster, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """The cluster after one decision, then reward, terminated, truncated and info as in ``step_env``."""
        cluster = Cluster(state, view_queue(state, params))
        action = jnp.asarray(action, jnp.int32)
        legal = is_legal(cluster, params, action)
        after, totals = self._transition(cluster, action, legal, params)
        state_t = after.state
        terminated = is_finished(state_t, params)
        limit = 2 * params.pool.num_jobs[state.world]
        truncated = ~terminated & (
            (state_t.steps >= limit) | (totals.turns >= self.config.max_events_per_step)
        )
        seconds = (state_t.time - state.time).astype(jnp.float32) * params.tick_s
        info = {
            "discount": jnp.exp(-params.beta * seconds),
            "illegal_action": ~legal & ~(is_finished(state, params) & (action == num_actions(state) - 1)),
            "job_ticks": totals.job_ticks,
            "events": totals.events,
            "finished": state_t.finished,
            "terminated": terminated,
            "truncated": truncated,
            "final_observation": observe(after, params, self.config.offer_wait),
        }
        return after, totals.reward, terminated, truncated, info

    def step(
        self, key: jax.Array, state: EnvState, action: jax.Array, params: EnvParams
    ) -> tuple[Observation, EnvState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """``step_env`` with auto-reset: a finished episode is replaced by another window of the pool.

        The observation and state returned are then those of the new episode; the last ones of the old episode are
        in ``info["final_observation"]``.
        """
        cluster, reward, terminated, truncated, info = self._decide(state, action, params)
        cluster = self._renew_if(key, cluster, terminated | truncated, params)
        observation = observe(cluster, params, self.config.offer_wait)
        return observation, cluster.state, reward, terminated, truncated, info

    def reset_if(self, key: jax.Array, state: EnvState, done: jax.Array, params: EnvParams) -> EnvState:
        """``state``, or the first decision of a random window where ``done``."""
        return self._renew_if(key, Cluster(state, view_queue(state, params)), done, params).state

    def _renew_if(self, key: jax.Array, cluster: Cluster, done: jax.Array, params: EnvParams) -> Cluster:
        world = jax.random.randint(key, (), 0, params.pool.num_jobs.shape[0], dtype=jnp.int32)
        fresh = start_cluster(self.config, params, world)
        cluster = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, cluster)
        return self._run_to_choice(cluster, params)

    def _run_to_choice(self, cluster: Cluster, params: EnvParams) -> Cluster:
        def undecided(params: EnvParams, cluster: Cluster) -> jax.Array:
            return ~has_choice(cluster, params) & ~is_finished(cluster.state, params)

        def go_on(params: EnvParams, cluster: Cluster) -> Cluster:
            return micro_step(params, cluster, wait_or_hold(cluster, params))[0]

        return while_any(undecided, go_on, params, cluster)

    def _transition(
        self, cluster: Cluster, action: jax.Array, legal: jax.Array, params: EnvParams
    ) -> tuple[Cluster, Totals]:
        """Obey ``action`` if legal, then run on while only WAIT is legal."""
        begin = cluster.state.time

        def goes_on(operand, carry):
            _, legal, _, _ = operand
            cluster, totals = carry
            first = legal & (totals.turns == 0)
            later = (
                (totals.turns > 0)
                & ~has_choice(cluster, operand[0])
                & ~is_finished(cluster.state, operand[0])
            )
            return first | (later & (totals.turns < self.config.max_events_per_step))

        def turn(operand, carry):
            params, legal, action, begin = operand
            cluster, totals = carry
            first = legal & (totals.turns == 0)
            chosen = jnp.where(first, action, wait_or_hold(cluster, params))
            moved, record = micro_step(params, cluster, jnp.where(legal, chosen, HOLD))
            gained = self._cost(params, cluster.state, moved.state, record, begin)
            gained = gained._replace(turns=goes_on(operand, carry).astype(jnp.int32))
            return moved, jax.tree.map(jnp.add, totals, gained)

        zero = jnp.zeros((), jnp.int32)
        carry = (cluster, Totals(jnp.zeros((), jnp.float32), zero, zero, zero))
        return while_any(goes_on, turn, (params, legal, action, begin), carry)

    def _cost(
        self, params: EnvParams, before: EnvState, after: EnvState, record: Any, begin: jax.Array
    ) -> Totals:
        rate, lump = REWARDS[self.reward](params, before, after, record)
        elapsed = (before.time - begin).astype(jnp.float32) * params.tick_s
        interval = (after.time - before.time).astype(jnp.float32) * params.tick_s
        later = jnp.exp(-params.beta * (elapsed + interval))
        cost = rate * _discounted(params, elapsed, interval) + lump * later
        job_ticks = jobs_in_system(before).astype(jnp.int32) * (after.time - before.time)
        events = record.started.astype(jnp.int32) + record.ended + record.admitted
        return Totals(-cost / params.reward_scale, job_ticks, events, jnp.ones((), jnp.int32))


def make(
    scenario: str,
    *,
    split: str = "train",
    num_windows: int = 64,
    seed: int = 0,
    reward: str = "immediate",
    **overrides: Any,
) -> tuple[ClusterEnv, EnvParams]:
    """Environment and parameters of a shipped scenario, ``NAME`` or ``NAME@LOAD``.

    Args:
        split: train, validation or test windows; they never overlap.
        num_windows: worlds in the pool; an episode is one window, ``reset`` draws one.
        overrides: fields of the scenario, for instance ``queue=32`` or ``offer_wait=True``.
    """
    config, params, _ = scenario_pool(load_scenario(scenario, **overrides), split, num_windows, seed)
    return ClusterEnv(config, reward), params
