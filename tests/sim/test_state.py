"""How large the state is, and what it is made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsched.sim.env import ClusterEnv
from jaxsched.sim.state import empty_state, index_dtype, state_bytes
from jaxsched.testing import assert_invariants
from jaxsched.types import NEVER, EnvConfig, EnvState
from tests.small_runs import KEY, job, node, small
from tests.worlds import Sizes, params_of, world_of


def state_of(num_nodes: int, num_jobs: int, queue: int, running: int) -> EnvState:
    sizes = Sizes(nodes=num_nodes, gpus=8, jobs=num_jobs)
    nodes, jobs = [node(8)] * num_nodes, [job("a", 0, 10, 1)]
    config = EnvConfig(num_nodes, 8, num_jobs, sizes.models, queue=queue, running=running)
    return empty_state(config, params_of([world_of(nodes, jobs, sizes)], jobs, sizes), 0)


def test_a_cluster_of_16_nodes_fits_into_4_kb():
    assert state_bytes(state_of(16, 1024, 64, 160)) <= 4_000


def test_openb_without_a_running_table_fits_into_64_kb():
    assert state_bytes(state_of(1213, 512, 64, 1)) <= 64_000


def test_no_state_has_weak_types():
    config, params = small([node(2)], [job("a", 0, 10, 1), job("b", 1, 10, 1)])
    env = ClusterEnv(config)
    state = env.reset_to(0, params)
    for later in (empty_state(config, params, 0), state, env.step(KEY, state, 0, params)[1]):
        assert not [leaf for leaf in jax.tree.leaves(later) if leaf.weak_type]
        assert jax.tree.map(lambda x: x.dtype, later) == jax.tree.map(lambda x: x.dtype, state)


@pytest.mark.parametrize(
    ("size", "dtype"), [(1, "int8"), (128, "int8"), (129, "int16"), (32_768, "int16"), (32_769, "int32")]
)
def test_the_smallest_integer_that_holds_every_index(size, dtype):
    assert index_dtype(size) == np.dtype(dtype)


@pytest.fixture(scope="module")
def running_cluster():
    config, params = small(
        [node(2)], [job("a", 0, 10, 1, 500, cpu_milli=10), job("b", 0, 10, 1), job("c", 0, 1, 2)]
    )
    env = ClusterEnv(config)
    return params, jax.jit(env.step_env)(KEY, jax.jit(env.reset_to)(0, params), jnp.int32(0), params)[1]


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("free_gpu", (0, 1), 999, "gpu_milli of"),
        ("free_cpu", (0,), 0, "cpu_milli of"),
        ("free_memory", (1,), 5, "memory_mib of"),
        ("run_job", (3,), 1, "queued and running"),
        ("queue", (2,), 1, "two queue slots"),
        ("queue", (2,), -1, "lost"),
        ("queue", (2,), 9, "future"),
        ("run_end", (0,), -1, "overdue"),
        ("run_end", (7,), 70, "empty running row"),
        ("finished", (), 1, "lost"),
    ],
)
def test_assert_invariants_finds_a_corrupted_book(running_cluster, field, index, value, message):
    params, state = running_cluster
    assert_invariants(state, params)
    leaf = getattr(state, field)
    broken = state.replace(**{field: leaf.at[index].set(value) if index else jnp.full_like(leaf, value)})
    with pytest.raises(AssertionError, match=message):
        assert_invariants(broken, params)


def test_assert_invariants_finds_a_clock_that_goes_back(running_cluster):
    params, state = running_cluster
    with pytest.raises(AssertionError, match="time went back"):
        assert_invariants(state, params, previous=state.replace(time=state.time + 1))
    assert state.run_end.max() == NEVER
