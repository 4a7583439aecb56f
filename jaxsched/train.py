"""``python -m jaxsched.train``: train the graph network, select it on validation, compare it on held-out windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxsched.cli import Parser, run
from jaxsched.config import fill, merge, parse_overrides, read_yaml
from jaxsched.errors import InputError, nearest

DEFAULT_CONFIG = "default"
PLAIN = ("scenario", "seed")  # settings that are flags of their own too
VALUED = ("--config", "--out", "--resume", *(f"--{name}" for name in PLAIN))


def parser() -> Parser:
    flags = Parser(
        prog="python -m jaxsched.train",
        description="Train the graph network by Double-DQN and compare it with the classical policies.",
        epilog="Any setting may follow as dotted.key=value, for instance learner.total_steps=1e5.",
    )
    flags.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file, or the name of a shipped one (default, smoke, alibaba2023)",
    )
    flags.add_argument(
        "--out", metavar="DIR", help="new folder for the results (default: outputs/train-SCENARIO-SEED)"
    )
    flags.add_argument("--scenario", metavar="NAME[@LOAD]", help="same as scenario=NAME")
    flags.add_argument("--seed", metavar="N", help="same as seed=N")
    flags.add_argument("--resume", metavar="DIR", help="go on with the run in this folder")
    return flags


def main(arguments: Sequence[str]) -> None:
    own, overrides = _split(arguments)
    flags = parser().parse_args(own)
    from jaxsched.runs.course import continue_run, start_run
    from jaxsched.runs.settings import RunConfig

    overrides += [f"{name}={value}" for name in PLAIN if (value := getattr(flags, name)) is not None]
    if flags.resume:
        if flags.config or flags.out or overrides:
            raise InputError(
                "--resume takes its settings and its folder from the run; give nothing beside it"
            )
        folder = Path(flags.resume)
        config = fill(RunConfig, read_yaml(folder / "config.yaml"), str(folder / "config.yaml"))
        continue_run(config, folder)
        return
    path = config_path(flags.config or DEFAULT_CONFIG)
    where = f"{path.name} and command line" if overrides else str(path)
    config = fill(RunConfig, merge(read_yaml(path), parse_overrides(overrides)), where)
    start_run(config, flags.out)


def config_path(name: str) -> Path:
    """A YAML file by path, or a shipped one by name."""
    import jaxsched

    package = Path(jaxsched.__file__).parent
    shipped = package / "configs" / "train"
    shipped = shipped if shipped.is_dir() else package.parent / "configs" / "train"
    path = Path(name)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return path
    if not (shipped / f"{name}.yaml").is_file():
        known = [each.stem for each in shipped.glob("*.yaml")]
        raise InputError(f"--config {name}: no such file and no shipped config; {nearest(name, known)}")
    return shipped / f"{name}.yaml"


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The parser's own arguments, and the dotted overrides (``a.b=c``, ``--a.b=c`` or ``--a.b c``)."""
    own: list[str] = []
    overrides: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name = argument.partition("=")[0]
        if argument.startswith("--") and "." in name:
            overrides.append(argument)
            if "=" not in argument and rest:
                overrides.append(rest.pop(0))
        elif not argument.startswith("-") and "=" in argument and not (own and own[-1] in VALUED):
            overrides.append(argument)
        else:
            own.append(argument)
    return own, overrides


if __name__ == "__main__":
    run(main)
