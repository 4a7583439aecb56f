"""Paired roll-outs: values against a plain loop, ends of episodes, the loss by hand, and that they teach."""

from __future__ import annotations

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner import paired
from jaxsched.learner.agent import gnn_policy
from jaxsched.learner.candidates import to_action
from jaxsched.learner.ddqn import LearnerConfig, Weights, is_legal, q_values, score
from jaxsched.learner.paired import Labelled, draw_choices, label, paired_loss
from jaxsched.learner.ring import Row
from jaxsched.learner.training import make_train
from jaxsched.sim.clock import Cluster
from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.fit import view_queue
from tests.learner.small import CONFIG, ENV, NETWORK, advance_with, begin, params, same, trainer
from tests.learner.test_learning import mean_jct, rule_jct

N_STEP, COMPARED, STATES = 5, 3, 6
PAIRED = dataclasses.replace(
    CONFIG,
    target="paired",
    n_step=N_STEP,
    compared=COMPARED,
    labels=16,
    batch=64,
    updates=10,
    capacity=200,
    learning_starts=600,
    total_steps=5000,
)
KEY = jax.random.key(0)


@functools.cache
def paired_trainer():
    return make_train(ENV, PAIRED)


def begin_paired(seed: int = 0):
    return jax.device_put(paired_trainer().init(jax.random.key(seed), params()), jax.devices()[0])


@functools.cache
def weights_of(online: int = 1, target: int = 2) -> Weights:
    """Two different networks."""
    return Weights(begin(online).weights.online, begin(target).weights.online, None)


def labels_of(states, weights: Weights, env: ClusterEnv = ENV):
    return _labels(follow_in(env), weights, states)


@functools.cache
def follow_in(env: ClusterEnv):
    return partial(label, env, trainer().network, N_STEP, COMPARED)


@partial(jax.jit, static_argnums=0)
def _labels(follow, weights, states):
    return jax.vmap(lambda state: follow(weights, params(), state))(states)


@jax.jit
def values_of(weights, state):
    return q_values(trainer().network, weights, state, params())


@jax.jit
def action_of(weights, state, index):
    candidates = score(trainer().network, weights, Cluster(state, view_queue(state, params())), params())[1]
    return to_action(candidates, index, state)


@partial(jax.jit, static_argnums=2)
def step(state, action, env=ENV):
    _, after, reward, terminated, truncated, info = env.step_env(KEY, state, action, params())
    return after, reward, info["discount"], terminated, truncated


def greedy(weights, state):
    return action_of(weights, state, jnp.argmax(values_of(weights, state)))


def by_hand(weights: Weights, state, index: int, env: ClusterEnv = ENV) -> tuple[float, str]:
    """The value of one placement, decision by decision, in Python's own numbers, and how it ended."""
    total, discount, end = 0.0, 1.0, "bootstrapped"
    action = action_of(weights.online, state, index)
    for _ in range(N_STEP):
        state, reward, factor, terminated, truncated = step(state, action, env)
        total += discount * float(reward)
        discount *= float(factor)
        if terminated:
            return total, "terminated"
        if truncated:
            end = "truncated"
            break
        action = greedy(weights.online, state)
    best = int(np.argmax(values_of(weights.online, state)))
    more = float(values_of(weights.target, state)[best])
    return total + (discount * more if is_legal(more) else 0.0), end


@functools.cache
def played(decisions: int):
    """The states of a few windows after so many greedy decisions."""
    states = []
    for window in range(STATES):
        state = ENV.reset_to(jnp.int32(window), params())
        for _ in range(decisions):
            state = step(state, greedy(weights_of().online, state))[0]
        states.append(state)
    return states


