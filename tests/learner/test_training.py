"""The training program: counts, types, compilation, seeds, interruption, and what it stores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner.candidates import to_action
from jaxsched.learner.ddqn import LearnerConfig, epsilon, score
from jaxsched.learner.ring import ring_bytes
from jaxsched.learner.training import make_train
from jaxsched.sim.clock import Cluster
from jaxsched.sim.fit import view_queue
from jaxsched.testing import assert_same_types
from tests.learner.small import CONFIG, ENV, advance, arrays, begin, is_key, params, same, trainer

STEPS = CONFIG.num_envs * CONFIG.chunk_steps  # environment steps of a chunk


def copied(learner):
    """A learner that shares no memory with the first, by way of the host, as a checkpoint is."""

    def over(leaf):
        return (
            jax.random.wrap_key_data(np.array(jax.random.key_data(leaf))) if is_key(leaf) else np.array(leaf)
        )

    return jax.device_put(jax.tree.map(over, learner), jax.devices()[0])


@pytest.fixture(scope="module")
def trained():
    """A learner after filling and two chunks of training, with its metrics."""
    return advance(begin(), trainer().fill_chunks + 2)


def test_updates_per_environment_step():  # LE-09
    """1000 steps without updates, then one update per four: 250 after 2000 steps, 500 more after 2000 more."""
    assert (trainer().chunk_size, trainer().fill_chunks, trainer().total_chunks) == (100, 10, 80)
    learner, updates = begin(), [0]
    for _ in range(20):
        learner, _ = advance(learner, 1)
        updates.append(int(learner.updates))
    assert updates[: trainer().fill_chunks + 1] == [0] * 11
    assert updates[20] == 250
    learner, _ = advance(copied(learner), 20)  # as after a resume: no burst to catch up
    assert int(learner.updates) == 750
    assert int(learner.chunks) * trainer().chunk_size == 4000
    assert max(np.diff(updates)) == CONFIG.updates == STEPS / 4
    [count] = {int(x) for x in jax.tree.leaves(learner.opt_state) if x.dtype == jnp.int32}
    assert count == 750


@pytest.mark.parametrize(
    "settings, fill_chunks",
    [
        ({"learning_starts": 0, "n_step": 9}, 1),
        ({"learning_starts": 0, "n_step": 10}, 2),  # eleven time rows are needed
        ({"learning_starts": 101}, 2),
        ({"learning_starts": 10**6}, 80),
    ],
)
def test_no_update_before_there_is_a_transition(settings, fill_chunks):  # RP-02
    assert make_train(ENV, LearnerConfig(**{**vars(CONFIG), **settings})).fill_chunks == fill_chunks


def test_epsilon_counts_environment_steps_over_episodes(trained):  # LE-08
    _, measured = trained
    got = [float(m["epsilon"]) for m in measured]
    want = [float(epsilon(CONFIG, jnp.float32(i * STEPS))) for i in range(len(got))]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert sum(int(m["episodes"]) for m in measured) > CONFIG.num_envs
    assert got[5] == pytest.approx(1 - 0.98 * 500 / 4000)


def test_counts_beyond_two_to_the_31():  # JX-08
    """The device counts chunks; steps are counted on the host, in Python's integers."""
    chunks = 2_147_483_600 // STEPS
    learner = begin()._replace(chunks=jax.device_put(jnp.int32(chunks), jax.devices()[0]))
    for _ in range(3):
        learner, metrics = trainer().train_chunk(learner, params())
        assert float(metrics["epsilon"]) == pytest.approx(CONFIG.epsilon_end)
    assert int(learner.chunks) * trainer().chunk_size == 2_147_483_600 // STEPS * STEPS + 300 > 2**31
    long = make_train(ENV, LearnerConfig(**{**vars(CONFIG), "total_steps": 3_000_000_000}))
    assert long.total_chunks == 30_000_000


def test_types_never_change(trained):  # JX-01, RC-05
    later, first = (each._replace(key=jax.random.key_data(each.key)) for each in (trained[0], begin()))
    assert_same_types(later, first, "learner")


def test_the_program_compiles_once_and_runs_without_transfers():  # JX-01, JX-07
    world = params()
    learner, _ = advance(begin(), trainer().fill_chunks + 1)
    with jax.transfer_guard("disallow"):
        for _ in range(5):
            learner, metrics = trainer().train_chunk(learner, world)
    assert all(np.isfinite(value) for value in metrics.values())
    assert trainer().train_chunk._cache_size() == 1


