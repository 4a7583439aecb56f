"""Orders, placement scores and the FGD tables of the reference, each against numbers worked by hand."""

from __future__ import annotations

import math

import pytest

from tests.reference.fgd import build_fgd_classes, fgd_score, fgd_thresholds, fragmentation
from tests.reference.policies import all_policy_names, reference_policy
from tests.reference.resources import NEVER, WHOLE, RefJob, RefNode
from tests.reference.simulator import Cluster, simulate


def job(name: str, num_gpu: int, milli: int = WHOLE, *, run=(9, 9, 9), arrival: int = 0, **more) -> RefJob:
    return RefJob(name, arrival, run, run, num_gpu, milli if num_gpu else 0, **more)


def placed(cluster: Cluster, placement: str) -> tuple[int, list[int]]:
    """Node and devices of the job that ``placement`` starts now."""
    row, node, device = reference_policy(f"fifo+{placement}")(cluster)
    cluster.start(row, node, device)
    return node, cluster.results[row].parts[0][2]


def occupied(nodes: list[RefNode], holders: list[tuple[int, int, int | None]], *jobs: RefJob, **options):
    """A cluster in which (node, milli, device) holders have started; device None takes whole GPUs."""
    first = [
        job(f"h{i}", 1, milli) if device is not None else job(f"h{i}", milli // WHOLE)
        for i, (_, milli, device) in enumerate(holders)
    ]
    cluster = Cluster(nodes, [*first, *jobs], **options)
    for row, (node, milli, device) in enumerate(holders):
        cluster.start(row, node, device if milli < WHOLE else None)
    return cluster


def test_there_are_212_names_and_unknown_ones_are_refused():
    names = all_policy_names()
    assert len(names) == len(set(names)) == 7 * 3 * 10 + 2
    for bad in ("fifo", "lifo+best_fit", "fifo-slow+best_fit", "fifo+nowhere"):
        with pytest.raises(KeyError):
            reference_policy(bad)


# Arrivals 0, 1, 2, 10 on a one-device cluster that is busy until 20.
QUEUE = [
    job("long", 1, run=(90, 90), arrival=0, deadline=500),
    job("half", 1, 500, run=(60, 60), arrival=1),
    job("cpu", 0, run=(200, 200), arrival=2, models=0b10, cpu_milli=1000, deadline=400),
    job("short", 1, run=(7, 7), arrival=10, deadline=NEVER),
]


@pytest.mark.parametrize(
    ("order", "first_to_last"),
    [
        ("fifo", "long half cpu short"),
        ("sjf", "short half long cpu"),
        ("saf", "cpu short half long"),  # 0, 7 000, 30 000, 90 000
        ("edf", "cpu long half short"),
        ("f1", "long half cpu short"),  # arrival weighs most: 1.95, 263.7, 417.4, 906.9
        # at t = 20 (w / e)^3: 0.011, 0.032, 0.0007, 2.9; w / e: 0.22, 0.32, 0.09, 1.43
        ("wfp3", "short half long cpu"),
        ("unicep", "short half long cpu"),
    ],
)
def test_orders(order, first_to_last):
    busy = RefJob("busy", 0, [20] * 2, [20] * 2)
    cluster = Cluster([RefNode(1, 1, 1000)], [busy, *QUEUE])
    cluster.start(0, 0)
    while cluster.time < 20:
        cluster.wait()
    policy, names = reference_policy(f"{order}-strict+first_fit"), []
    while cluster.visible:
        row, _, _ = policy(cluster)
        names.append(cluster.jobs[row].name)
        cluster.slots[cluster.slots.index(row)] = -1  # look at the next without letting time pass
    assert " ".join(names) == first_to_last


def test_wfp3_and_unicep_weigh_size_differently():
    # same estimate, waits 3 and 2: 3^3 * 1 = 27 < 2^3 * 4 = 32; 3 / log2(2) = 3 > 2 / log2(4) = 1
    cluster = Cluster([RefNode(1, 4)], [job("narrow", 1, arrival=0), job("wide", 4, arrival=1)])
    cluster.time = 3
    cluster.settle()
    assert reference_policy("wfp3+first_fit")(cluster)[0] == 1
    assert reference_policy("unicep+first_fit")(cluster)[0] == 0


def test_sjf_looks_at_the_fastest_model_that_the_job_may_use_and_the_world_has():
    jobs = [
        job("a", 1, run=(9, 8, 2), models=0b011),  # its 2 is on a model that it may not use
        job("b", 1, run=(9, 8, 2, 1), models=0b1110),  # nobody has column 3
        job("c", 0, run=(3, 9, 9, 9), models=0b1111),
    ]
    assert Cluster([RefNode(1, 1), RefNode(2, 1), RefNode(0, 0)], jobs).least_estimate == [8, 2, 3]


def test_best_and_worst_fit():
    nodes = [RefNode(1, 2), RefNode(1, 3)]
    holders = [(0, 300, 0), (1, 600, 1), (1, 500, 2)]  # free 700 1000 | 1000 400 500
    for placement, node, devices in [
        ("best_fit", 1, [0, 0, 1]),
        ("worst_fit", 0, [0, 1]),
        ("first_fit", 0, [1, 0]),
    ]:
        assert placed(occupied(nodes, holders, job("j", 1, 450)), placement) == (node, devices)
    whole = job("j", 1)
    assert placed(occupied([RefNode(1, 3), RefNode(1, 2)], [], whole), "best_fit") == (1, [1, 0])
    assert placed(occupied([RefNode(1, 2), RefNode(1, 3)], [], whole), "worst_fit") == (1, [1, 0, 0])
    cpu = job("j", 0, cpu_milli=1)
    assert placed(Cluster([RefNode(1, 1, 9), RefNode(1, 1, 8)], [cpu]), "best_fit") == (1, [0])
    assert placed(Cluster([RefNode(1, 1, 8), RefNode(1, 1, 9)], [cpu]), "worst_fit") == (1, [0])


def test_fastest_then_tightest_then_lowest():
    nodes = [RefNode(1, 1), RefNode(2, 3), RefNode(2, 2), RefNode(2, 2)]
    assert placed(Cluster(nodes, [job("j", 1, run=(9, 9, 4))]), "fastest") == (2, [1, 0])


def test_random_takes_the_draw_of_its_decision():
    jobs = [job("a", 1), job("b", 1, arrival=5)]
    nodes = [RefNode(1, 1), RefNode(1, 1), RefNode(1, 1)]
    # start a (7 % 3 = 1: node 1), WAIT (nothing to choose: no draw), start b (3 % 2 = 1: the second of nodes 0 and 2)
    found = simulate(nodes, jobs, reference_policy("fifo+random"), draws=[7, 3, 0, 0, 0])
    assert [r.parts[0][0] for r in found] == [1, 2]
    with pytest.raises(ValueError, match="draws"):
        simulate(nodes, jobs, reference_policy("fifo+random"))


def test_dot_product_prefers_the_small_dot():
    # C*c + 256*G*g: (32000*4000 + 256*2000*1000) = 6.4e8 -> 98; (64000*4000 + 256*1000*1000) = 5.12e8 -> 98;
    # (16000*4000 + 256*1000*1000) = 3.2e8 -> 99
    nodes = [RefNode(1, 2, 32_000), RefNode(1, 1, 64_000), RefNode(1, 1, 16_000)]
    assert placed(Cluster(nodes, [job("j", 1, cpu_milli=4000)]), "dot_product")[0] == 2
    assert placed(Cluster(nodes[:2], [job("j", 1, cpu_milli=4000)]), "dot_product")[0] == 0


def test_best_fit_vector_prefers_the_small_rest():
    # (28000 + 16*1000) / 2560 = 17.2 -> 82; (60000 + 0) / 2560 = 23.4 -> 76
    nodes = [RefNode(1, 1, 64_000), RefNode(1, 2, 32_000)]
    assert placed(Cluster(nodes, [job("j", 1, cpu_milli=4000)]), "best_fit_vector")[0] == 1


def test_gpu_packing_shared_device_before_idle_device_of_a_used_node_before_empty_node():
    nodes = [RefNode(1, 2), RefNode(1, 2), RefNode(1, 2)]
    used = [(1, 400, 0), (2, 700, 0)]  # free 1000 1000 | 600 1000 | 300 1000
    assert placed(occupied(nodes, used, job("j", 1, 500)), "gpu_packing") == (1, [1, 0])  # 94 > 49 > 31
    assert placed(occupied(nodes, used, job("j", 1)), "gpu_packing") == (1, [0, 1])  # 49 = 49 > 31
    assert placed(occupied(nodes, used, job("j", 2)), "gpu_packing") == (0, [1, 1])
    assert placed(occupied(nodes, used, job("j", 1, 200)), "gpu_packing") == (2, [1, 0])  # 97 > 94


def test_gpu_clustering_puts_like_with_like():
    nodes = [RefNode(1, 4) for _ in range(4)]
    # node 0: share and 1-GPU; node 1: 1-GPU alone; node 2: 2-GPU alone; node 3 empty
    used = [(0, 400, 0), (0, 1000, None), (1, 1000, None), (2, 2000, None)]
    for wanted, node in [(job("j", 1), 1), (job("j", 1, 300), 0), (job("j", 2), 2), (job("j", 3), 3)]:
        assert placed(occupied(nodes, used, wanted), "gpu_clustering")[0] == node


def test_spt_pair_takes_the_fastest_pair_then_the_earlier_job_then_the_tighter_node():
    nodes = [RefNode(1, 2), RefNode(2, 2), RefNode(2, 1)]
    spt = reference_policy("spt_pair")
    assert spt(Cluster(nodes, [job("a", 1, run=(9, 5, 5)), job("b", 1, run=(9, 7, 4))])) == (1, 2, None)
    assert spt(Cluster(nodes, [job("a", 2, run=(9, 7, 4)), job("b", 1, run=(9, 7, 4))])) == (0, 1, None)
    assert spt(Cluster(nodes, [job("a", 1, run=(9, 4, 4))])) == (0, 2, None)


def test_fgd_class_table_counts_instances_up_to_95_percent():
    spec = {"models": 0b11}
    jobs = [
        *[job("a", 1, 500, cpu_milli=4, **spec)] * 10,
        job("g", 2, cpu_milli=9, instances=6, **spec),
        *[job("c", 0, cpu_milli=9, **spec)] * 3,
        job("rare", 4, **spec),
    ]
    ten, six, three = (10, 1, 500, 4, 0b11), (6, 2, 1000, 9, 0b11), (3, 0, 0, 9, 0b11)
    assert build_fgd_classes(jobs) == [ten, six, three]  # 19 of 20 is 95 %
    assert build_fgd_classes(jobs[:10]) == [ten]
    tied = [job("x", 1, 200, cpu_milli=1, **spec), job("y", 1, 100, cpu_milli=2, **spec)]
    assert [c[3] for c in build_fgd_classes(tied)] == [2, 1]


def test_fragmentation_of_each_cause():
    devices = [1000, 400, 0]
    for one_class, stranded in [
        ((2, 0, 0, 5, 0b11), 2 * 1400),  # CPU-only: all that is idle
        ((2, 1, 300, 5, 0b01), 2 * 1400),  # wrong model
        ((2, 1, 300, 11, 0b11), 2 * 1400),  # too little CPU
        ((2, 2, 1000, 5, 0b11), 2 * 1400),  # too few devices
        ((2, 1, 500, 5, 0b11), 2 * 400),  # the small rest
        ((2, 1, 400, 10, 0b11), 0),
    ]:
        assert fragmentation([one_class], model=1, cpu=10, devices=devices) == stranded


def test_fgd_thresholds_are_the_truncated_sigmoid():
    total = 20
    cuts = fgd_thresholds(total)
    assert len(cuts) == 100 and cuts[49] == 0 and cuts[99] == NEVER and cuts == sorted(cuts)
    for gain in range(-120_000, 120_000, 7):
        if gain % (1000 * total):
            exact = math.trunc(100 / (1 + math.exp(-gain / (1000 * total))))
            assert sum(gain >= cut for cut in cuts) == exact


def test_fgd_fills_the_device_that_strands_least():
    # Class: halves. Free 600 | 500 before: stranded 0. 500 on the first leaves 100 stranded, on the second 0.
    classes = [(1, 1, 500, 0, 0b10)]
    cluster = occupied([RefNode(1, 2)], [(0, 400, 0), (0, 500, 1)], job("j", 1, 500), fgd_classes=classes)
    wanted = cluster.jobs[2]
    assert fgd_score(cluster, wanted, 0, [1, 0]) == math.trunc(100 / (1 + math.exp(0.1))) == 47
    assert fgd_score(cluster, wanted, 0, [0, 1]) == 50
    assert placed(cluster, "fgd") == (0, [0, 1])


def test_fgd_ties_go_to_the_first_node_and_device():
    cluster = Cluster([RefNode(1, 2), RefNode(1, 2)], [job("j", 1, 500)])
    assert placed(cluster, "fgd") == (0, [1, 0])
