"""Double-DQN worked out by hand: targets, loss, gradients, target network, exploration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsched.learner import ddqn
from jaxsched.learner.ddqn import (
    LearnerConfig,
    Weights,
    double_q_target,
    epsilon,
    explore,
    first_maximum,
    huber,
    mean_gradient,
    num_blocks,
    sync_target,
    td_loss,
    td_objective,
    td_targets,
    update,
)
from jaxsched.learner.networks import ILLEGAL
from jaxsched.learner.ring import Sample

ONLINE, TARGET = jnp.array([1.0, 5.0, 3.0]), jnp.array([10.0, 2.0, 7.0])


def masked(values, mask):
    """As the network does it."""
    return jnp.where(jnp.array(mask, bool), values, ILLEGAL)


def target(ret=1.0, discount=0.9, mask=(1, 1, 1)) -> float:
    return float(
        double_q_target(jnp.float32(ret), jnp.float32(discount), masked(ONLINE, mask), masked(TARGET, mask))
    )


def sample(state, next_state, ret, discount, action=None, weight=None) -> Sample:
    """Transitions whose states are plain numbers."""
    state = jnp.array(state, jnp.float32)
    return Sample(
        state=state,
        action=jnp.zeros(len(state), jnp.int16) if action is None else jnp.array(action, jnp.int16),
        ret=jnp.array(ret, jnp.float32),
        discount=jnp.array(discount, jnp.float32),
        next_state=jnp.array(next_state, jnp.float32),
        weight=jnp.ones(len(state)) if weight is None else jnp.array(weight, jnp.float32),
    )


@pytest.fixture
def linear(monkeypatch):
    """The network replaced by Q(s) = [w s, w s / 2]; its weights are the number w."""
    monkeypatch.setattr(ddqn, "q_values", lambda network, w, state, params: w * state * jnp.array([1.0, 0.5]))


def copies(w: float) -> Weights:
    return Weights(jnp.float32(w), jnp.float32(w), jnp.float32(w))


def test_online_chooses_and_target_values():  # LE-01
    assert target() == pytest.approx(2.8)


def test_target_respects_the_next_mask():  # LE-02
    assert target(mask=(1, 0, 1)) == pytest.approx(7.3)


def test_termination_gives_the_reward_alone():  # LE-03 a
    assert target(discount=0.0) == 1.0


def test_next_state_where_nothing_is_legal_counts_zero():
    assert target(mask=(0, 0, 0)) == 1.0
    assert target(discount=0.0, mask=(0, 0, 0)) == 1.0


def test_targets_use_the_next_state_of_each_transition(monkeypatch):  # LE-02
    """State 1 forbids the second action, state 2 allows all: the mask in the target is that of the next state."""

    def q_values(network, values, state, params):
        return jnp.where((state == 1) & (jnp.arange(3) == 1), ILLEGAL, values)

    monkeypatch.setattr(ddqn, "q_values", q_values)
    batch = sample([2, 1], [1, 2], [1, 1], [0.9, 0.9])
    targets = td_targets(None, Weights(ONLINE, TARGET, None), batch, None)
    np.testing.assert_allclose(targets, [7.3, 2.8], rtol=1e-6)


def test_batched_target_equals_rlax():
    rlax = pytest.importorskip("rlax")
    keys = jax.random.split(jax.random.key(0), 2)
    online, value = (jax.random.normal(key, (16, 5)) for key in keys)
    ret, discount = jnp.linspace(-1, 1, 16), jnp.linspace(0, 1, 16)
    zeros, action = jnp.zeros((16, 5)), jnp.zeros(16, jnp.int32)
    theirs = jax.vmap(rlax.double_q_learning)(zeros, action, ret, discount, value, online)
    ours = jax.vmap(double_q_target)(ret, discount, online, value)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_equal_values_and_targets_cost_nothing(linear):  # LE-04
    batch = sample([1, 2], [0, 0], [1, 2], [0, 0])
    targets = td_targets(None, copies(1.0), batch, None)
    assert targets.shape == batch.ret.shape == batch.weight.shape == (2,)
    loss, metrics = td_loss(jnp.float32(1.0), None, batch, targets, None, 1.0)
    assert float(loss) == 0.0
    assert all(value.shape == () for value in metrics.values())


@pytest.mark.parametrize("wrong", ["targets", "weight"])
def test_a_column_is_refused(linear, wrong):  # LE-04: (B,1) - (B,) would be (B,B)
    batch = sample([1, 2], [0, 0], [1, 2], [0, 0])
    targets = batch.ret
    if wrong == "targets":
        targets = targets[:, None]
    else:
        batch = batch._replace(weight=batch.weight[:, None])
    with pytest.raises(ValueError, match="shapes differ"):
        td_loss(jnp.float32(1.0), None, batch, targets, None, 1.0)


@pytest.mark.parametrize(
    "td, delta, loss, gradient",
    [(5, 1, 4.5, 1), (-5, 1, 4.5, -1), (5, 2, 8, 2), (0.5, 1, 0.125, 0.5), (1, 1, 0.5, 1)],
)
def test_huber(td, delta, loss, gradient):  # LE-05
    value, slope = jax.value_and_grad(huber)(jnp.float32(td), delta)
    assert float(value) == pytest.approx(loss)
    assert float(slope) == pytest.approx(gradient)


def test_no_gradient_through_the_target(linear):  # LE-06
    batch = sample([1], [2], [1], [0.5])

    def loss(w):
        targets = td_targets(None, Weights(w, w, w), batch, None)
        return td_loss(w, None, batch, targets, None, 10.0)[0]

    value, slope = jax.value_and_grad(loss)(jnp.float32(1.0))
    assert float(value) == pytest.approx(0.5)
    assert float(slope) == pytest.approx(-1.0)


def test_void_rows_change_nothing(linear):
    """Rows of weight 0 neither count in the mean nor leave a gradient, even where their action was illegal."""
    config = LearnerConfig(batch=4)
    two = sample([1, 3], [2, 2], [1, -4], [0.5, 0.5])
    illegal = [1.0, 3.0, ILLEGAL, ILLEGAL]
    four = sample(illegal, [2, 2, ILLEGAL, 0], [1, -4, 0, 0], [0.5, 0.5, 1, 1], weight=[1, 1, 0, 0])
    alone = mean_gradient(td_objective(None, config), config, copies(1.0), two, None)
    padded = mean_gradient(td_objective(None, config), config, copies(1.0), four, None)
    jax.tree.map(np.testing.assert_allclose, padded, alone)


@pytest.mark.parametrize("count, blocks", [(8, 1), (64, 1), (129, 1), (130, 2), (192, 3), (512, 8), (600, 8)])
def test_blocks_divide_the_batch(count, blocks):
    assert num_blocks(count, 64) == blocks
    assert count % blocks == 0
    assert num_blocks(48, 16) == 3


def test_blocks_give_the_gradient_of_the_whole_batch(linear):
    states = np.linspace(-2, 2, 192)
    batch = sample(states, states[::-1], np.sin(states), np.full(192, 0.9))
    config = LearnerConfig(batch=192)
    gradient, metrics = mean_gradient(td_objective(None, config), config, copies(0.7), batch, None)
    targets = td_targets(None, copies(0.7), batch, None)
    loss, whole = jax.value_and_grad(lambda w: td_loss(w, None, batch, targets, None, 1.0)[0])(
        jnp.float32(0.7)
    )
    np.testing.assert_allclose(gradient, whole / 192, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], loss / 192, rtol=1e-5)


def test_target_network_is_copied_on_schedule(linear):  # LE-07
    config = LearnerConfig(batch=1, target_period=100, learning_rate=0.1)
    optimizer = ddqn.make_optimizer(config, 1000)
    step = jax.jit(
        lambda w, o, n: update(
            td_objective(None, config), optimizer, config, w, o, n, sample([1], [2], [1], [0.5]), None
        )
    )
    weights, opt_state = copies(0.5), optimizer.init(jnp.float32(0.5))
    for count in range(1, 102):
        weights, opt_state, _ = step(weights, opt_state, jnp.int32(count))
        if count < 100:
            assert float(weights.online) != 0.5
            assert float(weights.target) == 0.5
        if count == 100:
            copied = float(weights.online)
            assert float(weights.target) == copied != 0.5
    assert float(weights.target) == copied != float(weights.online)


def test_polyak_step():  # LE-07
    weights = Weights({"w": jnp.float32(3.0)}, {"w": jnp.float32(1.0)}, None)
    target = sync_target(LearnerConfig(target_rate=0.25), weights, jnp.int32(7))
    assert float(target["w"]) == pytest.approx(1.5)


def test_averaged_weights_follow_slowly(linear):
    config = LearnerConfig(batch=1, average_rate=0.5, learning_rate=0.1)
    optimizer = ddqn.make_optimizer(config, 100)
    batch = sample([1], [0], [10], [0])
    weights, _, _ = update(
        td_objective(None, config),
        optimizer,
        config,
        copies(0.0),
        optimizer.init(jnp.float32(0)),
        jnp.int32(1),
        batch,
        None,
    )
    assert float(weights.online) == pytest.approx(0.1, rel=1e-3)
    assert float(weights.average) == pytest.approx(0.05, rel=1e-3)


def test_learning_rate_falls_to_zero_and_gradients_are_clipped():
    config = LearnerConfig(learning_rate=0.1, max_grad_norm=1.0)
    optimizer = ddqn.make_optimizer(config, 10)
    params = jnp.float32(0.0)
    state, steps = optimizer.init(params), []
    for _ in range(12):
        step, state = optimizer.update(jnp.float32(1e6), state, params)
        steps.append(-float(step))
    assert steps[0] == pytest.approx(0.1, rel=1e-3)
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 0.0
    clipped, _ = optax.clip_by_global_norm(config.max_grad_norm).update(jnp.float32(1e6), optax.EmptyState())
    assert float(clipped) == pytest.approx(1.0)


def test_epsilon_counts_environment_steps():  # LE-08
    config = LearnerConfig(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)
    assert float(epsilon(config, jnp.float32(10 * 50))) == pytest.approx(0.55)
    assert float(epsilon(config, jnp.float32(0))) == 1.0
    for later in (1000, 10**6, 3 * 10**9):
        assert float(epsilon(config, jnp.float32(later))) == pytest.approx(0.1)


def test_a_terrible_legal_action_beats_an_illegal_one():  # PO-07
    values = masked(jnp.array([0.0, -5e9, 0.0]), (0, 1, 0))
    assert int(first_maximum(values)) == 1
    shares = jnp.array([0.0, 1.0])
    chosen = jax.vmap(lambda share: explore(jax.random.key(0), values, share))(shares)
    assert chosen.tolist() == [1, 1]
    assert float(double_q_target(jnp.float32(0), jnp.float32(1), values, values)) == pytest.approx(-5e9)


def test_ties_go_to_the_first():
    assert int(first_maximum(jnp.array([1.0, 3.0, 3.0]))) == 1


def test_exploration_is_uniform_over_legal_actions():
    values = masked(jnp.arange(5.0), (1, 0, 1, 0, 1))
    keys = jax.random.split(jax.random.key(1), 6000)

    def counts(share):
        chosen = jax.vmap(lambda key: explore(key, values, jnp.float32(share)))(keys)
        return np.bincount(chosen, minlength=5)

    assert counts(0.0).tolist() == [0, 0, 0, 0, 6000]
    everywhere = counts(1.0)
    assert everywhere[[1, 3]].tolist() == [0, 0]
    assert (abs(everywhere[[0, 2, 4]] - 2000) < 200).all()
    half = counts(0.5)
    assert (abs(half[[0, 2]] - 1000) < 150).all() and half[[1, 3]].tolist() == [0, 0]


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"capacity": 1000, "chunk_steps": 16}, "capacity 1000 is not a multiple of chunk_steps 16"),
        ({"capacity": 16, "n_step": 16}, "capacity 16 must be above n_step 16"),
        ({"batch": 0}, "batch must be at least 1, found 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        LearnerConfig(**wrong)
