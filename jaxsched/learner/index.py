"""The policy ``index``: a linear score over the network's candidate placements and features.

27 weights, one for each feature of the job, the node and the pair; the reservation of the shortest job is kept as by
``spt_pair-easy``. ``tune`` finds weights; with those of ``first_weights`` the shortest candidate pair goes first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.learner.candidates import choose_candidates, to_action
from jaxsched.learner.ddqn import first_maximum
from jaxsched.learner.features import JOB_FEATURES, NODE_FEATURES, PAIR_FEATURES, Features, describe
from jaxsched.learner.networks import ILLEGAL
from jaxsched.policies.library import Policy
from jaxsched.sim.clock import Cluster
from jaxsched.types import EnvParams

DEFINITION = "greatest linear score over the network's candidate placements and features; weights by tune"
MAX_JOBS, MAX_NODES = 16, 16  # size of the candidate set: K and M
NUM_WEIGHTS = JOB_FEATURES + NODE_FEATURES + PAIR_FEATURES
_LOG_RUN_TIME = JOB_FEATURES + NODE_FEATURES  # the first pair feature


def first_weights() -> np.ndarray:
    """f64[27]: minus the logarithm of the run time, as ``spt_pair-easy`` where all placements are candidates."""
    weights = np.zeros(NUM_WEIGHTS)
    weights[_LOG_RUN_TIME] = -1.0
    return weights


def index_scores(weights: jax.Array, features: Features) -> jax.Array:
    """f32[K, M]: weights f32[27] times the features of job, node and pair, in this order; ``ILLEGAL`` elsewhere."""
    job, node, pair = jnp.split(weights, (JOB_FEATURES, JOB_FEATURES + NODE_FEATURES))
    score = (
        (features.job * job).sum(-1)[:, None]
        + (features.node * node).sum(-1)
        + (features.pair * pair).sum(-1)
    )
    return jnp.where(features.legal, score, ILLEGAL)


def _decide(weights: jax.Array, key: jax.Array, cluster: Cluster, params: EnvParams) -> jax.Array:
    candidates = choose_candidates(cluster, params, MAX_JOBS, MAX_NODES)
    scores = index_scores(weights, describe(cluster, params, candidates)).reshape(-1)
    # WAIT is the last one, and the greatest only where no placement is legal.
    values = jnp.append(scores, jnp.where(candidates.legal.any(), ILLEGAL, 0.0))
    return to_action(candidates, first_maximum(values), cluster.state)


def index_policy(weights: np.ndarray) -> Policy:
    """The policy with these weights, f64[27], as its parameters."""
    return Policy(_decide, "index", DEFINITION, np.asarray(weights, np.float32), costly=True)
