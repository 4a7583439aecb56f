import csv

import pytest

from jaxsched.errors import InputError
from jaxsched.runs.sinks import MetricsFile, Progress

COLUMNS = ("env_steps", "loss", "val_mean_jct")


def rows(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_the_header_is_written_once_even_on_resume(tmp_path):
    path = tmp_path / "run" / "metrics.csv"
    MetricsFile(path, COLUMNS).append({"env_steps": 1, "loss": 0.5})
    MetricsFile(path, COLUMNS).append({"env_steps": 2, "loss": float("nan"), "val_mean_jct": None})
    assert rows(path) == [list(COLUMNS), ["1", "0.5", ""], ["2", "", ""]]


def test_a_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"expected columns env_steps,loss,val_mean_jct, found a,b"):
        MetricsFile(path, COLUMNS)


def test_an_unknown_column_is_our_fault(tmp_path):
    with pytest.raises(KeyError, match="los"):
        MetricsFile(tmp_path / "metrics.csv", COLUMNS).append({"los": 1})


def test_rows_after_the_checkpoint_are_dropped(tmp_path):
    file = MetricsFile(tmp_path / "metrics.csv", COLUMNS)
    for step in (10, 20, 30):
        file.append({"env_steps": step, "loss": step / 10})
    file.cut_after("env_steps", 20)
    file.append({"env_steps": 25, "loss": 2.5})
    assert [row[0] for row in rows(file.path)] == ["env_steps", "10", "20", "25"]


def test_progress_in_a_pipe_is_plain_lines(capsys):
    with Progress(10, "train", every_s=0.0) as progress:
        progress.update(5, loss=0.1234, jct=12345.6)
        progress.note("new best")
        progress.update(10, loss=0.1)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and "\x1b" not in err
    assert lines[0].startswith("train  50%  loss 0.123  jct 12,346  left ")
    assert lines[1:] == ["new best", "train 100%  loss 0.1  left 0 s"]


def test_progress_says_the_last_state_once(capsys):
    with Progress(10, "train", every_s=1e9) as progress:
        progress.update(3)
        progress.update(7)
    assert [line.split()[:2] for line in capsys.readouterr().err.splitlines()] == [["train", "70%"]]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(10, "train") as progress:
        progress.update(5, loss=0.5)
        progress.note("[best] so far")
    assert "[best] so far" in capsys.readouterr().err
