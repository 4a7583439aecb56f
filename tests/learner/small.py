"""A cluster and a training program small enough to compile in seconds, shared by the tests of the learner."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.learner.candidates import choose_candidates
from jaxsched.learner.ddqn import LearnerConfig
from jaxsched.learner.features import Features, describe
from jaxsched.learner.networks import NetworkConfig, QNetwork
from jaxsched.learner.training import LearnerState, Trainer, make_train, with_objective
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import view_queue
from jaxsched.types import EnvConfig, EnvParams, EnvState
from tests.reference.resources import RefJob, RefNode
from tests.worlds import Sizes, params_of, world_of

SIZES = Sizes(nodes=2, gpus=2, jobs=12, models=3, classes=4, running=8)
ENV_CONFIG = EnvConfig(num_nodes=2, gpus_per_node=2, num_jobs=12, num_models=3, queue=8, running=8)
ENV = ClusterEnv(ENV_CONFIG)
NETWORK = NetworkConfig(width=16, max_jobs=6, max_nodes=2, prior=0.0)
CONFIG = LearnerConfig(
    total_steps=8_000,
    num_envs=10,
    chunk_steps=10,
    updates=25,  # one per four environment steps
    batch=64,
    capacity=400,
    learning_starts=1000,
    target="td",
    n_step=4,
    epsilon_start=1.0,
    epsilon_steps=4000,
    time_constant_s=1000.0,
    reward_scale=3000.0,
    learning_rate=3e-3,
    target_rate=0.02,
    average_rate=0.01,
    network=NETWORK,
)


def two_nodes(seed: int, count: int = 12) -> tuple[list[RefNode], list[RefJob]]:
    """Two nodes of two GPUs. A third of the jobs runs eight times faster on one, a third three times on the other."""
    rng = np.random.default_rng(seed)
    jobs, arrival = [], 0
    for i in range(count):
        duration = int(rng.choice([50, 100, 300, 900]))
        gains = [(1, 8), (3, 1), (1, 1)][rng.integers(3)]
        on = [duration, *(duration // gain for gain in gains)]
        jobs.append(RefJob(f"j{i}", arrival, on, on, int(rng.choice([1, 1, 2])), 1000))
        arrival += int(rng.exponential(40)) if i > 3 else 0
    return [RefNode(1, 2), RefNode(2, 2)], jobs


def pool(count: int, first_seed: int = 0) -> EnvParams:
    """``count`` windows of ``two_nodes``."""
    made = [two_nodes(first_seed + i) for i in range(count)]
    return params_of([world_of(nodes, jobs, SIZES) for nodes, jobs in made], made[0][1], SIZES)


@functools.cache
def params() -> EnvParams:
    """64 windows with the learner's reward."""
    return with_objective(pool(64), CONFIG)


@functools.cache
def trainer() -> Trainer:
    """The training program of ``CONFIG``: compiled once for all tests."""
    return make_train(ENV, CONFIG)


def begin(seed: int = 0) -> LearnerState:
    """A fresh learner, on its device as a restored one is."""
    return jax.device_put(trainer().init(jax.random.key(seed), params()), jax.devices()[0])


def advance(learner: LearnerState, chunks: int) -> tuple[LearnerState, list[dict]]:
    """``chunks`` more of the training loop of ``CONFIG``."""
    return advance_with(trainer(), learner, chunks)


def advance_with(trainer: Trainer, learner: LearnerState, chunks: int) -> tuple[LearnerState, list[dict]]:
    """``chunks`` more of a training loop."""
    measured = []
    for _ in range(chunks):
        learner, metrics = trainer.train_chunk(learner, params())
        measured.append(metrics)
    return learner, measured


def arrays(tree) -> list[np.ndarray]:
    """Every leaf on the host, keys as their numbers."""
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(tree)]


def is_key(leaf) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def same(a, b) -> bool:
    """Equal to the last bit."""
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


def describe_state(state: EnvState, params: EnvParams, network: NetworkConfig = NETWORK) -> Features:
    """Features of one settled state."""
    cluster = Cluster(state, view_queue(state, params))
    return describe(cluster, params, choose_candidates(cluster, params, network.max_jobs, network.max_nodes))


def random_features(seed: int, jobs: int, nodes: int, like: Features | None = None) -> Features:
    """A graph of random numbers; every second pair is legal. Numbers are in the shape of ``describe``'s."""
    like = like or describe_state(ENV.reset_to(jnp.int32(0), params()), params())
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    legal = (np.arange(jobs)[:, None] + np.arange(nodes)[None]) % 2 == 0
    return Features(
        job=draw(jobs, like.job.shape[-1]),
        node=draw(nodes, like.node.shape[-1]),
        pair=draw(jobs, nodes, like.pair.shape[-1]),
        context=draw(like.context.shape[-1]),
        has_job=jnp.ones(jobs, bool),
        allowed=jnp.asarray(legal | (rng.random((jobs, nodes)) < 0.5)),
        legal=jnp.asarray(legal),
    )


def network_and_weights(seed: int = 0, **size) -> tuple[QNetwork, dict]:
    network = QNetwork(NetworkConfig(**{"width": 8, "max_jobs": 4, "max_nodes": 2, "prior": 0.0, **size}))
    return network, network.init(jax.random.key(seed), random_features(0, 3, 2))
