"""The trained network as a policy like any other."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxsched.learner.candidates import to_action
from jaxsched.learner.ddqn import first_maximum, score
from jaxsched.learner.features import (
    CONTEXT_FEATURES,
    JOB_FEATURES,
    NODE_FEATURES,
    PAIR_FEATURES,
    Features,
)
from jaxsched.learner.networks import NetworkConfig, QNetwork
from jaxsched.policies.library import Policy
from jaxsched.sim.clock import Cluster
from jaxsched.types import EnvParams

DEFINITION = "greedy placement of the trained graph network (--checkpoint DIR), over its candidate set"


def _greedy(
    network: QNetwork, weights: Any, key: jax.Array, cluster: Cluster, params: EnvParams
) -> jax.Array:
    values, candidates = score(network, weights, cluster, params)
    return to_action(candidates, first_maximum(values), cluster.state)


@functools.cache
def _greedy_of(config: NetworkConfig) -> Any:
    return functools.partial(_greedy, QNetwork(config))


def gnn_policy(config: NetworkConfig, weights: Any) -> Policy:
    """The greedy policy of a trained network; ``weights`` are its parameters."""
    return Policy(_greedy_of(config), "gnn", DEFINITION, weights, costly=True)


def weights_like(config: NetworkConfig) -> Any:
    """Shapes of the network's parameters; they depend on no cluster size."""
    k, m = 1, 1
    features = Features(
        job=jnp.zeros((k, JOB_FEATURES)),
        node=jnp.zeros((m, NODE_FEATURES)),
        pair=jnp.zeros((k, m, PAIR_FEATURES)),
        context=jnp.zeros(CONTEXT_FEATURES),
        has_job=jnp.zeros(k, bool),
        allowed=jnp.zeros((k, m), bool),
        legal=jnp.zeros((k, m), bool),
    )
    return jax.eval_shape(lambda: QNetwork(config).init(jax.random.key(0), features))
