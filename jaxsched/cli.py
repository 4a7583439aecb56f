"""The shell that all entry points share: argument errors, exit codes, number types for flags.

Exit codes: 0 done; 2 the user's input is wrong (one line, no traceback without ``--debug``); 1 our fault.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from jaxsched.config import parse_int
from jaxsched.errors import InputError, nearest


class _Help(argparse.HelpFormatter):
    """Shows a default where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, argparse.SUPPRESS) or "%(default)" in (action.help or "")
        return action.help if silent else f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line, with the nearest flag for a misspelt one."""

    def __init__(self, **options: Any):
        super().__init__(allow_abbrev=False, formatter_class=_Help, **options)
        self.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks of input errors"
        )

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        parsed, rest = self.parse_known_args(args, namespace)
        for argument in rest:
            if argument.startswith("-"):
                flag = argument.partition("=")[0]
                self.error(f"unknown flag {flag}; {nearest(flag, self._option_string_actions)}")
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return parsed

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def whole(minimum: int = 1) -> Callable[[str], int]:
    """A flag type: a whole number of at least ``minimum``; 1e6 and 1_000_000 are ones too."""

    def parse(text: str) -> int:
        try:
            number = parse_int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if number < minimum:
            raise argparse.ArgumentTypeError(f"expected at least {minimum}, found {text!r}")
        return number

    return parse


def exact_seconds(text: str) -> Fraction:
    """A flag type: a moment or a length in seconds, as exact as it is written."""
    try:
        return Fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {text!r}") from error


def names(text: str) -> list[str]:
    """A flag type: a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def wholes(text: str) -> list[int]:
    """A flag type: a comma-separated list of whole numbers of at least 1."""
    return [whole()(name) for name in names(text)]


def output_folder(path: str | Path) -> Path:
    """Makes the folder for results, or says in one line why that cannot be."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot make this folder: {error.strerror}") from error
    return folder


def run(main: Callable[[Sequence[str]], None], arguments: Sequence[str] | None = None) -> NoReturn:
    """Calls ``main`` with the command line and leaves the process with the agreed exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        main(given)
        sys.stdout.flush()
    except InputError as error:
        if "--debug" in given:
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)