def stacked(states):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def compare_with_the_loop(states, env: ClusterEnv = ENV) -> list[str]:
    """Labels equal the plain loop; returns how the roll-outs ended."""
    weights, ends = weights_of(), []
    candidates, legal, value = labels_of(stacked(states), weights, env)
    for i, state in enumerate(states):
        values = np.asarray(values_of(weights.online, state))
        best = np.argsort(-values, kind="stable")[:COMPARED]
        assert legal[i].tolist() == is_legal(values[best]).tolist()
        for c in np.flatnonzero(np.asarray(legal[i])):
            assert int(candidates[i, c]) == best[c]
            want, end = by_hand(weights, state, int(best[c]), env)
            np.testing.assert_allclose(value[i, c], want, rtol=1e-4, atol=1e-4)
            ends.append(end)
    return ends


def test_values_equal_a_plain_loop():
    """Early in the windows values are bootstrapped, late in them the episode ends on the way."""
    assert set(compare_with_the_loop(played(0))) == {"bootstrapped"}
    assert "terminated" in compare_with_the_loop(played(9))


def test_a_cut_episode_bootstraps_from_where_it_was_cut():
    env = ClusterEnv(dataclasses.replace(ENV.config, max_events_per_step=1))
    assert set(compare_with_the_loop(played(2), env=env)) == {"truncated"}


def test_a_roll_out_to_the_end_needs_no_target_network():
    """Values that end on the way are the same under another target network; the others are not."""
    states = played(9)
    ended = np.array(compare_with_the_loop(states)) == "terminated"
    one, other = (labels_of(stacked(states), weights_of(1, seed)) for seed in (2, 3))
    legal = np.asarray(one[1])
    same_value = np.asarray(one[2] == other[2])[legal]
    np.testing.assert_array_equal(same_value, ended)
    assert ended.any()


def loss_of(monkeypatch, values, target, legal, weight, delta=1.0):
    """The loss where the network gives ``values`` [S, A] and the first columns were rolled out."""
    values = jnp.array(values, jnp.float32)
    monkeypatch.setattr(paired, "q_values", lambda network, online, state, params: online + values[state])
    count, width = np.shape(target)
    batch = Labelled(
        state=jnp.arange(count),
        candidate=jnp.tile(jnp.arange(width, dtype=jnp.int16), (count, 1)),
        legal=jnp.array(legal, bool),
        value=jnp.array(target, jnp.float32),
        weight=jnp.array(weight, jnp.float32),
    )
    return jax.value_and_grad(paired_loss, has_aux=True)(jnp.float32(0), None, batch, None, delta, 10.0)


def test_the_loss_by_hand(monkeypatch):
    """Errors 0.5 and -0.1: their mean 0.2 counts once, 0.3 and -0.3 beside it ten times."""
    (loss, metrics), slope = loss_of(monkeypatch, [[1.5, 0.9]], [[1.0, 1.0]], [[1, 1]], [1])
    assert float(loss) == pytest.approx(0.5 * 0.2**2 + 10 * 2 * 0.5 * 0.3**2)
    assert float(metrics["td_abs"]) == pytest.approx(0.2)
    assert float(metrics["q_mean"]) == pytest.approx(1.5)
    assert float(slope) == pytest.approx(0.2)  # a constant shift moves the mean alone


def test_luck_that_all_placements_share_counts_once(monkeypatch):
    (loss, _), _ = loss_of(monkeypatch, [[1.0, 2.0]], [[-3.0, -2.0]], [[1, 1]], [1], delta=100.0)
    assert float(loss) == pytest.approx(0.5 * 4**2)


def test_void_states_and_illegal_placements_cost_nothing(monkeypatch):
    values = [[1.5, 0.9, -1e30], [7.0, -1e30, -1e30]]
    target = [[1.0, 1.0, 5.0], [0.0, 9.0, 9.0]]
    (loss, metrics), slope = loss_of(monkeypatch, values, target, [[1, 1, 0], [1, 0, 0]], [1, 0])
    assert float(loss) == pytest.approx(0.5 * 0.2**2 + 10 * 2 * 0.5 * 0.3**2)
    assert np.isfinite(slope)
    assert float(metrics["q_mean"]) == pytest.approx(1.5)


