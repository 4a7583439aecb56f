"""The problems that all parity tests solve, and what the reference says about them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxsched.policies.library import Rule, decision_draw
from jaxsched.types import Blocking, Order
from tests.reference.policies import reference_policy
from tests.reference.simulator import simulate
from tests.reference.workloads import random_workload
from tests.worlds import Sizes, reference_schedule, workload_params

SIZES = Sizes()
COUNT = 200
QUEUES = (3, 16)
KEY = jax.random.key(7)
NAMED = (
    "fifo+first_fit", "fifo+best_fit", "fifo-strict+best_fit", "fifo-easy+best_fit",
    "sjf+best_fit", "sjf-strict+worst_fit", "sjf-easy+fastest", "sjf+fastest", "sjf+fgd",
    "saf+best_fit", "saf-easy+gpu_packing", "saf+random", "wfp3+best_fit", "wfp3-easy+best_fit_vector",
    "unicep+best_fit", "unicep-strict+dot_product", "f1+best_fit", "f1-easy+gpu_clustering",
    "edf+best_fit", "edf-strict+first_fit", "fifo+gpu_packing", "fifo+gpu_clustering", "fifo+dot_product",
    "spt_pair", "spt_pair-easy",
)  # fmt: skip


@functools.cache
def workloads():
    """The random workloads, the same in every test."""
    return [random_workload(seed) for seed in range(COUNT)]


@functools.cache
def pools():
    """Their parameters, stacked."""
    stacked = [workload_params(w, SIZES) for w in workloads()]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacked)


@functools.cache
def draws():
    """The random integers of the first decisions of a run with ``KEY``."""
    keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(64))
    return np.asarray(jax.vmap(decision_draw)(keys)).tolist()


def reference(workload, name, queue):
    """The schedule of the plain-Python reference."""
    results = simulate(workload.nodes, workload.jobs, reference_policy(name), queue=queue, draws=draws())
    return reference_schedule(results, SIZES)


def all_rules():
    """Every order under every blocking rule: traced parameters [21], and the names' first halves."""
    pairs = [(order, blocking) for order in Order for blocking in Blocking]
    rule = Rule(*(jnp.array(column, jnp.int32) for column in zip(*pairs, strict=True)))
    suffix = {Blocking.SKIP: "", Blocking.STRICT: "-strict", Blocking.EASY: "-easy"}
    return rule, [f"{order.name.lower()}{suffix[blocking]}" for order, blocking in pairs]
