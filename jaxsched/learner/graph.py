"""The graph of a decision, and message passing over it. The only file that imports jraph.

Nodes: K candidate jobs, then M cluster nodes. Edges: all K*M pairs, job k to node m at k*M + m; pairs that may never
run are masked. Because the topology is complete, what jraph gathers and scatters by index is a broadcast and a
reshape-sum here (several times faster on CPU than ``segment_sum``); a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jraph
import numpy as np


def bipartite(jobs: jax.Array, nodes: jax.Array, pairs: jax.Array, context: jax.Array) -> jraph.GraphsTuple:
    """One graph of fixed shape.

    Args:
        jobs: f32[K, F] and nodes: f32[M, F], embedded to the same width.
        pairs: f32[K, M, E].
        context: f32[C].
    """
    k, m = pairs.shape[:2]
    return jraph.GraphsTuple(
        nodes=jnp.concatenate([jobs, nodes]),
        edges=pairs.reshape(k * m, -1),
        senders=np.repeat(np.arange(k), m),
        receivers=k + np.tile(np.arange(m), k),
        globals=context[None],
        n_node=np.array([k + m]),
        n_edge=np.array([k * m]),
    )


def split_nodes(graph: jraph.GraphsTuple, k: int) -> tuple[jax.Array, jax.Array]:
    """Rows of the jobs [K, F] and of the cluster nodes [M, F]."""
    return graph.nodes[:k], graph.nodes[k:]


def _mean_by_node(mask: jax.Array) -> Callable:
    """Aggregation of edges [K*M, F] over senders or receivers: the mean over the edges in ``mask`` bool[K, M]."""
    k, m = mask.shape

    def aggregate(edges: jax.Array, index: np.ndarray, num_nodes: int) -> jax.Array:
        by_pair = edges.reshape(k, m, -1) * mask[:, :, None]
        over_nodes = bool(np.all(np.asarray(index) < k))  # senders are jobs
        axis, pad = (1, ((0, m), (0, 0))) if over_nodes else (0, ((k, 0), (0, 0)))
        count = jnp.maximum(mask.sum(axis), 1)[:, None]
        return jnp.pad(by_pair.sum(axis) / count, pad)

    return aggregate


def message_pass(
    graph: jraph.GraphsTuple,
    mask: jax.Array,
    update_edge: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    update_node: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array],
    update_global: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
) -> jraph.GraphsTuple:
    """One round of a ``jraph.GraphNetwork`` on a bipartite graph.

    Args:
        mask: bool[K, M] edges that exist.
        update_edge: (edges [K, M, E], jobs [K, F], nodes [M, F]) -> edges [K, M, E'].
        update_node: (nodes [K+M, F], mean of sent edges, mean of received edges, context [1, C]) -> [K+M, F'].
        update_global: (sum over nodes, sum over edges, context) -> context.
    """
    k, m = mask.shape
    jobs, nodes = split_nodes(graph, k)

    def edges_from_blocks(edges, sent, received, context):
        """``sent`` and ``received`` hold the same rows gathered per edge; unused, they are never computed."""
        return update_edge(edges.reshape(k, m, -1), jobs, nodes).reshape(k * m, -1)

    def nodes_with_context(rows, sent, received, context):
        return update_node(rows, sent, received, graph.globals)

    network = jraph.GraphNetwork(
        update_edge_fn=edges_from_blocks,
        update_node_fn=nodes_with_context,
        update_global_fn=update_global,
        aggregate_edges_for_nodes_fn=_mean_by_node(mask),
        aggregate_nodes_for_globals_fn=lambda rows, index, count: rows.sum(0, keepdims=True),
        aggregate_edges_for_globals_fn=lambda rows, index, count: rows.sum(0, keepdims=True),
    )
    return network(graph)