def chunk_of(final, choices) -> tuple[Row, jax.Array]:
    """Rows [4, 3] whose states are their numbers."""
    zeros = jnp.zeros((4, 3))
    state = jnp.arange(12).reshape(4, 3)
    return Row(state, zeros, zeros, zeros, zeros, jnp.array(final, bool)), jnp.array(choices)


def test_states_with_a_choice_are_drawn_once_each():
    """Of twelve states one is final and four have no choice: the other seven, each as often as any other."""
    final = np.zeros((4, 3), int)
    final[1, 1] = 1
    choices = np.array([[2, 1, 3], [9, 9, 0], [2, 2, 1], [0, 5, 4]])
    rows, counts = chunk_of(final, choices)
    eligible = set(np.flatnonzero((choices > 1) & (final == 0)))
    draw = jax.jit(draw_choices, static_argnums=3)
    often = np.zeros(12, int)
    for seed in range(300):
        states, weight = draw(rows, counts, jax.random.key(seed), 3)
        assert weight.tolist() == [1, 1, 1]
        assert len(set(states.tolist())) == 3 and set(states.tolist()) <= eligible
        often[np.asarray(states)] += 1
    assert often[sorted(eligible)].min() > 80  # 129 expected
    states, weight = draw(rows, counts, KEY, 9)
    assert set(states[:7].tolist()) == eligible and weight.tolist() == [1.0] * 7 + [0.0] * 2


@pytest.fixture(scope="module")
def trained():
    """The learner after the whole of its 5000 steps."""
    return advance_with(paired_trainer(), begin_paired(1), paired_trainer().total_chunks)[0]


def test_the_ring_holds_labelled_states(trained):
    """Rows of weight 1 had a choice; their labels say which placements were legal."""
    rows, size = trained.ring.rows, int(trained.ring.size)
    assert rows.value.shape == (PAIRED.capacity // PAIRED.chunk_steps, PAIRED.labels, COMPARED)
    assert size == rows.value.shape[0]
    real = np.asarray(rows.weight) == 1
    assert real.mean() > 0.5
    values = jax.jit(jax.vmap(jax.vmap(partial(values_of, trained.weights.online))))(rows.state)
    picked = jnp.take_along_axis(values, rows.candidate.astype(jnp.int32), -1)
    np.testing.assert_array_equal(np.asarray(is_legal(picked))[real], np.asarray(rows.legal)[real])
    assert np.asarray(rows.legal)[real].sum(-1).min() == 2
    assert np.isfinite(rows.value).all()


def test_the_program_compiles_once(trained):  # JX-01
    assert paired_trainer().train_chunk._cache_size() == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained.weights))


def test_stopping_and_going_on_changes_nothing():  # RC-04
    chunks = paired_trainer().fill_chunks + 2
    whole, _ = advance_with(paired_trainer(), begin_paired(), chunks + 2)
    half, _ = advance_with(paired_trainer(), begin_paired(), chunks)
    host = jax.device_get(half._replace(key=jax.random.key_data(half.key)))
    again = jax.device_put(host, jax.devices()[0])
    resumed, _ = advance_with(paired_trainer(), again._replace(key=jax.random.wrap_key_data(again.key)), 2)
    assert same(whole, resumed)


def test_it_teaches(trained):
    """From scratch, on windows it never saw: far better than random placement, than a rule, and than before."""
    before, after = begin_paired(1).weights.average, trained.weights.average
    network = mean_jct(gnn_policy(NETWORK, after), after)
    assert network < 0.8 * rule_jct("fifo+random")
    assert network < 0.95 * rule_jct("sjf+fastest")
    assert network < 0.85 * mean_jct(gnn_policy(NETWORK, before), before)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="compared must be at least 2, found 1"):
        LearnerConfig(compared=1)
    with pytest.raises(ValueError, match="labels must be at least 1, found 0"):
        LearnerConfig(labels=0)
