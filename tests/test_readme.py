"""Everything that the documentation tells a reader to type is typed here, with tiny budgets (CL-05)."""

import functools
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxsched import cli, train
from jaxsched.config import fill, read_yaml
from jaxsched.learner import features
from jaxsched.policies import library
from jaxsched.runs import course
from jaxsched.runs.settings import RunConfig
from jaxsched.workloads.scenarios import load_scenario

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETS_UP = ("make", "pip", "git", "mkdir", "cp", "export")  # lines that install or fetch: not executed
TINY_RUN = """
    train_windows=2 validation_windows=2 test_windows=2 evaluations=1 policies=fifo+best_fit,spt_pair
    learner.total_steps=64 learner.num_envs=4 learner.chunk_steps=8 learner.updates=1 learner.batch=8
    learner.capacity=16 learner.learning_starts=32 learner.n_step=2 learner.network.width=8
    learner.target=td learner.network.max_jobs=4 learner.network.max_nodes=2 learner.learning_rate=1e-3
"""
TINY_FLAGS = {"--episodes": "2", "--num-envs": "2", "--layers": "sim"}


class Block(NamedTuple):
    language: str
    text: str
    file: str  # where the page says to save it, else ""


def blocks(page: Path) -> list[Block]:
    pattern = r"^```(\w+)\n(.*?)^```$(?:\n\nSave it as `([\w.]+)`)?"
    return [Block(*found) for found in re.findall(pattern, page.read_text(), re.M | re.S)]


def steps(script: str) -> Iterator[tuple[str, str]]:
    """A bash block as ("file name", content) for each heredoc and ("", line) for each other line."""
    lines = iter(script.replace("\\\n", " ").splitlines())
    for line in lines:
        heredoc = re.fullmatch(r"cat > (\S+) <<'(\w+)'", line)
        if heredoc:
            yield (
                heredoc[1],
                "".join(f"{text}\n" for text in iter(functools.partial(next, lines), heredoc[2])),
            )
        elif line.strip():
            yield "", line


# The small tables of the README: other pages refer to them.
SAMPLES = {
    name: content
    for block in blocks(PAGES[0])
    for name, content in steps(block.text)
    if name in ("nodes.csv", "jobs.csv")
}


def tiny(command: str, arguments: list[str]) -> list[str]:
    """The same command with the least budget that still does everything."""
    for flag, value in TINY_FLAGS.items():
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
    if command == "bench":
        defaults = [part for flag in ("--num-envs", "--layers") for part in (flag, TINY_FLAGS[flag])]
        return [*defaults, *arguments, "--repeats", "1"]
    if command == "train" and "--resume" not in arguments:
        return [*arguments, *TINY_RUN.split()]
    return arguments


def execute(line: str) -> None:
    """``python -m jaxsched.COMMAND ...`` in this process, so that commands share compiled programs."""
    words = shlex.split(line)
    assert words[:2] == ["python", "-m"], f"not a command that can be tried out: {line}"
    command = words[2].removeprefix("jaxsched.")
    main = importlib.import_module(words[2]).main
    if "alibaba2023" in line:  # needs the real trace: tests of the scenario read it
        settings = read_yaml(train.config_path("alibaba2023"))
        assert load_scenario(fill(RunConfig, settings, line).scenario)
        return
    with pytest.raises(SystemExit) as end:
        cli.run(main, tiny(command, words[3:]))
    assert end.value.code == 0, line


@pytest.fixture(scope="module")
def shared_programs() -> Iterator[None]:
    """Training programs are compiled once for all pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "make_train", functools.cache(course.make_train))
        yield


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_page_says_works(page, tmp_path, monkeypatch, shared_programs):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(library, "_registered", dict(library._registered))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, content in SAMPLES.items():
        Path(name).write_text(content)
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text)
        if block.language == "python":
            exec(compile(block.text, f"{page.name}: python block", "exec"), {"__name__": "tests.block"})
        elif block.language == "bash":
            for name, content in steps(block.text):
                if name:
                    Path(name).write_text(content)
                elif content.split()[0] not in SETS_UP:
                    execute(content)


def test_every_command_is_shown():
    text = (ROOT / "README.md").read_text()
    for command in ("train", "tune", "evaluate", "simulate", "bench", "traces"):
        assert f"python -m jaxsched.{command}" in text
        parser = importlib.import_module(f"jaxsched.{command}").parser()
        row = next(line for line in text.splitlines() if line.startswith(f"| `{command}"))
        flags = {flag for flag in parser._option_string_actions if flag.startswith("--")} - {
            "--help",
            "--debug",
        }
        assert flags == set(re.findall(r"`(--[a-z-]+)", row)), command


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for block in blocks(page):
            for target in re.findall(r"^make ([\w-]+)", block.text, re.M):
                assert re.search(rf"^{target}:", makefile, re.M), f"{page.name}: make {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    pictures = "docs/images/"
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http", pictures)):
            assert (page.parent / target).exists(), target


def test_the_feature_tables_are_complete():
    text = (ROOT / "docs" / "learner.md").read_text()
    sections = re.findall(r"^### (\w+).*?\n\n((?:\|.*\n)+)", text, re.M)
    rows = {name: table.count("\n") - 2 for name, table in sections}
    assert rows == {
        "Job": features.JOB_FEATURES,
        "Node": features.NODE_FEATURES,
        "Pair": features.PAIR_FEATURES,
        "Context": features.CONTEXT_FEATURES,
    }


def test_the_metrics_columns_are_explained():
    text = (ROOT / "docs" / "learner.md").read_text().partition("## Reading metrics.csv")[2]
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.M)) == course.COLUMNS


def test_traces_stay_out_of_the_repository():
    assert "JAXSCHED_TRACES" in (ROOT / "README.md").read_text()
    assert not [path for path in (ROOT / "docs").rglob("*.csv") if os.path.getsize(path)]
