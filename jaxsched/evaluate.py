"""``python -m jaxsched.evaluate``: policies on the same held-out windows, compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxsched.cli import Parser, names, output_folder, run, whole

DEFAULT_REFERENCE = "spt_pair"


def parser() -> Parser:
    flags = Parser(
        prog="python -m jaxsched.evaluate",
        description="Compare policies on held-out windows; write evaluation.csv, summary.csv and plots.",
    )
    flags.add_argument("--scenario", default="hetero-8", metavar="NAME[@LOAD]", help="a shipped scenario")
    flags.add_argument(
        "--policies", type=names, default=None, metavar="A,B,...|all", help="see --list-policies"
    )
    flags.add_argument(
        "--checkpoint",
        metavar="DIR|FILE",
        help="run folder for the policy gnn, or file of weights for the policy index",
    )
    flags.add_argument("--policy-module", metavar="M", help="module or .py file that registers policies")
    flags.add_argument(
        "--reference", metavar="P", help=f"{DEFAULT_REFERENCE} when it is among the policies, else the first"
    )
    flags.add_argument("--episodes", type=whole(), default=16, metavar="N", help="windows")
    flags.add_argument(
        "--seed", type=whole(0), default=0, help="of the windows of synthetic scenarios, and of draws"
    )
    flags.add_argument("--out", default="outputs/evaluate", metavar="DIR", help="folder for the results")
    flags.add_argument("--list-policies", action="store_true", help="print every policy with its definition")
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    from jaxsched.runs.choice import choose_policies, definitions, load_module

    if flags.list_policies:
        load_module(flags.policy_module)
        for name, definition in definitions().items():
            print(f"{name}: {definition}")
        return
    chosen = choose_policies(
        flags.policies or _default_names(), flags.checkpoint, flags.policy_module, flags.scenario
    )
    reference = flags.reference or (DEFAULT_REFERENCE if DEFAULT_REFERENCE in chosen else next(iter(chosen)))
    _evaluate(flags, chosen, reference)


def _default_names() -> list[str]:
    return [
        "fifo+first_fit",
        "fifo+best_fit",
        "fifo-easy+best_fit",
        "fifo+fgd",
        "sjf+best_fit",
        "sjf+fastest",
        "spt_pair",
    ]


def _evaluate(flags: Any, chosen: dict[str, tuple[Any, Any]], reference: str) -> None:
    from jaxsched.runs.results import compare_on_test
    from jaxsched.workloads.scenarios import load_scenario

    scenario = replace(load_scenario(flags.scenario), name=flags.scenario)
    compare_on_test(chosen, scenario, flags.episodes, flags.seed, reference, output_folder(flags.out))


if __name__ == "__main__":
    run(main)
