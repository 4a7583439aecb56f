"""The generator against the published marginals that it is calibrated on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from jaxsched.errors import InputError
from jaxsched.workloads import synthetic
from jaxsched.workloads.synthetic import JobMix, generate_window, stream

GPUS = {"K80": 24, "P100": 24, "V100": 16}
CLASSES = ("a", "b", "c", "d")


def sample(mix: JobMix, size: int = 60_000, seed: int = 0, **options: float) -> pd.DataFrame:
    return generate_window(stream(seed), size, mix, CLASSES, GPUS, **options).frame


@pytest.fixture(scope="module")
def jobs() -> pd.DataFrame:
    return sample(JobMix())


def test_request_shares(jobs: pd.DataFrame) -> None:
    gpu = jobs[jobs["num_gpu"] > 0]
    assert (jobs["num_gpu"] == 0).mean() == pytest.approx(0.133, abs=0.006)
    assert (gpu["gpu_milli"] < 1000).mean() == pytest.approx(0.415, abs=0.01)
    whole = gpu[gpu["gpu_milli"] == 1000]["num_gpu"].value_counts(normalize=True)
    assert set(whole.index) == {1, 2, 4, 8}
    assert whole[1] == pytest.approx(0.935, abs=0.01) and whole[8] == pytest.approx(0.020, abs=0.004)
    common = ((jobs["cpu_milli"] == 3152) & (jobs["gpu_milli"] == 810)).mean()
    expected = (1 - 0.133) * 0.415 * 1367 / 2562 * 988 / 1323
    assert common == pytest.approx(expected, abs=0.01)


def test_durations(jobs: pd.DataFrame) -> None:
    one = np.log(jobs[(jobs["num_gpu"] == 1) & (jobs["gpu_milli"] == 1000)]["duration_s"])
    assert one.median() == pytest.approx(6.642, abs=0.05) and one.std() == pytest.approx(1.731, abs=0.1)
    assert jobs["duration_s"].min() >= 4 and jobs["duration_s"].max() == 86_400
    assert sample(JobMix(longest_s=600, shortest_s=60), 2000)["duration_s"].between(60, 600).all()


def test_arrivals_are_bursty_and_follow_the_day(jobs: pd.DataFrame) -> None:
    flat = sample(JobMix(), mean_gap_s=10.0, size=500)["arrival_s"]  # under two hours: no pattern of the day
    gaps = np.concatenate(
        [np.diff(sample(JobMix(), 500, seed, mean_gap_s=100.0)["arrival_s"]) for seed in range(1, 120)]
    )
    assert gaps.std() / gaps.mean() == pytest.approx(1.6, abs=0.12)
    assert flat[0] == 0 and flat.is_monotonic_increasing
    hours = [sample(JobMix(), 40_000, seed, mean_gap_s=60.0)["arrival_s"] // 3600 % 24 for seed in (7, 8, 9)]
    for counts in (np.bincount(hour, minlength=24) for hour in hours):
        assert counts.max() / counts.min() == pytest.approx(4.1, rel=0.3)


def test_gangs_and_model_sets(jobs: pd.DataFrame) -> None:
    single = jobs[jobs["num_gpu"] == 1]
    assert (single["num_instances"] > 1).mean() == pytest.approx(0.118, abs=0.006)
    assert jobs["num_instances"].max() == 8 and (jobs[jobs["num_gpu"] != 1]["num_instances"] == 1).all()
    spec = jobs[jobs["num_gpu"] > 0]["gpu_spec"]
    assert (spec != "").mean() == pytest.approx(0.338, abs=0.01)
    assert spec[spec != ""].str.contains("|", regex=False).mean() == pytest.approx(0.158, abs=0.012)
    assert set(spec) == {"", "K80", "P100", "V100", "K80|P100", "K80|V100", "P100|V100"}
    assert (jobs[jobs["num_gpu"] == 0]["gpu_spec"] == "").all()


def test_classes_are_drawn_evenly_and_estimates_are_exact_by_default(jobs: pd.DataFrame) -> None:
    assert jobs["class"].value_counts(normalize=True).to_numpy() == pytest.approx([0.25] * 4, abs=0.01)
    assert jobs["estimate_s"].equals(jobs["duration_s"].rename("estimate_s"))
    noisy = sample(JobMix(estimate_error=0.5), 5000)
    error = np.log(noisy["estimate_s"] / noisy["duration_s"])[noisy["duration_s"].between(100, 10_000)]
    assert error.std() == pytest.approx(0.5, abs=0.05)


def test_default_gap_gives_about_the_load() -> None:
    frame = sample(JobMix(gang=0.0), 20_000, gpu_load=1.5)
    work = (frame["num_gpu"] * frame["gpu_milli"] * frame["duration_s"]).sum() / 1000
    assert work / (64 * frame["arrival_s"].iloc[-1]) == pytest.approx(1.5, rel=0.1)


def test_streams_repeat_and_differ() -> None:
    assert sample(JobMix(), 100, 3).equals(sample(JobMix(), 100, 3))
    assert not sample(JobMix(), 100, 3)["duration_s"].equals(sample(JobMix(), 100, 4)["duration_s"])


def test_one_model_and_constant_table_consistency() -> None:
    frame = generate_window(stream(0), 200, JobMix(constrained=1.0), ("x",), {"T4": 8}).frame
    assert set(frame["gpu_spec"]) == {"", "T4"}
    assert set(synthetic.REQUESTS) == set(synthetic.DURATION)


@pytest.mark.parametrize(
    "options",
    [
        {"cpu_only": 1.5},
        {"whole": {3: 1.0}},
        {"whole": {}},
        {"whole": {1: 0.0}},
        {"shortest_s": 0},
        {"longest_s": 2},
        {"estimate_error": -1.0},
    ],
)
def test_wrong_mixes_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match="mix"):
        JobMix(**options)
