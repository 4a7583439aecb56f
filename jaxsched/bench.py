"""``python -m jaxsched.bench``: how fast this machine simulates, decides and learns.

Each row is one layer at one number of clusters: compile time apart, then the median and the range of
several timed repeats. Units: *events* (a job admitted, started or ended, counted from the run itself) for
``sim``; *decisions* (through the public ``step``, observation and auto-reset included) for the others.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsched.cli import Parser, names, run, whole, wholes
from jaxsched.errors import InputError, nearest

if TYPE_CHECKING:
    from jaxsched.evaluation.speed import Measured
    from jaxsched.types import EnvConfig, EnvParams

LAYERS = ("sim", "env", "gnn", "train")
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


def parser() -> Parser:
    flags = Parser(prog="python -m jaxsched.bench", description=(__doc__ or "").split("\n\n")[0])
    flags.add_argument("--scenario", default="hetero-16", metavar="NAME[@LOAD]", help="a shipped scenario")
    flags.add_argument(
        "--num-envs", type=wholes, default=[1, 64, 1024, 4096], metavar="N,N,...", help="clusters"
    )
    flags.add_argument("--layers", type=names, metavar="A,B,...", help=f"of {', '.join(LAYERS)}; default all")
    flags.add_argument("--policy", default="sjf+best_fit", metavar="NAME", help="that decides in sim and env")
    flags.add_argument("--repeats", type=whole(), default=10, help="timed repeats")
    flags.add_argument("--json", metavar="FILE", help="also write the rows there")
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    layers = flags.layers or list(LAYERS)
    for layer in layers:
        if layer not in LAYERS:
            raise InputError(f"--layers: unknown layer {layer!r}; {nearest(layer, LAYERS)}")
    from jaxsched.workloads.scenarios import load_scenario, scenario_pool

    config, params, _ = scenario_pool(load_scenario(flags.scenario), "test", WINDOWS, 0)
    rows = []
    for layer in layers:
        for size in flags.num_envs:
            name, measured = _measured(layer, flags.policy, config, params, size, flags.repeats)
            row = {"scenario": flags.scenario, "layer": layer, "policy": name, "num_envs": size}
            row |= _machine() | _spread(measured) | {"state_bytes": _state_bytes(config, params)}
            rows.append({**row, "unit": "events" if layer == "sim" else "decisions"})
            print(_line(rows[-1]), flush=True)
    if flags.json:
        _write(rows, Path(flags.json))


def _measured(
    layer: str, name: str, config: EnvConfig, params: EnvParams, size: int, repeats: int
) -> tuple[str, Measured]:
    """The name of the policy that decided, and the rates."""
    from jaxsched.evaluation import speed
    from jaxsched.policies.library import get_policy

    if layer == "train":
        return "gnn", speed.measure_train(config, params, size, repeats)
    if layer == "gnn":
        policy, flops = speed.untrained_network(config, params)
        print(f"the default network takes {flops / 1e6:.2f} MFLOP a decision", file=sys.stderr)
        return "gnn", speed.measure_env(policy, config, params, size, repeats)
    measure = speed.measure_sim if layer == "sim" else speed.measure_env
    return name, measure(get_policy(name), config, params, size, repeats)


def _machine() -> dict[str, str]:
    import jax

    return {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind}


def _state_bytes(config: EnvConfig, params: EnvParams) -> int:
    """Bytes of one cluster's state."""
    import jax
    import jax.numpy as jnp

    from jaxsched.sim.state import empty_state

    state = jax.eval_shape(lambda: empty_state(config, params, jnp.int32(0)))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _spread(measured: Measured) -> dict[str, float]:
    return {
        "per_s_median": statistics.median(measured.per_s),
        "per_s_min": min(measured.per_s),
        "per_s_max": max(measured.per_s),
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
