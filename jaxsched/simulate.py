"""``python -m jaxsched.simulate``: a user's jobs on a user's nodes, job by job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxsched.cli import Parser, exact_seconds, output_folder, run, whole


def parser() -> Parser:
    flags = Parser(
        prog="python -m jaxsched.simulate",
        description="Replay a job list on a node inventory; write schedule.csv, summary.csv, summary.json.",
    )
    flags.add_argument("--nodes", required=True, help="CSV with sn,cpu_milli,memory_mib,gpu,model")
    flags.add_argument("--jobs", required=True, help="job list, see --format")
    flags.add_argument("--policy", action="append", metavar="NAME", help="may be given several times")
    flags.add_argument("--format", default="auto", help="of --jobs: jaxsched, alibaba-2023 or auto")
    flags.add_argument("--max-jobs", type=whole(), metavar="N", help="only the first N jobs by arrival")
    flags.add_argument(
        "--until", type=exact_seconds, metavar="SECONDS", help="stop at this moment of the trace's own clock"
    )
    flags.add_argument("--queue", type=whole(), metavar="N", help="visible jobs; never enlarged when full")
    flags.add_argument(
        "--speeds", default="uniform", help="name of a speed table, or a CSV class,model,speed"
    )
    flags.add_argument(
        "--checkpoint",
        metavar="DIR|FILE",
        help="run folder for the policy gnn, or file of weights for the policy index",
    )
    flags.add_argument("--policy-module", metavar="M", help="module or .py file that registers policies")
    flags.add_argument("--seed", type=whole(0), default=0, help="of random policies")
    flags.add_argument("--out", required=True, metavar="DIR", help="folder for the results")
    return flags


def main(arguments: Sequence[str]) -> None:
    flags = parser().parse_args(arguments)
    from jaxsched.evaluation.replay import replay
    from jaxsched.evaluation.tables import summary_table, write_csv, write_json
    from jaxsched.runs.choice import choose_policies

    names = flags.policy or ["fifo+best_fit"]
    policies = choose_policies(names, flags.checkpoint, flags.policy_module)
    out = output_folder(flags.out)
    result = replay(
        flags.nodes,
        flags.jobs,
        policies,
        format=flags.format,
        max_jobs=flags.max_jobs,
        until=flags.until,
        queue=flags.queue,
        speeds=flags.speeds,
        seed=flags.seed,
        say=print,
    )
    write_csv(result.schedule, out / "schedule.csv")
    write_csv(result.summary, out / "summary.csv")
    write_json(result.summary, out / "summary.json")
    print(summary_table(result.summary))
    _draw(result, out / "plots")
    print(f"results: {out}")


def _draw(result: Any, folder: Path) -> None:
    from jaxsched.evaluation.plots import comparison_plots

    comparison_plots(folder, {name: [run] for name, run in result.runs.items()}, result.info.node_names)


if __name__ == "__main__":
    run(main)
