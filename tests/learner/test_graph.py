"""Message passing: equal to plain jraph with gathers and segment sums, over the edges that exist."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from jaxsched.learner.graph import bipartite, message_pass, split_nodes

JOBS, NODES, WIDTH, EDGE = 5, 3, 4, 6


def numbers(seed: int = 0):
    """Inputs, weights and a mask in which job 0 and node 2 have no edge at all."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    inputs = draw(JOBS, WIDTH), draw(NODES, WIDTH), draw(JOBS, NODES, EDGE), draw(WIDTH)
    weights = {
        "edge": draw(EDGE, WIDTH),
        "sender": draw(WIDTH, WIDTH),
        "receiver": draw(WIDTH, WIDTH),
        "node": draw(3 * WIDTH, WIDTH),
        "context": draw(WIDTH, WIDTH),
    }
    mask = rng.random((JOBS, NODES)) < 0.6
    mask[0], mask[:, 2] = False, False
    return inputs, weights, mask


def ours(inputs, weights, mask):
    jobs, nodes, pairs, context = inputs

    def update_edge(edges, jobs, nodes):
        sent, received = jobs @ weights["sender"], nodes @ weights["receiver"]
        return jnp.tanh(edges @ weights["edge"] + sent[:, None] + received[None])

    def update_node(rows, sent, received, context):
        return jnp.tanh(
            jnp.concatenate([rows, sent, received], -1) @ weights["node"] + context @ weights["context"]
        )

    graph = bipartite(jobs, nodes, pairs, context)
    return message_pass(graph, jnp.asarray(mask), update_edge, update_node, lambda n, e, g: g)


def plain(inputs, weights, mask):
    """``jraph.GraphNetwork`` as its documentation has it, on a graph that holds only the edges that exist."""
    jobs, nodes, pairs, context = inputs
    k, m = np.nonzero(mask)
    graph = jraph.GraphsTuple(
        nodes=jnp.concatenate([jobs, nodes]),
        edges=pairs[k, m],
        senders=jnp.asarray(k),
        receivers=jnp.asarray(JOBS + m),
        globals=context[None],
        n_node=jnp.array([JOBS + NODES]),
        n_edge=jnp.array([len(k)]),
    )

    def update_edge(edges, sent, received, context):
        return jnp.tanh(edges @ weights["edge"] + sent @ weights["sender"] + received @ weights["receiver"])

    def update_node(rows, sent, received, context):
        return jnp.tanh(
            jnp.concatenate([rows, sent, received], -1) @ weights["node"] + context @ weights["context"]
        )

    network = jraph.GraphNetwork(
        update_edge_fn=update_edge,
        update_node_fn=update_node,
        aggregate_edges_for_nodes_fn=jraph.segment_mean,
    )
    return network(graph)


@pytest.mark.parametrize("seed", range(3))
def test_values_equal_plain_jraph(seed):
    inputs, weights, mask = numbers(seed)
    got, want = (jax.jit(lambda i, w, f=f: f(i, w, mask))(inputs, weights) for f in (ours, plain))
    np.testing.assert_allclose(got.nodes, want.nodes, atol=1e-5)
    np.testing.assert_allclose(got.edges.reshape(JOBS, NODES, -1)[mask], want.edges, atol=1e-5)
    np.testing.assert_array_equal(got.globals, want.globals)


def test_gradients_equal_plain_jraph():
    inputs, weights, mask = numbers()
    picks = jax.random.normal(jax.random.key(0), (JOBS + NODES, WIDTH))

    def gradients(network):
        def total(inputs, weights):
            return (network(inputs, weights, mask).nodes * picks).sum()

        return jax.jit(jax.grad(total, argnums=(0, 1)))(inputs, weights)

    got, want = gradients(ours), gradients(plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), got, want)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(want[1]))


def test_edges_join_every_job_with_every_node():
    (jobs, nodes, pairs, context), _, _ = numbers()
    graph = bipartite(jobs, nodes, pairs, context)
    edges = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    assert edges == [(k, JOBS + m) for k in range(JOBS) for m in range(NODES)]
    assert (int(graph.n_node[0]), int(graph.n_edge[0])) == (JOBS + NODES, JOBS * NODES)
    np.testing.assert_array_equal(graph.edges.reshape(JOBS, NODES, -1), pairs)
    for part, whole in zip(split_nodes(graph, JOBS), (jobs, nodes), strict=True):
        np.testing.assert_array_equal(part, whole)
