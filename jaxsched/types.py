"""The vocabulary of the simulator: static sizes, worlds, parameters, state, observation.

Shape letters used everywhere (one unbatched cluster; callers ``vmap``):

    N nodes of a cluster (padded)      G devices per node (padded)
    J jobs of a window (padded)        M node models, column 0 is "no GPU"
    Q queue slots                      R rows of the running table
    P worlds in a pool                 B clusters simulated at once (never inside ``sim``)

Every countable quantity is an int32: times in ticks since the window's first arrival,
``cpu_milli``, ``memory_mib``, ``gpu_milli`` (a whole device is 1000).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.struct
import jax

NEVER = 2**31 - 1  # "no such time": the arrival of a padding job, the end of an empty running row
MILLI = 1000  # gpu_milli of one whole device


class Request(enum.IntEnum):
    """Columns of ``World.request``: what one instance of a job asks for, and how many there are."""

    NUM_GPU = 0  # devices per instance; 0 for CPU-only jobs
    GPU_MILLI = 1  # share of each device: 1000 when NUM_GPU > 1, 0 when NUM_GPU == 0
    CPU_MILLI = 2
    MEMORY_MIB = 3
    INSTANCES = 4  # gang size: all instances start together
    MODELS = 5  # bit m set: nodes of model column m are allowed


class Order(enum.IntEnum):
    """Queue orders. The first five are ranks made on the host, the last two depend on the clock."""

    FIFO = 0
    SJF = 1
    SAF = 2
    F1 = 3
    EDF = 4
    WFP3 = 5
    UNICEP = 6


NUM_STATIC_ORDERS = 5


class Blocking(enum.IntEnum):
    """What happens when the first job of the order does not fit."""

    SKIP = 0  # try the later ones
    STRICT = 1  # wait
    EASY = 2  # later ones may start if they do not delay the first


@dataclass(frozen=True)
class EnvConfig:
    """Static sizes of one cluster; hashable, so equal configs share one compiled program."""

    num_nodes: int  # N
    gpus_per_node: int  # G
    num_jobs: int  # J
    num_models: int  # M
    queue: int = 64  # Q
    running: int = 160  # R
    offer_wait: bool = False  # does the agent's mask contain WAIT while something fits?
    max_parts: int = 0  # L, placements a run can log: sum over jobs of min(instances, N); 0 means J
    max_events_per_step: int = 10_000  # cap on micro-steps inside one ``step``

    @property
    def num_actions(self) -> int:
        """Q*N placements and WAIT."""
        return self.queue * self.num_nodes + 1

    @property
    def wait_action(self) -> int:
        return self.queue * self.num_nodes


@flax.struct.dataclass
class World:
    """Jobs and nodes of one window. Immutable; a pool stacks P of them on a leading axis.

    Jobs are sorted by arrival (ties keep the table's row order); padding jobs arrive NEVER.
    Padding nodes have ``node_cpu = -1``, so that nothing fits on them.
    """

    node_cpu: jax.Array  # i32[N] milli-cores, -1 on padding nodes
    node_memory: jax.Array  # i32[N] MiB
    node_gpus: jax.Array  # i32[N] devices (at most G)
    node_model: jax.Array  # i32[N] model column, 0 for nodes without GPUs and padding
    arrival: jax.Array  # i32[J] ticks, non-decreasing
    request: jax.Array  # i32[J, 6] columns of ``Request``
    run_time: jax.Array  # i32[J, M] true ticks on a node of each model
    estimate: jax.Array  # i32[J, M] estimated ticks on a node of each model: all a policy may see
    least_estimate: jax.Array  # i32[J] least estimate over models it may use and the world has
    least_run_time: jax.Array  # i32[J] the same of the true run time (reward only)
    rank: jax.Array  # i32[J, 5] place in each static ``Order``, a permutation of 0..J-1
    urgency: jax.Array  # f32[J, 2] n/e^3 (wfp3) and 1/(log2(max(n,2)) e) (unicep); e in ticks
    job_class: jax.Array  # i32[J]
    weight: jax.Array  # f32[J]
    deadline: jax.Array  # i32[J] ticks, NEVER without one
    num_jobs: jax.Array  # i32[] real jobs


@flax.struct.dataclass
class EnvParams:
    """Everything traced that does not change during an episode. Leaves may be vmapped over."""

    pool: World  # World with a leading axis P
    tick_s: jax.Array  # f32[] seconds per tick
    beta: jax.Array  # f32[] 1/s, continuous-time discount rate
    reward_scale: jax.Array  # f32[] job-seconds per unit of reward
    power_w: jax.Array  # f32[M, 2] watts of an untouched and of a used device of each model (0: unknown)
    fgd_class: jax.Array  # i32[C, 6] columns of ``Request``; INSTANCES holds the class count
    fgd_threshold: jax.Array  # i32[100] least integer gain with FGD score >= 1..100


@flax.struct.dataclass
class EnvState:
    """What changes. Small integer types where the config's sizes allow (``sim.state.row_dtypes``)."""

    world: jax.Array  # i32[] row of the pool
    time: jax.Array  # i32[] ticks
    steps: jax.Array  # i32[] decisions taken at which some job could start (a WAIT then counts)
    arrived: jax.Array  # i32[] jobs 0..arrived-1 have arrived
    admitted: jax.Array  # i32[] jobs 0..admitted-1 have entered the queue
    finished: jax.Array  # i32[] jobs that have ended
    queue: jax.Array  # int[Q] job in each slot, -1 when empty
    free_gpu: jax.Array  # i16[N, G] free milli of each device
    free_cpu: jax.Array  # i32[N]
    free_memory: jax.Array  # i32[N]
    run_end: jax.Array  # i32[R] true end, NEVER when the row is empty
    run_estimate: jax.Array  # i32[R] estimated end (start + estimate on the slowest node)
    run_job: jax.Array  # int[R] job of the row, -1 when empty
    run_node: jax.Array  # int[R]
    run_instances: jax.Array  # i16[R] instances on that node
    run_taken: jax.Array  # i8[R, G] instances on each device (each holds the job's gpu_milli)
    gang_job: jax.Array  # int[] job whose gang is being placed, -1 when none
    gang_left: jax.Array  # i16[] its instances still to place
    queue_bound: jax.Array  # i32[] arrivals that found the queue full
    running_bound: jax.Array  # i32[] decisions at which a job was held back by the running table


class Observation(NamedTuple):
    """What an agent sees. Times are seconds relative to now, never absolute."""

    job: jax.Array  # f32[Q, F_job]
    node: jax.Array  # f32[N, F_node]
    pair: jax.Array  # f32[Q, N, F_pair]
    context: jax.Array  # f32[F_context]
    action_mask: jax.Array  # bool[Q*N+1]


class Schedule(NamedTuple):
    """What one run did: all that metrics, plots and schedule.csv are made from (on the host, 64 bits).

    A *part* is the share of a job on one node: single-instance jobs have one part, gangs one per node.
    """

    start: jax.Array  # i32[J] ticks, NEVER if it did not start
    finish: jax.Array  # i32[J] ticks, NEVER if it did not end
    part_job: jax.Array  # i32[L] job row, -1 beyond num_parts
    part_node: jax.Array  # i32[L]
    part_instances: jax.Array  # i32[L]
    part_devices: jax.Array  # i8[L, G] instances on each device
    num_parts: jax.Array  # i32[]
    events: jax.Array  # i32[] admissions + starts + ends
    time: jax.Array  # i32[] clock when the run stopped
    queue_bound: jax.Array  # i32[]
    running_bound: jax.Array  # i32[]
    complete: jax.Array  # bool[] nothing left to arrive, wait or run


class Transition(NamedTuple):
    """One decision, as learners want it: ``discount`` is exp(-beta dt) and carries no termination."""

    state: Any
    action: jax.Array  # i32[]
    reward: jax.Array  # f32[]
    discount: jax.Array  # f32[]
    terminated: jax.Array  # bool[]
    truncated: jax.Array  # bool[]
