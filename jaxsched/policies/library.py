"""Every policy by name, and the decorator that adds a user's own.

A policy is callable as ``policy(policy_params, key, state, env_params) -> action`` on one unbatched cluster. The fast
loops call ``policy.decide`` instead, which is given the view of the queue that they keep up to date.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.errors import InputError, nearest
from jaxsched.policies import place
from jaxsched.policies.easy import easy_action
from jaxsched.policies.fgd import fgd
from jaxsched.policies.order import order_keys, skip_or_strict
from jaxsched.policies.pair import spt_pair, spt_pair_easy
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import num_actions, view_queue
from jaxsched.types import Blocking, EnvParams, EnvState, Order

PLACEMENTS: dict[str, place.Placement] = {
    "first_fit": place.first_fit,
    "best_fit": place.best_fit,
    "worst_fit": place.worst_fit,
    "fastest": place.fastest,
    "random": place.random,
    "dot_product": place.dot_product,
    "gpu_packing": place.gpu_packing,
    "gpu_clustering": place.gpu_clustering,
    "fgd": fgd,
    "best_fit_vector": place.best_fit_vector,
}
_ORDER_TEXT = {
    Order.FIFO: "first come first served",
    Order.SJF: "shortest estimated run time on its fastest model first",
    Order.SAF: "smallest estimated run time x GPUs first",
    Order.F1: "least log10(e) n + 870 log10(s) first",
    Order.EDF: "earliest deadline first",
    Order.WFP3: "largest (wait/e)^3 n first",
    Order.UNICEP: "largest wait/(log2(n) e) first",
}
_BLOCKING_TEXT = {
    Blocking.SKIP: "jobs that do not fit are skipped",
    Blocking.STRICT: "the first job blocks the others",
    Blocking.EASY: "EASY backfilling behind the first job",
}


class Rule(NamedTuple):
    """Traced parameters of a grid policy: one compiled program per placement serves all of them."""

    order: jax.Array  # i32[] of Order
    blocking: jax.Array  # i32[] of Blocking


Decide = Callable[[Any, jax.Array, Cluster, EnvParams], jax.Array]


@dataclass(frozen=True)
class Policy:
    """A named policy. Two policies with the same ``decide`` share one compiled program."""

    decide: Decide
    name: str = field(default="", compare=False)
    definition: str = field(default="", compare=False)
    default_params: Any = field(default=(), compare=False)
    costly: bool = False  # asked only where some job could start: worth it for networks and look-ahead

    def __call__(
        self, policy_params: Any, key: jax.Array, state: EnvState, env_params: EnvParams
    ) -> jax.Array:
        """Action i32[] for one settled state."""
        return self.decide(policy_params, key, Cluster(state, view_queue(state, env_params)), env_params)


def _grid_action(
    placement: str, rule: Rule, key: jax.Array, cluster: Cluster, params: EnvParams
) -> jax.Array:
    draw = decision_draw(key)
    score = PLACEMENTS[placement]
    keys = order_keys(rule.order, cluster, params)

    def easy() -> jax.Array:
        return easy_action(keys, score, cluster, params, draw)

    def plain() -> jax.Array:
        slot, start = skip_or_strict(keys, rule.blocking == Blocking.STRICT, cluster)
        action = choose(slot)
        return jnp.where(start, action, num_actions(cluster.state) - 1).astype(jnp.int32)

    def choose(slot: jax.Array) -> jax.Array:
        return place.choose_node(score, cluster, params, slot, draw).astype(jnp.int32)

    return jax.lax.cond(rule.blocking == Blocking.EASY, easy, plain)


def decision_draw(key: jax.Array) -> jax.Array:
    """The one random integer of a decision, i32[] in [0, 2^30)."""
    return jax.random.randint(key, (), 0, 2**30, dtype=jnp.int32)


@functools.cache
def _grid_decide(placement: str) -> Decide:
    return functools.partial(_grid_action, placement)


_PAIR_TEXT = "least estimated run time over all legal (job, node) pairs, then earlier job, then best_fit"
_PAIRS = {
    "spt_pair": Policy(spt_pair, "spt_pair", _PAIR_TEXT),
    "spt_pair-easy": Policy(
        spt_pair_easy,
        "spt_pair-easy",
        f"{_PAIR_TEXT}; only pairs that do not delay the shortest job of the queue (its EASY reservation)",
    ),
}
_registered: dict[str, Policy] = {}


def register_policy(name: str, definition: str = "") -> Callable[[Callable], Callable]:
    """Decorator: make ``f(policy_params, key, state, env_params) -> action`` known under ``name``."""

    def register(function: Callable) -> Callable:
        def decide(policy_params: Any, key: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
            return function(policy_params, key, cluster.state, params)

        _registered[name] = Policy(decide, name, definition or (function.__doc__ or "").strip())
        return function

    return register


def grid_names() -> list[str]:
    """All ``<order>[-strict|-easy]+<placement>`` names."""
    suffixes = {Blocking.SKIP: "", Blocking.STRICT: "-strict", Blocking.EASY: "-easy"}
    return [
        f"{order.name.lower()}{suffix}+{placement}"
        for placement in PLACEMENTS
        for order in Order
        for suffix in suffixes.values()
    ]


def list_policies() -> dict[str, str]:
    """Every name that ``get_policy`` knows, with its definition."""
    names = [*grid_names(), *_PAIRS, *_registered]
    return {name: get_policy(name).definition for name in names}


def get_policy(name: str) -> Policy:
    """The policy called ``name``; InputError with the nearest name when there is none."""
    if name in _registered:
        return _registered[name]
    if name in _PAIRS:
        return _PAIRS[name]
    queue, _, placement = name.partition("+")
    order, _, suffix = queue.partition("-")
    blocking = {"": Blocking.SKIP, "strict": Blocking.STRICT, "easy": Blocking.EASY}.get(suffix)
    if order.upper() not in Order.__members__ or blocking is None or placement not in PLACEMENTS:
        known = [*grid_names(), *_PAIRS, *_registered]
        raise InputError(f"unknown policy {name!r}; {nearest(name, known)}")
    rule = Rule(np.int32(Order[order.upper()]), np.int32(blocking))
    first_line = (PLACEMENTS[placement].__doc__ or "").strip().splitlines()[0]
    text = f"{_ORDER_TEXT[Order[order.upper()]]}; {_BLOCKING_TEXT[blocking]}; {placement}: {first_line}"
    return Policy(_grid_decide(placement), name, text, rule)
