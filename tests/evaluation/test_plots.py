import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from jaxsched.evaluation import plots
from jaxsched.evaluation.timeline import cut
from tests.evaluation.handmade import make_schedule, make_world, one_gpu_jobs


def busy_run() -> plots.Run:
    world = make_world(
        [(2, 1), (1, 2), (0, 0)], [(0, 2, 1000), (0, 1, 500), (0, 1, 500), (3600, 0, 0), (3600, 1, 250)]
    )
    spans = [(0, 3600), (0, 1800), (0, 7200), (3600, 7200), (3600, 7200)]
    parts = [(0, 0, {0: 1, 1: 1}), (1, 1, {0: 1}), (2, 1, {0: 1}), (3, 2, {}), (4, 1, {0: 1})]
    return plots.Run(make_schedule(world, spans, parts), world, 1.0)


def drawn(path):
    image = imread(path)
    assert len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 10, "an empty picture"
    return image


def test_learning_curve(tmp_path):
    metrics = pd.DataFrame({"env_steps": [0, 10, 20], "val_mean_jct": [3.0, np.nan, 2.0]})
    plots.learning_curve(tmp_path / "a" / "curve.png", metrics, {"fifo+best_fit": 2.5, "spt_pair": 2.2})
    drawn(tmp_path / "a" / "curve.png")


def test_cdf(tmp_path):
    plots.jct_cdf(tmp_path / "cdf.png", {"fifo": np.array([1.0, 10, 100]), "none finished": np.array([])})
    drawn(tmp_path / "cdf.png")


def test_utilisation_and_queue(tmp_path):
    plots.utilisation_and_queue(tmp_path / "u.png", {"fifo": busy_run()})
    drawn(tmp_path / "u.png")


def test_gantt(tmp_path):
    plots.gantt(tmp_path / "g.png", busy_run(), "fifo", ["n0", "n1", "n2"])
    drawn(tmp_path / "g.png")


def test_lines_over_time_hold_the_true_means():
    hours, held = plots.held_share_over_time(busy_run())
    half = len(hours) // 2
    assert hours[0] > 0 and hours[-1] < 2
    # first hour: 2 whole GPUs, then half a device to the end and another half for 30 minutes, of 3 devices
    assert np.mean(held[:half]) == pytest.approx((2 + 0.5 + 0.25) / 3, abs=1e-9)
    assert np.mean(held[half:]) == pytest.approx((0.5 + 0.25) / 3, abs=1e-9)
    world, schedule = one_gpu_jobs([(0, 10), (10, 20)])
    _, waiting = plots.waiting_over_time(plots.Run(schedule, world, 1.0))
    assert np.mean(waiting) == pytest.approx(0.5)


def test_shares_of_a_device_lie_beside_each_other():
    boxes, sizes, lanes = plots.gantt_boxes(busy_run(), [0, 1])
    assert lanes == 3
    assert sorted(sizes) == [0, 0, 0, 2, 2]
    corners = sorted((b[0][0], b[2][0], b[0][1], b[2][1]) for b in boxes)
    assert corners == [(0, 0.5, 2, 2.5), (0, 1, 0, 1), (0, 1, 1, 2), (0, 2, 2.5, 3), (1, 2, 2, 2.25)]


def test_nothing_finished_is_still_drawn(tmp_path):  # ME-02
    world, whole = one_gpu_jobs([(0, 100)])
    run = plots.Run(cut(whole, 10), world, 1.0)
    plots.gantt(tmp_path / "g.png", run, "fifo", ["n0"])
    plots.utilisation_and_queue(tmp_path / "u.png", {"fifo": run})
    plots.jct_cdf(tmp_path / "c.png", {"fifo": plots.jct_of(run)})
    drawn(tmp_path / "g.png")


def test_a_failure_is_one_warning_line(tmp_path, capsys):  # CL-03
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not plots.attempt(plots.jct_cdf, blocked / "c.png", {"fifo": np.array([1.0])})
    assert capsys.readouterr().err.startswith("warning: jct_cdf was not drawn: ")
    assert plots.attempt(plots.jct_cdf, tmp_path / "c.png", {"fifo": np.array([1.0])})


def test_no_screen_is_needed(tmp_path):  # CL-03
    code = (
        "import numpy as np, pathlib; from jaxsched.evaluation.plots import jct_cdf;"
        f"jct_cdf(pathlib.Path({str(tmp_path / 'c.png')!r}), {{'fifo': np.array([1.0, 2.0])}})"
    )
    environment = {"MPLBACKEND": "TkAgg", "PATH": "", "JAX_PLATFORMS": "cpu", "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    drawn(tmp_path / "c.png")
