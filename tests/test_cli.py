import csv
import importlib
import io
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from jaxsched import cli
from tests.own_warnings import command_filters, pass_on

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = [p.stem for p in sorted((ROOT / "jaxsched").glob("*.py")) if "__main__" in p.read_text()]
SCHEDULE_HEADER = "policy,job,arrival_s,start_s,finish_s,wait_s,jct_s,nodes,gpus,status"


def started(command: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m jaxsched.COMMAND`` in a process of its own."""
    line = [sys.executable, "-m", f"jaxsched.{command}", *map(str, arguments)]
    environment = os.environ | {"PYTHONWARNINGS": command_filters()} | environment
    answer = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=environment)
    answer.stderr = pass_on(answer.stderr)
    return answer


def jaxsched(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same command, called in this process: it shares what is imported and compiled."""
    main = importlib.import_module(f"jaxsched.{command}").main
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        cli.run(main, [str(each) for each in arguments])
    return subprocess.CompletedProcess([command], int(end.value.code or 0), out.getvalue(), err.getvalue())


def refused(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line of an exit with status 2."""
    assert answer.returncode == 2, answer.stderr
    lines = answer.stderr.splitlines()
    assert len(lines) == 1, answer.stderr
    return lines[0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    nodes, jobs = folder / "nodes.csv", folder / "jobs.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nnode-a,8000,1024,1,T4\nnode-b,8000,1024,2,V100\n")
    jobs.write_text(
        "job,arrival_s,duration_s,num_gpu,gpu_milli,num_instances\n"
        "late,1000.5,10,2,,1\nearly,1000,100,1,,1\nhuge,1000,5,16,,1\nhalves,1001,7,1,500,2\nnone,1001,3,0,,1\n"
    )
    return {"nodes": nodes, "jobs": jobs}


def simulate(tables: dict[str, Path], out: Path, *more: str | Path, call=jaxsched):
    return call("simulate", "--nodes", tables["nodes"], "--jobs", tables["jobs"], "--out", out, *more)


@pytest.mark.parametrize("command", ENTRY_POINTS)
def test_help_is_quick_and_touches_no_device(command):  # JX-10
    began = time.monotonic()
    answer = started(command, "--help", JAX_PLATFORMS="no_such_platform")
    assert time.monotonic() - began < 3.0
    assert answer.returncode == 0 and answer.stdout.startswith("usage: ")


def test_simulate_writes_the_agreed_files(tables, tmp_path):
    answer = simulate(
        tables, tmp_path, "--policy", "fifo+first_fit", "--policy", "sjf+best_fit", call=started
    )
    assert answer.returncode == 0, answer.stderr
    assert "huge" in answer.stdout
    with (tmp_path / "schedule.csv").open() as file:
        assert file.readline().strip() == SCHEDULE_HEADER
        file.seek(0)
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == ["fifo+first_fit"] * 5 + ["sjf+best_fit"] * 5
    by_name = {row["job"]: row for row in rows[:5]}
    assert list(by_name) == ["late", "early", "huge", "halves", "none"]
    late = ("1000.5", "1000.5", "1010.5", "0", "10", "node-b", "node-b:0;node-b:1", "completed")
    assert tuple(by_name["late"].values())[2:] == late
    assert by_name["early"]["gpus"] == "node-a:0" and by_name["early"]["finish_s"] == "1100"
    assert (by_name["huge"]["status"], by_name["huge"]["start_s"], by_name["huge"]["arrival_s"]) == (
        "impossible",
        "",
        "1000",
    )
    assert (by_name["halves"]["start_s"], by_name["halves"]["gpus"]) == ("1010.5", "node-b:0")
    assert (by_name["none"]["gpus"], by_name["none"]["nodes"], by_name["none"]["wait_s"]) == (
        "",
        "node-a",
        "0",
    )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [row["policy"] for row in summary] == ["fifo+first_fit", "sjf+best_fit"]
    assert (summary[0]["jobs"], summary[0]["completed"], summary[0]["impossible"]) == (5, 4, 1)
    assert summary[0]["makespan_s"] == 100 and summary[0]["bound_jct_s"] is None
    assert (tmp_path / "plots" / "gantt.png").is_file()


def test_until_leaves_jobs_unfinished(tables, tmp_path):  # ME-01, ME-02
    answer = simulate(tables, tmp_path, "--until", "1003.5")
    assert answer.returncode == 0, answer.stderr
    (row,) = json.loads((tmp_path / "summary.json").read_text())
    assert (row["completed"], row["unfinished"], row["impossible"]) == (0, 4, 1)
    assert row["mean_jct_s"] is None
    status = {r["job"]: (r["start_s"], r["finish_s"], r["status"]) for r in read(tmp_path / "schedule.csv")}
    assert status["early"] == ("1000", "", "unfinished") and status["halves"] == ("", "", "unfinished")


def test_until_before_the_trace_is_refused(tables, tmp_path):
    assert "before the first arrival at 1000" in refused(simulate(tables, tmp_path, "--until", "60"))


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_full_queue_is_enlarged_and_said(tables, tmp_path):
    jobs = tmp_path / "jobs.csv"
    lines = "".join(f"j{i},0,{400 - i},1\n" for i in range(400))
    jobs.write_text("job,arrival_s,duration_s,num_gpu\n" + lines)
    both = tables | {"jobs": jobs}
    answer = simulate(both, tmp_path / "free", "--policy", "sjf+best_fit")
    assert "repeating with a queue of 1024" in answer.stdout
    assert read(tmp_path / "free" / "schedule.csv")[-1]["start_s"] == "0"  # the shortest of all 400 was seen
    bound = simulate(both, tmp_path / "bound", "--policy", "sjf+best_fit", "--queue", "2")
    assert "repeating" not in bound.stdout and "queue of 2 full" in bound.stdout
    starts = [r["start_s"] for r in read(tmp_path / "bound" / "schedule.csv")]
    assert starts[1] == "0" and starts[-1] != "0"  # it was not among the first two


def test_max_jobs_takes_the_first_by_arrival_and_says_so(tables, tmp_path):  # TR-16
    answer = simulate(tables, tmp_path, "--max-jobs", "3")
    assert "using 3 of 5 jobs (first by arrival)" in answer.stdout
    assert [r["job"] for r in read(tmp_path / "schedule.csv")] == ["late", "early", "huge"]


def test_a_users_own_policy(tables, tmp_path):
    module = tmp_path / "mine.py"
    module.write_text(
        "from jaxsched import register_policy\nfrom jaxsched.policies.library import get_policy\n"
        "@register_policy('mine', 'first come first served, by another name')\n"
        "def mine(policy_params, key, state, env_params):\n"
        "    known = get_policy('fifo+first_fit')\n"
        "    return known(known.default_params, key, state, env_params)\n"
    )
    more = ("--policy", "mine", "--policy", "fifo+first_fit", "--policy-module", module)
    answer = simulate(tables, tmp_path / "out", *more, call=started)
    assert answer.returncode == 0, answer.stderr
    rows = read(tmp_path / "out" / "schedule.csv")
    assert [{**r, "policy": ""} for r in rows[:5]] == [{**r, "policy": ""} for r in rows[5:]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--policy", "sjf+bestfit"), "did you mean 'sjf+best_fit'?"),
        (("--polcy", "sjf+best_fit"), "unknown flag --polcy; did you mean '--policy'?"),
        (("--max-jobs", "1.5"), "--max-jobs: expected a whole number, found '1.5'"),
        (("--max-jobs", "0"), "--max-jobs: expected at least 1"),
        (("--until", "noon"), "--until: expected a number of seconds"),
        (("--policy-module", "no_such_module"), "no_such_module"),
        (("--policy-module", "no_such_file.py"), "no_such_file.py"),
        (("--speeds", "no_such_table"), "no_such_table"),
    ],
)
def test_wrong_flags_are_one_line(tables, tmp_path, more, message):  # CL-02, CL-04
    assert message in refused(simulate(tables, tmp_path / "out", *more))


def test_wrong_files_are_one_line(tables, tmp_path):  # CL-04
    assert str(tmp_path / "absent.csv") in refused(
        simulate(tables | {"jobs": tmp_path / "absent.csv"}, tmp_path)
    )
    assert refused(simulate(tables | {"nodes": tmp_path}, tmp_path))
    typo = tmp_path / "typo.csv"
    typo.write_text("sn,cpu_mili,memory_mib,gpu,model\nn,1,1,1,T4\n")
    message = refused(simulate(tables | {"nodes": typo}, tmp_path))
    assert "cpu_milli" in message and "cpu_mili" in message and str(typo) in message
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot make this folder" in refused(simulate(tables, blocked / "out"))


def test_debug_shows_the_traceback(tables, tmp_path):
    answer = simulate(tables, tmp_path, "--policy", "nonsense", "--debug", call=started)
    assert answer.returncode != 0 and "Traceback" in answer.stderr


def test_evaluate_compares_on_held_out_windows(tmp_path):
    chosen = "fifo+best_fit,spt_pair"
    answer = started("evaluate", "--policies", chosen, "--episodes", "2", "--seed", "1", "--out", tmp_path)
    assert answer.returncode == 0, answer.stderr
    rows = read(tmp_path / "evaluation.csv")
    assert list(rows[0])[:3] == ["scenario", "episode", "policy"] and len(rows) == 4
    summary = {row["policy"]: row for row in read(tmp_path / "summary.csv")}
    assert summary["spt_pair"]["reference"] == "spt_pair" and float(summary["spt_pair"]["log_jct_ratio"]) == 0
    assert float(summary["fifo+best_fit"]["log_jct_ratio"]) > 0
    assert sorted(p.name for p in (tmp_path / "plots").iterdir()) == [
        "gantt.png",
        "jct_cdf.png",
        "utilisation_and_queue.png",
    ]


def test_evaluate_lists_policies_with_definitions():
    answer = jaxsched("evaluate", "--list-policies")
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0 and len(lines) > 200
    for name in ("sjf-easy+best_fit", "spt_pair-easy", "index", "gnn"):
        assert any(line.startswith(f"{name}: ") for line in lines)


def test_evaluate_refuses_unknown_scenarios():
    assert "did you mean 'hetero-8'?" in refused(started("evaluate", "--scenario", "hetro-8"))


def test_bench_writes_the_agreed_rows(tmp_path):
    more = ("--scenario", "hetero-8", "--num-envs", "2", "--repeats", "1", "--json", tmp_path / "bench.json")
    answer = jaxsched("bench", "--layers", "sim,env", *more)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())
    assert [(row["layer"], row["unit"], row["num_envs"]) for row in rows] == [
        ("sim", "events", 2),
        ("env", "decisions", 2),
    ]
    assert all(0 < row["per_s_min"] <= row["per_s_median"] <= row["per_s_max"] for row in rows)
    assert rows[0]["state_bytes"] > 0
    assert "did you mean 'sim'?" in refused(jaxsched("bench", "--layers", "sime"))
    assert "--num-envs: expected a whole number" in refused(jaxsched("bench", "--num-envs", "1,x"))


def test_traces_describe_says_what_was_read(tables):
    answer = jaxsched("traces", "describe", tables["jobs"], "--nodes", tables["nodes"])
    assert answer.returncode == 0, answer.stderr
    assert "5 rows read, 5 jobs kept" in answer.stdout and "huge" in answer.stdout
    assert "arrivals: 1000 s to 1001 s" in answer.stdout
    listed = jaxsched("traces", "list")
    assert "format jaxsched" in listed.stdout and "scenario hetero-8" in listed.stdout
