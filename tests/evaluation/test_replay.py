import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from jaxsched.errors import InputError
from jaxsched.evaluation import replay
from jaxsched.evaluation.records import SCHEDULE_COLUMNS, decimal_text
from jaxsched.evaluation.tables import summary_table, write_csv, write_json


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,1,T4\n")
    return path


def job_file(tmp_path, *rows: str, columns: str = "job,arrival_s,duration_s,num_gpu"):
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def records(result) -> dict[str, dict[str, str]]:
    return {row["job"]: row for row in result.schedule.to_dict("records")}


@pytest.mark.parametrize("origin", [0, 9_437_497, 1_596_240_000])
def test_the_origin_of_the_trace_changes_nothing_but_itself(tmp_path, nodes, origin):  # ME-04
    result = replay(nodes, job_file(tmp_path, f"a,{origin},100,1", f"b,{origin},100,1"))
    assert result.summary["makespan_s"].tolist() == [200]
    assert records(result)["b"]["start_s"] == str(origin + 100)
    assert tuple(result.schedule.columns) == SCHEDULE_COLUMNS


def test_fractions_of_a_second_stay_exact(tmp_path, nodes):
    result = replay(nodes, job_file(tmp_path, "a,1596240000.125,0.001,1", "b,1596240000.126,2,1"))
    assert result.info.tick_s == Fraction(1, 1000)
    assert records(result)["a"]["finish_s"] == "1596240000.126"
    assert records(result)["b"]["wait_s"] == "0"


def test_a_cut_run_equals_the_whole_run_up_to_there(tmp_path, nodes):  # ME-01
    jobs = job_file(tmp_path, "a,0,10,1", "b,0,10,1")
    result = replay(nodes, jobs, until=15)
    assert {name: row["finish_s"] for name, row in records(result).items()} == {"a": "10", "b": ""}
    row = result.summary.iloc[0]
    assert (row["completed"], row["unfinished"], row["censored_mean_jct_s"]) == (1, 1, 12.5)
    whole = replay(nodes, jobs, until=20)
    assert whole.summary["unfinished"].tolist() == [0]


def test_until_given_as_text_is_exact(tmp_path, nodes):
    jobs = job_file(tmp_path, "a,0,0.3,1")
    assert records(replay(nodes, jobs, until="0.3"))["a"]["status"] == "completed"
    assert records(replay(nodes, jobs, until="0.2"))["a"]["status"] == "unfinished"


def test_impossible_jobs_are_listed_and_block_nothing(tmp_path, nodes):
    jobs = job_file(tmp_path, "big,5,10,2", "a,7,10,1")
    said = []
    result = replay(nodes, jobs, ("fifo-strict+first_fit",), say=said.append)
    assert [row["status"] for row in records(result).values()] == ["impossible", "completed"]
    assert records(result)["big"]["arrival_s"] == "5" and records(result)["a"]["start_s"] == "7"
    assert result.summary["impossible"].tolist() == [1]
    assert any("big" in line for line in said)


def test_nothing_possible_is_still_a_result(tmp_path, nodes):  # ME-02
    result = replay(nodes, job_file(tmp_path, "big,5,10,2"))
    assert result.summary[["jobs", "completed", "impossible"]].to_numpy().tolist() == [[1, 0, 1]]


def test_several_policies_see_the_same_jobs(tmp_path, nodes):
    jobs = job_file(tmp_path, "long,0,50,1", "mid,1,20,1", "short,2,5,1")
    result = replay(nodes, jobs, ("fifo+best_fit", "sjf+best_fit"))
    assert result.summary["mean_jct_s"].tolist() == [(50 + 69 + 73) / 3, (50 + 74 + 53) / 3]


def test_unknown_policies_are_refused_before_any_run(tmp_path, nodes):
    with pytest.raises(InputError, match="did you mean"):
        replay(nodes, job_file(tmp_path, "a,0,1,1"), ("fifo+bestfit",))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(100), "100"),
        (Fraction(1, 1000), "0.001"),
        (Fraction(15962400001, 10), "1596240000.1"),
        (Fraction(-5, 2), "-2.5"),
        (Fraction(10**20), "1" + "0" * 20),
    ],
)
def test_decimal_text(value, text):
    assert decimal_text(value) == text


def test_undefined_numbers_are_empty_or_null(tmp_path):  # ME-02
    frame = pd.DataFrame([{"policy": "p", "a": np.nan, "b": None, "c": np.int64(3), "d": 0.5}])
    write_csv(frame, tmp_path / "t.csv")
    write_json(frame, tmp_path / "t.json")
    assert (tmp_path / "t.csv").read_text() == "policy,a,b,c,d\np,,,3,0.5\n"
    assert json.loads((tmp_path / "t.json").read_text()) == [
        {"policy": "p", "a": None, "b": None, "c": 3, "d": 0.5}
    ]


def test_tables_show_the_best_first_and_hide_empty_counts(tmp_path, nodes):
    jobs = job_file(tmp_path, "long,0,50,1", "mid,1,20,1", "short,2,5,1")
    lines = summary_table(replay(nodes, jobs, ("fifo+best_fit", "sjf+best_fit")).summary).splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "sjf+best_fit", "fifo+best_fit"]
    assert "impossible" not in lines[0] and "unfinished" not in lines[0]
