"""``python -m jaxsched.traces``: which formats are read, and what a trace file holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxsched.cli import Parser, run

PERCENTILES = (0.5, 0.9, 0.99, 1.0)


def parser() -> Parser:
    flags = Parser(prog="python -m jaxsched.traces", description="Look at traces before using them.")
    commands = flags.add_subparsers(dest="command", required=True, metavar="list|describe")
    commands.add_parser("list", help="formats that are read, and scenarios that are shipped")
    describe = commands.add_parser("describe", help="what was read from a job list, what was dropped and why")
    describe.add_argument("path", help="job list")
    describe.add_argument("--format", default="auto", help="of the job list")
    describe.add_argument("--nodes", help="CSV of nodes: adds impossible jobs and offered load per GPU model")
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    if flags.command == "list":
        _list()
    else:
        _describe(flags)


def _list() -> None:
    from jaxsched.workloads import FORMATS
    from jaxsched.workloads.scenarios import list_scenarios, load_scenario

    for name in FORMATS:
        print(f"format {name}")
    for name in list_scenarios():
        print(f"scenario {name}: {load_scenario(name).about}")


def _describe(flags: Any) -> None:
    from jaxsched.workloads import load
    from jaxsched.workloads.demand import report_on
    from jaxsched.workloads.readers.native import read_nodes_csv

    jobs, report = load(flags.path, flags.format)
    if flags.nodes:
        report = report_on(report, jobs, read_nodes_csv(flags.nodes))
    print(report)
    for line in described(jobs.frame):
        print(line)


def described(frame: Any) -> list[str]:
    """Lines about the kept jobs: arrivals, run times, sizes, constraints, classes."""
    if not len(frame):
        return ["no jobs"]
    arrival, duration = (frame[name].astype(float) for name in ("arrival_s", "duration_s"))
    quantiles = ", ".join(f"{q:.0%} {duration.quantile(q, interpolation='lower'):,.6g}" for q in PERCENTILES)
    gpus = frame["num_gpu"].where(frame["gpu_milli"].isin((0, 1000)), -1)
    sizes = {("fraction" if size < 0 else f"{size} GPU"): n for size, n in gpus.value_counts().items()}
    lines = [
        f"arrivals: {arrival.min():.15g} s to {arrival.max():.15g} s",
        f"durations (s): {quantiles}",
        f"size of an instance: {', '.join(f'{name} {n}' for name, n in sizes.items())}",
        f"gangs: {int((frame['num_instances'] > 1).sum())} jobs of several instances",
        f"GPU models: {int((frame['gpu_spec'] != '').sum())} jobs may only use some",
        f"classes: {', '.join(f'{name} {n}' for name, n in frame['class'].value_counts().items())}",
    ]
    return lines


if __name__ == "__main__":
    run(main)
