"""The native job and node tables: what is read, what is dropped and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsched.errors import InputError
from jaxsched.workloads import load, read_nodes_csv
from jaxsched.workloads.readers.native import read_jobs_csv
from jaxsched.workloads.report import LoadReport
from jaxsched.workloads.schema import normal_spec, unique_names
from tests.workloads.tables import jobs_of, write

HEADER = "job,arrival_s,duration_s,num_gpu"


def test_defaults(tmp_path: Path) -> None:
    job = jobs_of(tmp_path, "a,0,10,2", "c,0,10,0").frame
    assert job["gpu_milli"].tolist() == [1000, 0]
    assert job["num_instances"].tolist() == [1, 1] and job["weight"].tolist() == [1.0, 1.0]
    assert job["gpu_spec"].tolist() == ["", ""] and job["class"].tolist() == ["default", "default"]
    assert job["estimate_s"].tolist() == [10, 10] and job["deadline_s"].tolist() == [None, None]


def test_every_optional_column(tmp_path: Path) -> None:
    header = (
        HEADER + ",gpu_milli,cpu_milli,memory_mib,gpu_spec,num_instances,weight,deadline_s,estimate_s,class"
    )
    job = jobs_of(tmp_path, "a,0.5,10,1,250,4000,8192,T4|P100,3,2.5,99.5,12,lm", header=header).frame.iloc[0]
    assert (job["gpu_milli"], job["cpu_milli"], job["memory_mib"], job["num_instances"]) == (
        250,
        4000,
        8192,
        3,
    )
    assert (job["gpu_spec"], job["class"], job["weight"], job["estimate_s"]) == ("P100|T4", "lm", 2.5, 12)
    assert (job["arrival_s"], job["deadline_s"]) == (Fraction(1, 2), Fraction(199, 2))


def test_ids_are_kept_as_exact_text(tmp_path: Path) -> None:  # TR-18
    names = ["NA", "null", "1e5", "007", "9007199254740993", "nan"]
    assert jobs_of(tmp_path, *(f"{n},0,10,1" for n in names)).frame["job"].tolist() == names


def test_number_formats_in_a_file(tmp_path: Path) -> None:  # TR-17
    jobs = jobs_of(tmp_path, "a,100,1,1", "b,100.0,1,1", "c,1e2,1,1")
    assert jobs.frame["arrival_s"].tolist() == [100, 100, 100]
    with pytest.raises(InputError, match=r"jobs\.csv: row 2, column 'arrival_s': '1,000' is not a number"):
        jobs_of(tmp_path, "a,100,1,1", 'b,"1,000",1,1')


@pytest.mark.parametrize("text", ["", HEADER + "\n"])
def test_files_without_jobs(tmp_path: Path, text: str) -> None:  # TR-15
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"no jobs in .*empty\.csv"):
        load(path)


def test_missing_times_and_negative_durations_are_counted(tmp_path: Path) -> None:  # TR-07
    rows = ["a,100,60,1", "b,200,,1", "c,,5,1", "d,-792,4,1", "e,0,-3,1"]
    jobs, report = load(write(tmp_path / "j.csv", HEADER, *rows))
    assert jobs.frame["job"].tolist() == ["a", "d"]  # a negative arrival is an instant like any other
    assert report.dropped == {"no arrival_s": 1, "no duration_s": 1, "negative duration_s": 1}
    assert (report.rows_read, report.kept) == (5, 2)
    assert "1 of 5 rows dropped: negative duration_s" in str(report)


def test_a_file_of_which_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all 1 rows were dropped"):
        load(write(tmp_path / "j.csv", HEADER, "a,0,-1,1"))


@pytest.mark.parametrize(
    ("num_gpu", "milli", "expected"),
    [(8, "1000", 1000), (1, "470", 470), (0, "0", 0), (0, "1000", 0), (8, "", 1000), (2, "0", 1000)],
)
def test_gpu_count_and_share_together(
    tmp_path: Path, num_gpu: int, milli: str, expected: int
) -> None:  # TR-11
    jobs = jobs_of(tmp_path, f"a,0,10,{num_gpu},{milli}", header=HEADER + ",gpu_milli")
    assert (jobs.frame["num_gpu"][0], jobs.frame["gpu_milli"][0]) == (num_gpu, expected)


@pytest.mark.parametrize(("num_gpu", "milli"), [(2, 500), (1, 0), (1, 1500), (8, 1500)])
def test_contradictory_gpu_requests(tmp_path: Path, num_gpu: int, milli: int) -> None:  # TR-11
    with pytest.raises(InputError, match=rf"row 2: num_gpu {num_gpu}, gpu_milli {milli}"):
        jobs_of(tmp_path, "a,0,10,1,1000", f"b,0,10,{num_gpu},{milli}", header=HEADER + ",gpu_milli")


def test_gangs_of_tiny_fractions(tmp_path: Path) -> None:
    header = HEADER + ",gpu_milli,num_instances"
    assert len(jobs_of(tmp_path, "a,0,10,1,8,2", "b,0,10,1,7,1", header=header)) == 2
    with pytest.raises(InputError, match="gang need gpu_milli of at least 8"):
        jobs_of(tmp_path, "a,0,10,1,7,2", header=header)


def test_repeated_names(tmp_path: Path) -> None:  # TR-13
    jobs, report = load(write(tmp_path / "j.csv", HEADER, "p1,0,10,1", "p1,5,10,1", "p1#2,6,10,1"))
    assert jobs.frame["job"].tolist() == ["p1", "p1#3", "p1#2"]
    assert any("1 repeated job names" in text for text in report.warnings)


def test_missing_column_names_file_and_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "j.csv", "job,arival_s,duration_s,num_gpu", "a,0,1,1")
    with pytest.raises(
        InputError, match=r"j\.csv: missing column arrival_s; found .*did you mean 'arival_s'"
    ):
        load(path)


def test_wrong_separator(tmp_path: Path) -> None:  # TR-17
    with pytest.raises(InputError, match="is the separator ';'"):
        load(write(tmp_path / "j.csv", HEADER.replace(",", ";"), "a;0;1;1"))


def test_lfs_pointer_missing_file_and_unknown_columns(tmp_path: Path) -> None:  # TR-03
    with pytest.raises(InputError, match="Git LFS"):
        load(
            write(tmp_path / "p.csv", "version https://git-lfs.github.com/spec/v1", "oid sha256:0", "size 1")
        )
    with pytest.raises(InputError, match="no file"):
        load(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="in no known format"):
        load(write(tmp_path / "x.csv", "alpha,beta", "1,2"))
    with pytest.raises(InputError, match=r"unknown format 'jaxshed'.*did you mean 'jaxsched'"):
        load(tmp_path / "x.csv", format="jaxshed")


def test_ragged_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a readable CSV"):
        load(write(tmp_path / "j.csv", HEADER, "a,0,1,1", "b,0,1,1,9,9"))
    with pytest.raises(InputError, match=r"row 1, column 'num_gpu'|no jobs"):
        load(write(tmp_path / "k.csv", HEADER, "a,0"))


def test_bom_crlf_and_blank_last_line(tmp_path: Path) -> None:  # TR-04
    jobs, nodes = HEADER + "\na,0,10,1\n", "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,2,T4\n"
    for name, text in (("jobs", jobs), ("nodes", nodes)):
        (tmp_path / f"{name}.csv").write_text(text)
        (tmp_path / f"{name}-dos.csv").write_bytes(
            b"\xef\xbb\xbf" + (text + "\n").replace("\n", "\r\n").encode()
        )
    assert load(tmp_path / "jobs.csv")[0].frame.equals(load(tmp_path / "jobs-dos.csv")[0].frame)
    plain, dos = (read_nodes_csv(tmp_path / f"nodes{end}.csv").frame for end in ("", "-dos"))
    assert plain.equals(dos)


def test_nodes(tmp_path: Path) -> None:  # TR-10: a node without GPUs is not of any model
    header = "sn,cpu_milli,memory_mib,gpu,model"
    nodes = read_nodes_csv(
        write(tmp_path / "n.csv", header, "a,1,2,0,", "b,1,2,0,T4", "c,1,2,4,V100", "d,1,2,1,")
    )
    assert nodes.frame["model"].tolist() == ["", "", "V100", "GPU"]
    with pytest.raises(InputError, match=r"row 1, column 'gpu': -1 is less than 0"):
        read_nodes_csv(write(tmp_path / "n.csv", header, "a,1,2,-1,T4"))
    with pytest.raises(InputError, match="missing column model"):
        read_nodes_csv(write(tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu", "a,1,2,1"))
    with pytest.raises(InputError, match="no nodes in"):
        read_nodes_csv(write(tmp_path / "n.csv", header))


@pytest.mark.parametrize(
    ("text", "spec"),
    [("", ""), ("nan", ""), ("T4", "T4"), ("V100M32|V100M16|V100M32", "V100M16|V100M32"), ("H900", "H900")],
)
def test_model_sets(text: str, spec: str) -> None:  # TR-10
    assert normal_spec(text) == spec


def test_a_report_that_does_not_add_up_is_our_fault() -> None:
    with pytest.raises(AssertionError):
        LoadReport("x", rows_read=3, kept=1, dropped={"why": 1})


cell = st.sampled_from(["", "0", "7", "-4", "2.5", "1e1"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=12))
def test_report_counts_add_up(tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("report") / "j.csv"
    jobs, report = read_jobs_csv(write(path, HEADER, *(f"j{i},{a},{d},1" for i, (a, d) in enumerate(cells))))
    usable = [(a, d) for a, d in cells if a and d and d != "-4"]
    assert report.rows_read == len(cells) == report.kept + sum(report.dropped.values())
    assert report.kept == len(jobs) == len(usable)


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b"]), max_size=8))
def test_unique_names_are_unique_and_keep_first_uses(names: list[str]) -> None:
    result, renamed = unique_names(names)
    assert len(set(result)) == len(names) and renamed == len(names) - len(set(names))
    assert all(result[names.index(name)] == name for name in set(names))
