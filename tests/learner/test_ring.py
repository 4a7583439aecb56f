"""The ring of experience: wrap-around, borders of episodes, fairness, memory, donation."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.learner import ring as rings
from jaxsched.learner.ddqn import double_q_target
from jaxsched.learner.ring import Ring, Row, transitions_from
from jaxsched.testing import assert_same_types, assert_single_trace
from tests.learner.small import same

ADD = jax.jit(rings.write_chunk)
SAMPLE = jax.jit(rings.sample_transitions, static_argnums=(2, 3))
KEY = jax.random.key(5)


def one(state=0, reward=0.0, discount=1.0, terminated=False, final=False) -> Row:
    """A row whose state is a number."""
    return Row(
        jnp.int32(state),
        jnp.int16(0),
        jnp.float32(reward),
        jnp.float32(discount),
        *map(jnp.bool_, (terminated, final)),
    )


def chunk(*rows: Row) -> Row:
    """Rows of one cluster as a chunk [L, 1]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves)[:, None], *rows)


def ring_of(*rows: Row, capacity: int | None = None) -> Ring:
    ring = rings.empty_ring(rows[0], 1, capacity or len(rows))
    for row in rows:
        ring = ADD(ring, chunk(row))
    return ring


def counted(count: int, capacity: int) -> Ring:
    """Rows 0, 1, 2, ... whose state and reward are their number."""
    return ring_of(*(one(i, i) for i in range(count)), capacity=capacity)


def at(ring: Ring, start: int, n_step: int):
    """The transition that starts in time row ``start``."""
    got = transitions_from(ring, jnp.array([start]), jnp.array([0]), n_step)
    return jax.tree.map(lambda leaf: leaf[0].item(), got)


@pytest.mark.parametrize(
    "adds, head, size, rows",
    [
        (1, 1, 1, [0, 0, 0, 0, 0]),
        (4, 4, 4, [0, 1, 2, 3, 0]),
        (5, 0, 5, [0, 1, 2, 3, 4]),
        (6, 1, 5, [5, 1, 2, 3, 4]),
        (7, 2, 5, [5, 6, 2, 3, 4]),
    ],
)
def test_wrap_around(adds, head, size, rows):  # RP-01
    ring = counted(adds, capacity=5)
    assert (int(ring.head), int(ring.size)) == (head, size)
    assert ring.rows.state[:, 0].tolist() == rows


def test_a_chunk_never_wraps_inside():  # RP-01
    ring = rings.empty_ring(one(), 1, 6)
    for first in range(0, 12, 3):
        ring = ADD(ring, chunk(*(one(first + i) for i in range(3))))
    assert ring.rows.state[:, 0].tolist() == [6, 7, 8, 9, 10, 11]
    assert (int(ring.head), int(ring.size)) == (0, 6)


@pytest.mark.parametrize("n_step", [1, 2])
def test_no_empty_row_is_sampled(n_step):  # RP-02
    """Three transitions among a thousand places; the fourth row is the state after the third."""
    ring = ring_of(*(one(i, r, 0.5) for i, r in enumerate([7, 8, 9, 99])), capacity=1000)
    drawn = SAMPLE(ring, KEY, 64, n_step)
    wanted = {7, 8, 9} if n_step == 1 else {7 + 0.5 * 8, 8 + 0.5 * 9}
    assert set(np.asarray(drawn.ret).tolist()) == wanted
    np.testing.assert_array_equal(drawn.next_state, drawn.state + n_step)


@pytest.mark.parametrize("adds", [6, 7, 12])
def test_no_pair_across_the_write_head(adds):  # RP-02, RP-03
    drawn = SAMPLE(counted(adds, capacity=6), KEY, 256, 1)
    np.testing.assert_array_equal(drawn.next_state, drawn.state + 1)
    assert set(np.asarray(drawn.state).tolist()) == set(range(adds - 6, adds - 1))


def straddling(terminated: bool) -> Ring:
    """A step counter over two episodes. The first ends after step 3: its last state is 4, the next one begins at 5."""
    rows = [one(i, 1, 0.9) for i in range(3)]
    rows += [one(3, 1, 0.9, terminated=terminated), one(4, 50, 0.9, final=True)]
    return ring_of(*rows, *(one(i, 1, 0.9) for i in range(5, 10)))


@pytest.mark.parametrize("n_step", [1, 2, 4])
@pytest.mark.parametrize("terminated", [True, False])
def test_no_transition_straddles_two_episodes(terminated, n_step):  # RP-03
    drawn = SAMPLE(straddling(terminated), KEY, 512, n_step)
    state, after, weight = (np.asarray(x) for x in (drawn.state, drawn.next_state, drawn.weight))
    np.testing.assert_array_equal(weight, state != 4)
    first = (state < 4) & (weight > 0)
    assert after[first].max() == 4
    np.testing.assert_array_equal(after[first], np.minimum(state[first] + n_step, 4))
    if terminated:
        ends = first & (after == 4)
        assert (np.asarray(drawn.discount)[ends] == 0).all()


