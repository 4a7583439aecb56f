"""The Q-network: a small graph network with a dueling head on the edges."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxsched.learner.features import RUN_TIME, Features
from jaxsched.learner.graph import bipartite, message_pass, split_nodes

ILLEGAL = -1e30  # an illegal action's value: set by `where`, never added, below any value that can be learnt


@dataclass(frozen=True)
class NetworkConfig:
    """Size of the network and of its candidate set."""

    width: int = 32  # of every hidden layer
    max_jobs: int = 24  # K
    max_nodes: int = 8  # M
    reserving: bool = True  # offer only placements that do not delay the shortest job
    prior: float = 0.5  # advantages begin at minus this, per four hours of run time; 0: at random


class QNetwork(nn.Module):
    """Q-values of all candidates of one decision, f32[K*M + 1], ``ILLEGAL`` where not legal; the last one is WAIT.

    Jobs, nodes and pairs are embedded, one round of messages runs over the pairs that may ever run, and each legal
    pair gets an advantage: Q = V + A - mean of A over legal pairs (Wang et al. 2016). WAIT is legal only where no
    pair is, and is then worth V.
    """

    config: NetworkConfig

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        k, dense = features.job.shape[0], self._dense
        context = nn.relu(dense("embed_context")(features.context))
        jobs = nn.relu(dense("embed_job")(features.job)) * features.has_job[:, None]
        nodes = nn.relu(dense("embed_node")(features.node))
        has_node = features.legal.any(0) | features.allowed.any(0)
        graph = bipartite(jobs, nodes * has_node[:, None], features.pair, context)

        def update_edge(edges: jax.Array, jobs: jax.Array, nodes: jax.Array) -> jax.Array:
            hidden = dense("edge")(edges) + dense("edge_job", bias=False)(jobs)[:, None]
            return nn.relu(hidden + dense("edge_node", bias=False)(nodes)[None])

        def update_node(
            rows: jax.Array, sent: jax.Array, received: jax.Array, context: jax.Array
        ) -> jax.Array:
            job_rows = dense("job")(jnp.concatenate([rows[:k], sent[:k]], -1))
            node_rows = dense("node")(jnp.concatenate([rows[k:], received[k:]], -1))
            both = jnp.concatenate([job_rows, node_rows]) + dense("node_context", bias=False)(context)
            return nn.relu(both)

        def update_global(rows: jax.Array, edges: jax.Array, context: jax.Array) -> jax.Array:
            return context

        graph = message_pass(graph, features.allowed, update_edge, update_node, update_global)
        return self._values(features, *split_nodes(graph, k), graph.edges, context)

    def _dense(self, name: str, size: int | None = None, bias: bool = True) -> nn.Dense:
        return nn.Dense(size or self.config.width, use_bias=bias, name=name)

    def _values(
        self, features: Features, jobs: jax.Array, nodes: jax.Array, edges: jax.Array, context: jax.Array
    ) -> jax.Array:
        """The dueling head: f32[K*M + 1] from the rows of the graph after the messages."""
        dense, has_node = self._dense, features.legal.any(0) | features.allowed.any(0)
        pooled = _masked_mean(jobs, features.has_job), _masked_mean(nodes, has_node)
        summary = nn.relu(dense("summary")(jnp.concatenate([*pooled, context], -1)))
        value = dense("value", 1)(nn.relu(dense("value_hidden")(summary)))[0]
        hidden = dense("read_edge")(edges).reshape(*features.legal.shape, -1)
        hidden = (
            hidden
            + dense("read_job", bias=False)(jobs)[:, None]
            + dense("read_node", bias=False)(nodes)[None]
        )
        hidden = nn.relu(hidden + dense("read_context", bias=False)(summary))
        begin = nn.initializers.zeros if self.config.prior else nn.initializers.lecun_normal()
        learned = nn.Dense(1, kernel_init=begin, name="advantage")(hidden)[..., 0]
        advantage = learned - self.config.prior * features.pair[..., RUN_TIME]
        mean = jnp.where(features.legal, advantage, 0.0).sum() / jnp.maximum(features.legal.sum(), 1)
        placing = jnp.where(features.legal, value + advantage - mean, ILLEGAL).reshape(-1)
        waiting = jnp.where(features.legal.any(), ILLEGAL, value)
        return jnp.append(placing, waiting)


def _masked_mean(rows: jax.Array, mask: jax.Array) -> jax.Array:
    return (rows * mask[:, None]).sum(0) / jnp.maximum(mask.sum(), 1)