def test_the_learner_is_donated():  # LE-07, RP-05
    """Three sets of weights in memory of their own, equal at first; the old state cannot be read again."""
    learner = begin()
    weights = [jax.tree.leaves(copy) for copy in learner.weights]
    for leaves in zip(*weights, strict=True):
        assert len({leaf.unsafe_buffer_pointer() for leaf in leaves}) == 3
        assert all(np.array_equal(leaf, leaves[0]) for leaf in leaves)
    trainer().train_chunk(learner, params())
    for leaf in (learner.ring.rows.reward, learner.weights.online["params"]["value"]["kernel"]):
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(leaf)


def test_the_three_sets_of_weights_part(trained):  # LE-07
    online, target, average = trained[0].weights
    assert not same(online, target) and not same(online, average) and not same(target, average)


def test_same_seed_same_numbers_other_seed_other_numbers():  # RC-01
    runs = [advance(begin(seed), trainer().fill_chunks + 2)[0] for seed in (0, 0, 1)]
    assert same(runs[0], runs[1])
    assert not same(runs[0].weights.online, runs[2].weights.online)
    assert not same(runs[0].ring.rows.state.world, runs[2].ring.rows.state.world)
    assert not same(runs[0].ring.rows.action, runs[2].ring.rows.action)


def test_stopping_and_going_on_changes_nothing():  # RC-04
    start = trainer().fill_chunks - 2  # the first update comes after the stop
    whole, _ = advance(begin(), start + 4)
    half, _ = advance(begin(), start + 2)
    resumed, _ = advance(copied(half), 2)
    assert same(whole, resumed)
    assert int(resumed.updates) == 2 * CONFIG.updates


def test_clusters_differ_and_episodes_are_new(trained):  # RC-02, RC-03
    rows = jax.tree.map(np.asarray, trained[0].ring.rows)
    filled = int(trained[0].ring.size)
    assert (
        len({rows.action[:filled, column].tobytes() for column in range(CONFIG.num_envs)}) == CONFIG.num_envs
    )
    starts = np.argwhere(rows.final[: filled - 1])
    worlds = [(rows.state.world[t, b], rows.state.world[t + 1, b]) for t, b in starts]
    assert len(worlds) > 20
    assert np.mean([old == new for old, new in worlds]) < 0.2


def test_estimated_memory_of_the_ring_is_the_real_one(trained):  # RP-04
    ring = trained[0].ring
    real = sum(leaf.nbytes for leaf in jax.tree.leaves(ring.rows))
    shapes = jax.eval_shape(trainer().init, jax.random.key(0), params()).ring
    assert ring_bytes(shapes) == ring_bytes(ring) == real


def test_memory_of_the_ring_does_not_grow_with_the_run():  # RP-04
    default = LearnerConfig()
    assert LearnerConfig(total_steps=3_000_000_000).capacity == default.capacity


def test_the_ring_holds_what_the_environment_did(trained):  # LE-03, RP-03
    """Every stored transition, taken again, gives the stored reward, discount, ending and next state.

    The state after the last step of an episode is that episode's own, though the cluster was reset since.
    """
    learner, _ = trained
    network, world = trainer().network, params()

    @jax.jit
    @jax.vmap
    def again(row):
        cluster = Cluster(row.state, view_queue(row.state, world))
        _, candidates = score(network, learner.weights.online, cluster, world)
        action = to_action(candidates, row.action.astype(jnp.int32), row.state)
        return ENV.step_env(jax.random.key(0), row.state, action, world)[1:]

    last = int(learner.ring.size) - 1
    rows = jax.tree.map(lambda leaf: leaf[:last].reshape(-1, *leaf.shape[2:]), learner.ring.rows)
    after = jax.tree.map(lambda leaf: leaf[1 : last + 1].reshape(-1, *leaf.shape[2:]), learner.ring.rows)
    state, reward, terminated, truncated, info = again(rows)
    real = ~np.asarray(rows.final)
    assert real.sum() > 900

    def equal(got, want):
        np.testing.assert_array_equal(np.asarray(got)[real], np.asarray(want)[real])

    jax.tree.map(equal, state, after.state)
    equal(terminated, rows.terminated)
    equal(terminated | truncated, after.final)
    equal(info["illegal_action"], np.zeros_like(real))
    np.testing.assert_allclose(np.asarray(reward)[real], np.asarray(rows.reward)[real], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(info["discount"])[real], np.asarray(rows.discount)[real], rtol=1e-5)
    assert rows.terminated.sum() > 20


def test_weights_are_finite(trained):
    assert all(np.isfinite(leaf).all() for leaf in arrays(trained[0].weights))