@pytest.mark.parametrize("terminated, y", [(True, 1.0), (False, 2.8)])
def test_truncation_bootstraps_from_the_true_last_state(terminated, y):  # LE-03
    """The last state of the old episode is worth 2, the first of the new one 50."""
    got = at(straddling(terminated), 3, 1)
    value = jnp.where(jnp.array(got.next_state) == 4, 2.0, 50.0)[None]
    assert float(double_q_target(got.ret, got.discount, value, value)) == pytest.approx(y)


@pytest.mark.parametrize("case, y", [("full", 4.0), ("truncated", 4.0), ("terminated", 2.0)])
def test_n_steps_cut_short(case, y):  # LE-10
    """Rewards 1, 2, 4, discount 1/2, n = 3, bootstrap value 8."""
    rows = [one(0, 1, 0.5), one(1, 2, 0.5, terminated=case == "terminated")]
    rows.append(one(2, 4, 0.5, final=case != "full"))
    got = at(ring_of(*rows, one(3, 100, 0.5)), 0, 3)
    value = jnp.array([8.0])
    assert float(double_q_target(got.ret, got.discount, value, value)) == pytest.approx(y)
    assert got.next_state == (3 if case == "full" else 2)


def test_discount_of_each_step_counts():
    """Steps of unequal length: the discount is the product of those passed, not a power of one."""
    got = at(ring_of(one(0, 1, 0.5), one(1, 1, 1.0), one(2, 1, 0.25), one(3)), 0, 3)
    assert got.ret == pytest.approx(1 + 0.5 + 0.5)
    assert got.discount == pytest.approx(0.125)


def test_columns_do_not_mix():
    """Column c holds c*100, c*100 + 1, ...: a transition stays in its cluster."""
    states = jnp.arange(6)[:, None] + 100 * jnp.arange(3)[None]
    row = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (6, 3)), one())
    ring = ADD(rings.empty_ring(one(), 3, 6), row._replace(state=states.astype(jnp.int32)))
    drawn = SAMPLE(ring, KEY, 300, 2)
    np.testing.assert_array_equal(drawn.next_state, drawn.state + 2)
    assert len(set(np.asarray(drawn.state).tolist())) == 3 * 4


def test_estimated_memory_is_the_real_one():  # RP-04
    row = one()._replace(state={"a": jnp.zeros(3, jnp.int8), "b": jnp.zeros((2, 5), jnp.int16)})
    ring = rings.empty_ring(row, columns=7, capacity=11)
    real = sum(leaf.nbytes for leaf in jax.tree.leaves(ring.rows))
    assert rings.ring_bytes(ring) == real == 7 * 11 * (3 + 20 + 2 + 4 + 4 + 1 + 1)


def test_a_thousand_adds():  # RP-05
    add = assert_single_trace(rings.write_chunk, donate_argnums=0)
    ring = rings.empty_ring(one(), 4, 50)
    first, types = ring, jax.eval_shape(lambda: ring)
    wide = Row(*(np.zeros((10, 4), t) for t in (np.int64, np.int64, np.float64, np.float64, bool, bool)))
    live = []
    for i in range(1000):
        ring = add(ring, wide._replace(reward=np.full((10, 4), i, np.float64)))
        if i % 250 == 249:
            gc.collect()
            live.append(sum(array.nbytes for array in jax.live_arrays()))
    assert len(set(live)) == 1
    assert [(a.dtype, a.shape) for a in jax.tree.leaves(ring)] == [
        (a.dtype, a.shape) for a in jax.tree.leaves(types)
    ]
    assert_same_types(ring, rings.empty_ring(one(), 4, 50), "ring")
    np.testing.assert_array_equal(ring.rows.reward[:, 0], np.repeat([995, 996, 997, 998, 999], 10))
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(first.rows.reward)


@pytest.mark.parametrize("n_step", [1, 3])
def test_every_start_is_equally_likely(n_step):  # RP-06
    """Five rows have all their successors: each is drawn as often, the oldest and the newest too."""
    drawn = SAMPLE(counted(20, capacity=5 + n_step), jax.random.key(n_step), 10_000, n_step)
    counts = np.bincount(drawn.state, minlength=20)
    starts = counts[20 - 5 - n_step : 20 - n_step]
    assert starts.sum() == 10_000
    assert ((starts > 1800) & (starts < 2200)).all()


def test_draws_follow_the_key():
    ring = counted(20, capacity=10)
    assert same(SAMPLE(ring, KEY, 32, 1), SAMPLE(ring, KEY, 32, 1))
    assert not same(SAMPLE(ring, KEY, 32, 1), SAMPLE(ring, jax.random.key(6), 32, 1))


def test_stored_rows_equal_flashbax():
    flashbax = pytest.importorskip("flashbax")
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=1,
        sample_batch_size=1,
        sample_sequence_length=2,
        period=1,
        min_length_time_axis=2,
        max_length_time_axis=6,
    )
    theirs = buffer.init({"x": jnp.float32(0)})
    for i in range(9):
        theirs = buffer.add(theirs, {"x": jnp.full((1, 1), i, jnp.float32)})
    np.testing.assert_array_equal(theirs.experience["x"][0], counted(9, capacity=6).rows.reward[:, 0])
