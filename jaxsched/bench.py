"""``python -m jaxsched.bench``: how fast this machine simulates, decides and learns.

Each row is one layer at one number of clusters: compile time apart, then the median and the range of
several timed repeats, every output waited for. Units: *events* (a job admitted, started or ended, counted
from the run itself) for ``sim``; *decisions* (through the public ``step``, observation and auto-reset
included) for the others.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsched.cli import Parser, names, run, whole
from jaxsched.errors import InputError, nearest

if TYPE_CHECKING:
    from jaxsched.types import EnvConfig, EnvParams

LAYERS = ("sim", "env")
COLUMNS = (
    "scenario",
    "layer",
    "policy",
    "unit",
    "num_envs",
    "backend",
    "device",
    "per_s_median",
    "per_s_min",
    "per_s_max",
    "compile_s",
    "state_bytes",
)
WINDOWS = 16  # distinct windows that the clusters of a benchmark share
STEPS = 256  # decisions in one timed repeat of ``env``
BLOCK = 64  # clusters stepped together: their states fit a core's cache


@dataclass(frozen=True)
class Measured:
    """One layer at one batch size."""

    per_s: list[float]
    compile_s: float


def parser() -> Parser:
    flags = Parser(prog="python -m jaxsched.bench", description=__doc__.split("\n\n")[0])
    flags.add_argument("--scenario", default="hetero-16", metavar="NAME[@LOAD]", help="a shipped scenario")
    flags.add_argument(
        "--num-envs", type=names, default=["1", "64", "1024"], metavar="N,N,...", help="clusters at once"
    )
    flags.add_argument(
        "--layers", type=names, default=list(LAYERS), metavar="A,B,...", help=f"of {', '.join(LAYERS)}"
    )
    flags.add_argument("--policy", default="sjf+best_fit", metavar="NAME", help="that decides")
    flags.add_argument("--repeats", type=whole(), default=5, help="timed repeats")
    flags.add_argument("--json", metavar="FILE", help="also write the rows there")
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    for layer in flags.layers:
        if layer not in LAYERS:
            raise InputError(f"--layers: unknown layer {layer!r}; {nearest(layer, LAYERS)}")
    sizes = [whole()(size) for size in flags.num_envs]
    import jax

    from jaxsched.policies.library import get_policy
    from jaxsched.sim.state import empty_state
    from jaxsched.workloads.scenarios import load_scenario, scenario_pool

    policy = get_policy(flags.policy)
    config, params, _ = scenario_pool(load_scenario(flags.scenario), "test", WINDOWS, 0)
    state = jax.eval_shape(lambda: empty_state(config, params, 0))
    device = jax.devices()[0]
    rows = []
    for layer in flags.layers:
        for size in sizes:
            measured = {"sim": measure_sim, "env": measure_env}[layer](
                policy, config, params, size, flags.repeats
            )
            row = {
                "scenario": flags.scenario,
                "layer": layer,
                "policy": flags.policy,
                "unit": "events" if layer == "sim" else "decisions",
                "num_envs": size,
                "backend": jax.default_backend(),
                "device": device.device_kind,
                **_spread(measured),
                "state_bytes": sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
            }
            rows.append(row)
            print(_line(row), flush=True)
    if flags.json:
        _write(rows, Path(flags.json))


def measure_sim(policy: Any, config: EnvConfig, params: EnvParams, size: int, repeats: int) -> Measured:
    """Whole windows in the event loop, no observation, no record of places."""
    import jax
    import jax.numpy as jnp

    from jaxsched.sim.rollout import run as run_window

    def events(key: jax.Array, params: EnvParams) -> jax.Array:
        def one(world: jax.Array) -> jax.Array:
            schedule = run_window(policy, policy.default_params, key, params, world, config, parts=False)
            return schedule.events

        worlds = jnp.arange(size, dtype=jnp.int32) % params.pool.num_jobs.shape[0]
        return jax.lax.map(one, worlds, batch_size=min(BLOCK, size)).sum()

    return _measure(events, params, repeats)


def measure_env(policy: Any, config: EnvConfig, params: EnvParams, size: int, repeats: int) -> Measured:
    """The public ``step`` with observation and auto-reset; decisions are those of ``policy``."""
    import jax

    from jaxsched.sim.env import ClusterEnv

    env, lanes = ClusterEnv(config), min(BLOCK, size)
    blocks = -(-size // lanes)

    def block(keys: jax.Array, params: EnvParams) -> jax.Array:
        states = jax.vmap(env.reset, in_axes=(0, None))(keys, params)[1]

        def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
            keys, states = carry
            keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
            actions = jax.vmap(policy, in_axes=(None, 0, 0, None))(
                policy.default_params, keys, states, params
            )
            observation, states, reward, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                keys, states, actions, params
            )
            return (keys, states), checksum((observation, reward))

        return jax.lax.scan(step, (keys, states), None, STEPS)[1].sum()

    def decisions(key: jax.Array, params: EnvParams) -> jax.Array:
        return jax.lax.map(lambda keys: block(keys, params), jax.random.split(key, (blocks, lanes))).sum()

    return _measure(decisions, params, repeats, units=blocks * lanes * STEPS)


def checksum(tree: Any) -> Any:
    """One number that depends on every leaf, so that nothing is left out as dead code."""
    import jax
    import jax.numpy as jnp

    return sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(tree))


def _measure(work: Callable[..., Any], params: EnvParams, repeats: int, units: int | None = None) -> Measured:
    """Times ``work(key, params)``; ``units`` of work each, or as many as it returns."""
    import jax

    began = time.perf_counter()
    compiled = jax.jit(work).lower(jax.random.key(0), params).compile()
    compile_s = time.perf_counter() - began
    jax.block_until_ready(compiled(jax.random.key(0), params))
    rates = []
    for repeat in range(repeats):
        key = jax.random.key(repeat + 1)
        began = time.perf_counter()
        result = jax.block_until_ready(compiled(key, params))
        rates.append((units or int(result)) / (time.perf_counter() - began))
    return Measured(rates, compile_s)


def _spread(measured: Measured) -> dict[str, float]:
    ordered = sorted(measured.per_s)
    return {
        "per_s_median": ordered[len(ordered) // 2],
        "per_s_min": ordered[0],
        "per_s_max": ordered[-1],
        "compile_s": measured.compile_s,
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['scenario']} {row['layer']} {row['policy']} x{row['num_envs']}: {row['per_s_median']:,.0f} "
        f"{row['unit']}/s ({row['per_s_min']:,.0f} .. {row['per_s_max']:,.0f}), "
        f"compile {row['compile_s']:.1f} s, {row['state_bytes']:,} bytes a cluster, {row['device']}"
    )


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([{c: row[c] for c in COLUMNS} for row in rows], indent=2) + "\n")
    except OSError as error:
        raise InputError(f"--json {path}: {error.strerror}") from error
    print(f"rows: {path}", file=sys.stderr)


if __name__ == "__main__":
    run(main)
