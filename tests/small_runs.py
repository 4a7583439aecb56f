"""Hand-made clusters for the simulator: written in a line, all of one shape, so that they share compiled programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from jaxsched.policies.library import get_policy
from jaxsched.sim.clock import Cluster, micro_step, start_cluster
from jaxsched.sim.rollout import run
from jaxsched.sim.state import is_finished
from jaxsched.testing import assert_invariants
from jaxsched.types import EnvState, Schedule
from tests.reference.resources import WHOLE, RefJob, RefNode
from tests.worlds import Sizes, schedule_of, single

SIZES = Sizes(nodes=4, gpus=8, jobs=25)
KEY = jax.random.key(3)


def node(gpus: int, model: int | None = None, **resources: int) -> RefNode:
    return RefNode((1 if gpus else 0) if model is None else model, gpus, **resources)


def job(name: str, arrival: int, duration: int, num_gpu: int, milli: int = WHOLE, **more) -> RefJob:
    """A job that runs equally long on every model; ``estimate=`` where it is not the duration."""
    estimate = more.pop("estimate", duration)
    return RefJob(name, arrival, [duration] * 4, [estimate] * 4, num_gpu, milli if num_gpu else 0, **more)


def small(nodes: Sequence[RefNode], jobs: Sequence[RefJob], queue: int = 8, sizes: Sizes = SIZES):
    """``(config, params)`` of one world in the shape that all small runs share."""
    return single(nodes, jobs, queue=queue, sizes=sizes)


def schedule(
    nodes: Sequence[RefNode], jobs: Sequence[RefJob], name: str, queue: int = 8, sizes: Sizes = SIZES
) -> Schedule:
    """Schedule of policy ``name``, numpy leaves."""
    config, params = small(nodes, jobs, queue, sizes)
    policy = get_policy(name)
    result = jax.tree.map(np.asarray, run(policy, policy.default_params, KEY, params, 0, config))
    assert result.complete and result.running_bound == 0
    return result


def by_name(result: Schedule, jobs: Sequence[RefJob]) -> dict[str, tuple]:
    """``(start, finish, parts)`` of each job; a part is (node, instances, instances on each device)."""
    names = [j.name for j in sorted(jobs, key=lambda j: j.arrival)]
    return dict(zip(names, schedule_of(result)[: len(names)], strict=True))


def times(
    nodes: Sequence[RefNode], jobs: Sequence[RefJob], name: str, queue: int = 8
) -> dict[str, tuple[int, int]]:
    """Start and finish of each job, in ticks since the first arrival."""
    return {k: v[:2] for k, v in by_name(schedule(nodes, jobs, name, queue), jobs).items()}


@jax.jit
def _one_turn(policy_params, cluster: Cluster, params):
    action = get_policy("fifo+best_fit").decide(policy_params, KEY, cluster, params)
    cluster, _ = micro_step(params, cluster, action)
    return cluster, is_finished(cluster.state, params)


def walk(nodes: Sequence[RefNode], jobs: Sequence[RefJob], name: str = "fifo+best_fit") -> Iterator[EnvState]:
    """The state after every micro-step of ``<order>[-strict|-easy]+best_fit``; the books are checked at each."""
    assert name.endswith("+best_fit")
    config, params = small(nodes, jobs)
    cluster, finished, before = start_cluster(config, params, 0), False, None
    while not finished:
        cluster, finished = _one_turn(get_policy(name).default_params, cluster, params)
        assert_invariants(cluster.state, params, before)
        before = cluster.state
        yield jax.tree.map(np.asarray, cluster.state)
