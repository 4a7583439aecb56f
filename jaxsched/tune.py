"""``python -m jaxsched.tune``: tune the weights of the policy ``index`` for a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxsched.cli import Parser, output_folder, run, whole
from jaxsched.errors import InputError


def parser() -> Parser:
    flags = Parser(
        prog="python -m jaxsched.tune",
        description="Tune the linear policy 'index' by CMA-ES; the file is what --checkpoint of evaluate takes.",
    )
    flags.add_argument("--scenario", default="hetero-8", metavar="NAME[@LOAD]", help="a shipped scenario")
    flags.add_argument(
        "--out", required=True, metavar="FILE", help="YAML file for the weights; its course lies beside it"
    )
    flags.add_argument("--generations", type=whole(), default=20, metavar="N", help="of 24 candidates each")
    flags.add_argument("--seed", type=whole(0), default=0, help="of the search and its training windows")
    flags.add_argument(
        "--resume", action="store_true", help="go on with a tuning that was stopped, or for longer"
    )
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    path = Path(flags.out)
    if path.exists() and not flags.resume:
        raise InputError(f"--out {path}: exists already; go on with --resume, or give another file")
    if flags.resume and not path.is_file():
        raise InputError(f"--resume: no file {path} to go on with")
    output_folder(path.parent)
    _tune(flags, path)


def _tune(flags: Any, path: Path) -> None:
    from jaxsched.evaluation.plots import attempt, tuning_curve
    from jaxsched.runs.tuning import REFERENCE, TuneConfig, course_file, tune
    from jaxsched.workloads.scenarios import load_scenario

    scenario = replace(load_scenario(flags.scenario), name=flags.scenario)
    config = TuneConfig(scenario=flags.scenario, seed=flags.seed, generations=flags.generations)
    found = tune(config, scenario, path, flags.resume)
    attempt(tuning_curve, path.with_suffix(".png"), course_file(path), REFERENCE)
    print(
        f"index of generation {found.generation}: log JCT ratio to {REFERENCE} {found.val_log_ratio:+.4f} on "
        f"{config.validation_windows} validation windows that chose it: expect less on others"
    )
    print(f"weights: {path}")


if __name__ == "__main__":
    run(main)
