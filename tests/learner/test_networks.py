"""The Q-network: padding and order of jobs must not matter, and nothing ever becomes infinite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner.features import Features
from jaxsched.learner.networks import ILLEGAL
from tests.learner.small import ENV, describe_state, network_and_weights, params, random_features

NETWORK, WEIGHTS = network_and_weights()
APPLY = jax.jit(NETWORK.apply)
SOLE = random_features(1, 3, 2)


def q(features: Features) -> np.ndarray:
    return placements(APPLY(WEIGHTS, features), features)


def placements(values, features: Features) -> np.ndarray:
    """Values [K, M] of the placements among all values [K*M + 1]."""
    return np.asarray(values)[:-1].reshape(features.legal.shape)


def padded(features: Features, jobs: int, nodes: int, garbage: float) -> Features:
    """The same graph among ``jobs`` x ``nodes`` places; the new ones hold ``garbage`` and are masked."""
    more_jobs, more_nodes = jobs - len(features.job), nodes - len(features.node)

    def pad(leaf, *axes, fill=garbage):
        widths = [(0, n) for n in axes] + [(0, 0)] * (leaf.ndim - len(axes))
        return jnp.pad(leaf, widths, constant_values=fill)

    return Features(
        job=pad(features.job, more_jobs),
        node=pad(features.node, more_nodes),
        pair=pad(features.pair, more_jobs, more_nodes),
        context=features.context,
        has_job=pad(features.has_job, more_jobs, fill=False),
        allowed=pad(features.allowed, more_jobs, more_nodes, fill=False),
        legal=pad(features.legal, more_jobs, more_nodes, fill=False),
    )


@pytest.mark.parametrize("garbage", [0.0, 7.0])
def test_padding_does_not_change_values(garbage):  # LE-11
    wide = padded(SOLE, 8, 4, garbage)
    got = q(wide)
    np.testing.assert_allclose(got[:3, :2], q(SOLE), atol=1e-5)
    assert (got[~np.asarray(wide.legal)] == np.float32(ILLEGAL)).all()


def test_batching_does_not_change_values():  # LE-11
    """Batched with five other graphs of other sizes."""
    graphs = [padded(SOLE, 8, 4, 0.0)]
    graphs += [padded(random_features(10 + i, 1 + i, 1 + i % 4), 8, 4, 0.0) for i in range(5)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *graphs)
    got = jax.jit(jax.vmap(lambda features: NETWORK.apply(WEIGHTS, features)))(batch)
    np.testing.assert_allclose(placements(got[0], graphs[0])[:3, :2], q(SOLE), atol=1e-5)
    for row, graph in zip(got, graphs, strict=True):
        np.testing.assert_allclose(row, APPLY(WEIGHTS, graph), rtol=1e-5, atol=1e-5)


def test_permuting_jobs_and_nodes_permutes_values():  # LE-11
    jobs, nodes = np.array([2, 0, 1]), np.array([1, 0])
    moved = Features(
        job=SOLE.job[jobs],
        node=SOLE.node[nodes],
        pair=SOLE.pair[jobs][:, nodes],
        context=SOLE.context,
        has_job=SOLE.has_job[jobs],
        allowed=SOLE.allowed[jobs][:, nodes],
        legal=SOLE.legal[jobs][:, nodes],
    )
    np.testing.assert_allclose(q(moved), q(SOLE)[jobs][:, nodes], atol=1e-5)


def test_dueling_mean_is_over_legal_pairs():
    """Q = V + A - mean(A): the mean of Q over legal pairs is V whatever the advantages."""
    head = WEIGHTS["params"]["advantage"]
    other = {"params": {**WEIGHTS["params"], "advantage": jax.tree.map(lambda leaf: 3 * leaf + 1, head)}}
    legal = np.asarray(SOLE.legal)
    first, second = q(SOLE)[legal], placements(APPLY(other, SOLE), SOLE)[legal]
    assert np.abs(first - second).max() > 1e-3
    assert first.mean() == pytest.approx(second.mean(), abs=1e-5)


def test_waiting_is_worth_the_state_and_offered_only_where_nothing_else_is():
    """WAIT, the last candidate, has the value V = mean of Q over legal pairs of a graph without advantages."""
    none = SOLE._replace(legal=jnp.zeros_like(SOLE.legal))
    flat = {
        "params": {
            **WEIGHTS["params"],
            "advantage": jax.tree.map(jnp.zeros_like, WEIGHTS["params"]["advantage"]),
        }
    }
    values = np.asarray(APPLY(flat, SOLE))
    assert values[-1] == np.float32(ILLEGAL)
    waiting = np.asarray(APPLY(flat, none))
    assert (waiting[:-1] == np.float32(ILLEGAL)).all()
    assert waiting[-1] == pytest.approx(values[:-1].max(), abs=1e-5)


def without_edges() -> dict[str, Features]:
    none = jnp.zeros_like(SOLE.legal)
    return {
        "empty queue": SOLE._replace(
            job=jnp.zeros_like(SOLE.job), has_job=jnp.zeros_like(SOLE.has_job), allowed=none, legal=none
        ),
        "a job without a node": SOLE._replace(
            allowed=SOLE.allowed.at[0].set(False), legal=SOLE.legal.at[0].set(False)
        ),
        "no legal pair": SOLE._replace(legal=none),
        "no edge": SOLE._replace(allowed=none, legal=none),
    }


@pytest.mark.parametrize("case", without_edges())
def test_values_and_gradients_stay_finite(case):  # LE-12
    features = without_edges()[case]

    def legal_sum(weights, numbers):
        values = NETWORK.apply(weights, features._replace(**numbers))
        return (jnp.where(features.legal, values[:-1].reshape(features.legal.shape), 0.0) ** 2).sum(), values

    numbers = {name: getattr(features, name) for name in ("job", "node", "pair", "context")}
    gradients, values = jax.jit(jax.grad(legal_sum, argnums=(0, 1), has_aux=True))(WEIGHTS, numbers)
    assert np.isfinite(values).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert bool(features.legal.any()) == any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients[0]))


def test_finished_and_empty_clusters_have_finite_features():  # LE-12
    """A cluster whose window is over, and one without any GPU."""
    state = ENV.reset_to(jnp.int32(0), params())
    over = state.replace(queue=jnp.full_like(state.queue, -1), finished=jnp.int32(12), arrived=jnp.int32(12))
    no_gpus = params().replace(pool=params().pool.replace(node_gpus=jnp.zeros_like(params().pool.node_gpus)))
    bare = over.replace(free_gpu=jnp.zeros_like(over.free_gpu))
    look = jax.jit(describe_state)
    for state, world in ((over, params()), (bare, no_gpus)):
        features = look(state, world)
        assert not features.has_job.any() and not features.legal.any()
        assert all(np.isfinite(leaf).all() for leaf in features)
        assert (q(features) == np.float32(ILLEGAL)).all()
        assert np.isfinite(np.asarray(APPLY(WEIGHTS, features))[-1])
