"""Laws that every schedule of the reference simulator obeys, on random workloads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.reference.policies import reference_policy, shadow
from tests.reference.resources import NEVER, WHOLE
from tests.reference.simulator import Choice, Cluster, RefResult, run
from tests.reference.workloads import RefWorkload, random_workload

SOME_POLICIES = [
    "fifo+first_fit",
    "sjf-strict+best_fit",
    "saf-easy+worst_fit",
    "wfp3-easy+fgd",
    "unicep+gpu_clustering",
    "f1-easy+random",
    "edf+gpu_packing",
    "fifo-easy+dot_product",
    "sjf+best_fit_vector",
    "spt_pair",
    "spt_pair-easy",
]


def cluster_of(work: RefWorkload) -> Cluster:
    draws = [7919 * i % 104_729 for i in range(work.draws_needed)]
    return Cluster(work.nodes, work.jobs, queue=work.queue, draws=draws)


def check_books(cluster: Cluster, choice: Choice | None) -> None:
    """Free and taken add up to what the nodes have, and nothing is below zero."""
    for i, machine in enumerate(cluster.nodes):
        parts = [(cluster.jobs[r.row], p) for r in cluster.running for p in r.parts if p[0] == i]
        assert cluster.free.cpu[i] == machine.cpu_milli - sum(p[1] * j.cpu_milli for j, p in parts) >= 0
        assert cluster.free.memory[i] == machine.memory_mib - sum(p[1] * j.memory_mib for j, p in parts) >= 0
        for g in range(machine.gpus):
            assert cluster.free.gpu[i][g] == WHOLE - sum(p[2][g] * j.gpu_milli for j, p in parts) >= 0
    assert choice is None or choice[:2] in cluster.legal_pairs()


def check_result(work: RefWorkload, result: RefResult) -> None:
    wanted = work.jobs[result.job]
    assert wanted.arrival <= result.start
    models = [work.nodes[n].model for n, _, _ in result.parts]
    assert result.finish - result.start == max(wanted.duration_by_model[m] for m in models)
    assert all(wanted.models >> m & 1 for m in models)
    assert sum(count for _, count, _ in result.parts) == wanted.instances
    assert len({n for n, _, _ in result.parts}) == len(result.parts)
    for _, count, devices in result.parts:
        assert sum(devices) == count * wanted.num_gpu
        assert wanted.is_fraction or max(devices, default=0) <= 1


@pytest.mark.parametrize("name", SOME_POLICIES)
def test_laws_hold_on_random_workloads(name):
    policy = reference_policy(name)
    for seed in range(200):
        work = random_workload(seed)
        cluster = run(cluster_of(work), policy, watch=check_books)
        for result in cluster.results:
            check_result(work, result)
        check_books(cluster, None)
        assert cluster.finished == len(work.jobs) and not cluster.running
        assert cluster.job_ticks == sum(r.finish - r.arrival for r in cluster.results)
        assert cluster.decisions <= work.draws_needed


@pytest.mark.parametrize("placement", ["best_fit", "worst_fit", "fgd"])
def test_easy_keeps_its_promise_when_estimates_are_exact(placement):
    """The head of fifo starts no later than the first shadow time it was given."""
    promises = 0
    for seed in range(200):
        work = random_workload(seed)
        jobs = [replace(j, estimate_by_model=j.duration_by_model) for j in work.jobs]
        promised: dict[int, int] = {}

        def note(cluster: Cluster, choice: Choice | None, promised: dict[int, int] = promised) -> None:
            if cluster.visible and not cluster.free.legal_nodes(head := cluster.jobs[cluster.visible[0]]):
                promised.setdefault(cluster.visible[0], shadow(cluster, head)[0])

        cluster = run(Cluster(work.nodes, jobs), reference_policy(f"fifo-easy+{placement}"), watch=note)
        for row, time in promised.items():
            assert cluster.results[row].start <= time < NEVER
        promises += len(promised)
    assert promises > 100


def test_the_generator_is_reproducible_and_crowds_the_awkward_cases_together():
    works = [random_workload(seed) for seed in range(200)]
    assert works == [random_workload(seed) for seed in range(200)]
    jobs = [j for work in works for j in work.jobs]
    assert all(work.jobs[0].arrival == 0 and len(work.jobs) <= 10 for work in works)
    assert sum(len(work.jobs) > work.queue for work in works) > 50
    assert sum(j.instances > 1 for j in jobs) > 100
    assert sum(j.is_fraction for j in jobs) > 100
    assert sum(j.num_gpu == 0 for j in jobs) > 100
    assert sum(max(j.duration_by_model) == 0 for j in jobs) > 50
    assert sum(j.estimate_by_model[0] < j.duration_by_model[0] for j in jobs) > 50
    assert sum(j.estimate_by_model[0] > j.duration_by_model[0] for j in jobs) > 50
