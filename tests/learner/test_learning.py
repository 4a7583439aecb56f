"""It learns: a fixed batch is fitted, and a small cluster is scheduled better than by rules; evaluation is greedy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner.agent import gnn_policy, weights_like
from jaxsched.learner.candidates import choose_candidates
from jaxsched.learner.ddqn import LearnerConfig, make_optimizer, td_objective, update
from jaxsched.learner.features import log_hours
from jaxsched.learner.ring import sample_transitions
from jaxsched.policies.library import get_policy
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import view_queue
from jaxsched.sim.rollout import run
from jaxsched.types import EnvState
from jaxsched.workloads.scenarios import load_scenario, scenario_pool
from tests.learner.small import ENV_CONFIG, NETWORK, advance, begin, params, pool, same, trainer

OPTIMISED = True

WINDOWS = 64
SEED = 1  # its first weights schedule badly: what is good later was learnt
TEST = pool(WINDOWS, first_seed=1000)


@functools.cache
def schedules_of(policy):
    """The compiled run of a policy over all test windows: (its parameters, key) -> schedules."""

    def all_windows(policy_params, key):
        keys = jax.random.split(key, WINDOWS)
        one = functools.partial(run, policy, policy_params, params=TEST, config=ENV_CONFIG, parts=False)
        return jax.vmap(lambda world, key: one(key=key, world=world))(jnp.arange(WINDOWS), keys)

    return jax.jit(all_windows)


def mean_jct(policy, policy_params) -> float:
    result = schedules_of(policy)(policy_params, jax.random.key(0))
    assert result.complete.all()
    return float((np.asarray(result.finish) - np.asarray(TEST.pool.arrival)).mean())


def rule_jct(name: str) -> float:
    policy = get_policy(name)
    return mean_jct(policy, policy.default_params)


@pytest.fixture(scope="module")
def trained():
    """The learner after the whole of its 8000 steps."""
    return advance(begin(SEED), trainer().total_chunks)[0]


@jax.jit
@jax.vmap
def run_time(state: EnvState, action: jax.Array) -> jax.Array:
    """Seconds that the job of a candidate placement would run."""
    cluster = Cluster(state, view_queue(state, params()))
    candidates = choose_candidates(cluster, params(), NETWORK.max_jobs, NETWORK.max_nodes)
    k, m = jnp.divmod(action.astype(jnp.int32), candidates.node.shape[0])
    model = params().pool.node_model[state.world, candidates.node[m]]
    return params().pool.estimate[state.world, candidates.job[k], model].astype(jnp.float32)


def test_a_fixed_batch_is_fitted(trained):
    """A bandit on real states: a placement is worth minus the run time of the job on that node."""
    config = LearnerConfig(batch=64, learning_rate=1e-2, network=NETWORK)
    optimizer = make_optimizer(config, 300)
    batch = sample_transitions(trained.ring, jax.random.key(1), config.batch, 1)
    ret = -log_hours(run_time(batch.state, batch.action))
    batch = batch._replace(ret=ret, discount=jnp.zeros(config.batch))
    step = jax.jit(
        lambda w, o, n: update(
            td_objective(trainer().network, config), optimizer, config, w, o, n, batch, params()
        ),
        donate_argnums=(0, 1),
    )
    weights = begin(3).weights
    opt_state, losses = optimizer.init(weights.online), []
    for count in range(1, 301):
        weights, opt_state, metrics = step(weights, opt_state, jnp.int32(count))
        losses.append(float(metrics["loss"]))
    assert losses[0] > 0.01
    assert losses[-1] < losses[0] / 20


def test_the_trained_network_beats_the_rules(trained):
    """From scratch, on windows it never saw: far better than random placement and than before, and than sjf+fastest."""
    rules = {name: rule_jct(name) for name in ("fifo+random", "sjf+random", "sjf+fastest")}
    before, after = (learner.weights.average for learner in (begin(SEED), trained))
    network = mean_jct(gnn_policy(NETWORK, after), after)
    assert network < 0.8 * rules["fifo+random"]
    assert network < 0.95 * rules["sjf+random"]
    assert network < 0.95 * rules["sjf+fastest"]
    assert network < 0.8 * mean_jct(gnn_policy(NETWORK, before), before)


def test_evaluation_is_greedy_and_repeatable(trained):  # LE-14
    """The key does not matter, for nothing is drawn; the windows are different ones."""
    weights = trained.weights.average
    evaluate = schedules_of(gnn_policy(NETWORK, weights))
    first = evaluate(weights, jax.random.key(0))
    assert same(first, evaluate(weights, jax.random.key(0)))
    assert same(first, evaluate(weights, jax.random.key(1)))
    arrivals = np.asarray(TEST.pool.arrival)[:10]
    assert len({row.tobytes() for row in arrivals}) == 10
    assert len({row.tobytes() for row in np.asarray(first.finish)[:10]}) == 10


def test_evaluation_has_windows_of_its_own():  # LE-14
    scenario = load_scenario("hetero-8", jobs_per_window=12)
    seen = set()
    for split in ("train", "validation", "test"):
        arrival = np.asarray(scenario_pool(scenario, split, 10, 0)[1].pool.arrival)
        seen |= {row.tobytes() for row in arrival}
    assert len(seen) == 30


def test_a_policy_of_new_weights_is_the_same_program(trained):
    """Evaluating later weights compiles nothing."""
    early, late = begin(0).weights.average, trained.weights.average
    assert gnn_policy(NETWORK, early) == gnn_policy(NETWORK, late)
    evaluate = schedules_of(gnn_policy(NETWORK, early))
    for weights in (early, late):
        evaluate(weights, jax.random.key(0))
    assert evaluate._cache_size() == 1


def test_weights_depend_on_no_size(trained):
    """A checkpoint is read back without knowing the cluster that it was trained on."""
    like, real = weights_like(NETWORK), trained.weights.average
    assert jax.tree.structure(like) == jax.tree.structure(real)
    assert [x.shape for x in jax.tree.leaves(like)] == [x.shape for x in jax.tree.leaves(real)]
