"""Tables of results as plain text, and result files as other programs read them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

_SHOWN = {
    "policy": "policy",
    "mean_jct_s": "mean JCT s",
    "p99_jct_s": "p99 JCT s",
    "mean_wait_s": "mean wait s",
    "mean_bounded_slowdown": "slowdown",
    "gpu_utilisation": "GPUs held %",
    "completed": "completed",
    "unfinished": "unfinished",
    "impossible": "impossible",
    "jct_change_pct": "JCT change %",
    "interval": "95 % interval",
    "wins": "wins",
}


def summary_table(summary: pd.DataFrame, reference: str | None = None) -> str:
    """A summary as aligned text, best mean JCT first; effects against ``reference`` where it has them."""
    shown = summary.sort_values("mean_jct_s", na_position="last").copy()
    shown["gpu_utilisation"] = 100 * shown["gpu_utilisation"].astype(float)
    if "log_jct_ratio" in shown:
        bounds = zip(shown["log_jct_ratio_low"], shown["log_jct_ratio_high"], strict=True)
        shown["interval"] = [f"{100 * math.expm1(a):+.1f} .. {100 * math.expm1(b):+.1f}" for a, b in bounds]
    columns = [
        c for c in _SHOWN if c in shown and not (c in ("unfinished", "impossible") and not shown[c].any())
    ]
    cells = [[_SHOWN[c] for c in columns]]
    cells += [
        [_cell(c, value) for c, value in zip(columns, row, strict=True)]
        for row in shown[columns].to_numpy(object)
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "  ".join(
            text.ljust(w) if i == 0 else text.rjust(w)
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    if reference is not None and "log_jct_ratio" in shown:
        lines.append(f"JCT change: mean over windows of log(JCT ratio) against {reference}, in per cent")
    return "\n".join(line.rstrip() for line in lines)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """A CSV with empty cells where a number is undefined."""
    frame.to_csv(path, index=False, lineterminator="\n")


def write_json(frame: pd.DataFrame, path: Path) -> None:
    """A JSON list of rows with null where a number is undefined (never a bare NaN)."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]
    path.write_text(json.dumps(rows, indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    undefined = value is None or (isinstance(value, float) and not math.isfinite(value))
    return None if undefined else value


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return ""
    if column == "jct_change_pct":
        return f"{value:+.1f}"
    if column in ("completed", "unfinished", "impossible", "wins"):
        return f"{value:.0f}"
    return f"{value:,.2f}" if column == "mean_bounded_slowdown" else f"{value:,.1f}"
