"""Result files of a comparison: tables first, then pictures. Shared by ``train`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from jaxsched.evaluation.compare import RESAMPLES, compare_policies, host_worlds, paired_effect
from jaxsched.evaluation.plots import Run, attempt, comparison_plots, learning_curve
from jaxsched.evaluation.tables import summary_table, write_csv
from jaxsched.runs.sinks import Progress
from jaxsched.workloads.scenarios import Scenario, scenario_pool


def compare_on_test(
    policies: Mapping[str, tuple[Any, Any]],
    scenario: Scenario,
    windows: int,
    seed: int,
    reference: str,
    folder: Path,
) -> None:
    """Run ``policies`` on test windows; write evaluation.csv, summary.csv and plots; print the table."""
    config, params, infos = scenario_pool(scenario, "test", windows, seed)
    worlds = host_worlds(params)
    runs: dict[str, list[Run]] = {}
    with Progress(len(policies) * len(infos), "evaluate") as progress:

        def watch(name: str, episode: int, schedule: Any) -> None:
            runs.setdefault(name, []).append(Run(schedule, worlds[episode], float(infos[episode].tick_s)))
            progress.update(sum(map(len, runs.values())), policy=name)

        key = jax.random.key(seed)
        evaluation, summary = compare_policies(
            policies, config, params, infos, key, reference, scenario=scenario.name, watch=watch
        )
    write_csv(evaluation, folder / "evaluation.csv")
    write_csv(summary, folder / "summary.csv")
    print(f"{scenario.name}: {len(infos)} held-out windows")
    print(summary_table(summary, reference))
    if "gnn" in policies:
        print(verdict(evaluation, "gnn"))
    comparison_plots(folder / "plots", runs, infos[0].node_names)
    if (folder / "metrics.csv").is_file():
        attempt(_draw_learning_curve, folder, reference)
    print(f"results: {folder}")


def _draw_learning_curve(folder: Path, reference: str) -> None:
    metrics = pd.read_csv(folder / "metrics.csv")
    lines = {reference: float(metrics["val_reference_jct"].dropna().iloc[-1])}
    learning_curve(folder / "plots" / "learning_curve.png", metrics, lines)


def verdict(evaluation: pd.DataFrame, policy: str) -> str:
    """One line: is ``policy`` better than every other one, by paired 95 % intervals over windows?"""
    jct = evaluation.pivot(index="episode", columns="policy", values="mean_jct_s").astype(float)
    resamples = np.random.default_rng(0).integers(len(jct), size=(RESAMPLES, len(jct)))
    mine = jct[policy].to_numpy()
    effects = {name: paired_effect(mine, jct[name].to_numpy(), resamples) for name in jct if name != policy}
    if not effects:
        return f"{policy}: nothing to compare with"
    closest = max(effects, key=lambda name: effects[name]["log_jct_ratio"])
    lost = sorted(name for name, effect in effects.items() if effect["log_jct_ratio_high"] >= 0)
    low, high = (100 * np.expm1(effects[closest][f"log_jct_ratio_{end}"]) for end in ("low", "high"))
    change = effects[closest]["jct_change_pct"]
    margin = f"closest {closest}: JCT {change:+.1f} % (95 % paired interval {low:+.1f} .. {high:+.1f})"
    if lost:
        return f"{policy} does NOT beat every policy: not {', '.join(lost)}; {margin}"
    return f"{policy} has a lower mean JCT than each of the other {len(effects)} policies; {margin}"
