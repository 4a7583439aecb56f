"""YAML and command-line text -> frozen dataclasses, with every mistake named.

Each room defines its own frozen config; this file only fills them. Text is read by the type of the
field that receives it, not by what YAML guesses, so ``1e6`` is an integer where one is wanted and
``no`` is never silently true.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import yaml

from jaxsched.errors import InputError, nearest

T = TypeVar("T")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises InputError for a missing, broken or non-mapping file."""
    file = Path(path)
    if not file.is_file():
        siblings = [p.name for p in file.parent.glob("*.yaml")] if file.parent.is_dir() else []
        hint = f"; {nearest(file.name, siblings)}" if siblings else ""
        raise InputError(f"{file}: no such file{hint}")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected 'key: value' lines, found a {type(content).__name__}")
    return content


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """``learner.lr=1e-3``, ``--learner.lr=1e-3`` and ``--learner.lr 1e-3`` -> a nested mapping of texts."""
    nested: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key, equals, value = argument.removeprefix("--").partition("=")
        if not equals:
            if not argument.startswith("--") or not rest or rest[0].startswith("--"):
                raise InputError(f"{argument}: expected key=value")
            value = rest.pop(0)
        _set(nested, key.replace("-", "_").split("."), value, argument)
    return nested


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over`` on top, level by level."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both_nested = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(below, value) if both_nested else value
    return merged


def fill(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass ``cls`` from ``mapping``; ``where`` names its source in messages.

    Missing keys take the field's default. Raises InputError for unknown keys (with the nearest known
    one), for values of a wrong type, for missing keys without default, and for what ``cls`` itself
    refuses by raising ValueError in ``__post_init__``.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in mapping:
        if key not in fields:
            raise InputError(f"{where}: unknown key {str(key)!r}; {nearest(str(key), fields)}")
    values = {key: convert(hints[key], value, f"{where}: {key}") for key, value in mapping.items()}
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise InputError(f"{where}: missing key {name!r}")
    try:
        return cls(**values)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def convert(kind: Any, value: Any, where: str) -> Any:
    """``value`` (YAML value or command-line text) as the annotated type ``kind``, or InputError."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(typing.get_args(kind), value, where)
    if origin is typing.Literal:
        return _convert_literal(typing.get_args(kind), value, where)
    if origin is tuple:
        return _convert_tuple(typing.get_args(kind), value, where)
    if origin in (dict, Mapping) or kind is dict:
        return _convert_dict(typing.get_args(kind), value, where)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected keys and values, found {value!r}")
        return fill(typing.cast(type, kind), value, where)
    parsers = {bool: parse_bool, int: parse_int, float: parse_float, str: parse_str}
    try:
        return parsers[kind](value)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def parse_bool(value: Any) -> bool:
    """true or false in any case. Raises ValueError otherwise: the text "no" is not a boolean."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"expected true or false, found {value!r}")


def parse_int(value: Any) -> int:
    """A whole number; the texts ``1e6`` and ``1_000_000`` are one too. Raises ValueError otherwise."""
    if isinstance(value, bool):
        raise ValueError(f"expected a whole number, found {value!r}")
    try:
        number = Decimal(str(value).strip())
        exact = number.is_finite() and number == number.to_integral_value()
    except InvalidOperation:
        exact = False
    if not exact:
        raise ValueError(f"expected a whole number, found {value!r}")
    return int(number)


def parse_float(value: Any) -> float:
    """A finite number. Raises ValueError otherwise."""
    if not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if abs(number) < float("inf"):
            return number
    raise ValueError(f"expected a number, found {value!r}")


def parse_str(value: Any) -> str:
    """Text; a bare YAML number is taken as it prints. Raises ValueError for anything nested."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"expected text, found {value!r}")


def to_mapping(config: Any) -> Any:
    """Plain dicts, lists and scalars of a config, as YAML and JSON take them."""
    if dataclasses.is_dataclass(config):
        return {f.name: to_mapping(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {key: to_mapping(value) for key, value in config.items()}
    if isinstance(config, tuple | list):
        return [to_mapping(value) for value in config]
    return config


def to_yaml(config: Any) -> str:
    """YAML text that ``fill`` turns back into an equal config."""
    return yaml.safe_dump(to_mapping(config), sort_keys=False, allow_unicode=True)


def _set(nested: dict[str, Any], keys: list[str], value: str, argument: str) -> None:
    for key in keys[:-1]:
        nested = nested.setdefault(key, {})
        if not isinstance(nested, dict):
            raise InputError(f"{argument}: {key!r} was already given a value")
    if not all(keys) or isinstance(nested.get(keys[-1]), dict):
        raise InputError(f"{argument}: expected key=value")
    nested[keys[-1]] = value


def _convert_union(members: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
        if type(None) in members:
            return None
        raise InputError(f"{where}: expected a value, found nothing")
    problems = []
    for member in members:
        if member is not type(None):
            try:
                return convert(member, value, where)
            except InputError as error:
                problems.append(error)
    raise problems[0]


def _convert_literal(options: tuple[Any, ...], value: Any, where: str) -> Any:
    for option in options:
        if str(option) == str(value):
            return option
    raise InputError(f"{where}: unknown value {value!r}; {nearest(str(value), map(str, options))}")


def _convert_tuple(members: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    items = [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise InputError(f"{where}: expected a list, found {value!r}")
    if len(members) == 2 and members[1] is Ellipsis:
        kinds = (members[0],) * len(items)
    elif len(members) == len(items):
        kinds = members
    else:
        raise InputError(f"{where}: expected {len(members)} values, found {len(items)}")
    return tuple(
        convert(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, items, strict=True))
    )


def _convert_dict(members: tuple[Any, ...], value: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected keys and values, found {value!r}")
    key_kind, value_kind = members or (Any, Any)
    return {convert(key_kind, k, where): convert(value_kind, v, f"{where}: {k}") for k, v in value.items()}
