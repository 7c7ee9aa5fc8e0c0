"""Frozen dataclasses as JSON and back, checked field by field against their types. Trusts no input, guesses nothing."""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")


class ShapeError(ValueError):
    """A value is not what its type says; the message names the place: 'messages[3].role must be one of user, tool'."""


def to_plain(value: Any) -> Any:
    """Dicts, lists and plain values of a dataclass; fields that have their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: to_plain(getattr(value, f.name)) for f in fields if getattr(value, f.name) != f.default}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(
    kind: type[Value], plain: Any, place: str = "it", clean_text: Callable[[str], str] = str, **given: Any
) -> Value:
    """A dataclass of what `to_plain` made; `given` are fields that the input may not have.

    Every text, keys of free-form objects included, goes through `clean_text`. Raises ShapeError.
    """
    if not isinstance(plain, dict):
        raise ShapeError(f"{place} must be an object")
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name not in given}  # type: ignore[arg-type]
    for name in plain:
        if name not in fields:
            raise ShapeError(f"{place} has an unknown field {name[:40]!r}")
    for name, field in fields.items():
        if name not in plain and field.default is field.default_factory is dataclasses.MISSING:
            raise ShapeError(f"{place} lacks {name}")
    values = {name: _read(hints[name], plain[name], f"{place}.{name}", clean_text) for name in fields if name in plain}
    return kind(**values, **given)


def _read(hint: Any, plain: Any, place: str, clean_text: Callable[[str], str]) -> Any:
    origin, options = get_origin(hint), get_args(hint)
    if hint is Any:
        return _free_form(plain, place, clean_text)
    if origin is Literal:
        if plain not in options or isinstance(plain, bool):
            raise ShapeError(f"{place} must be one of {', '.join(map(str, options))}")
        return plain
    if origin in (Union, types.UnionType):
        return _read_union(options, plain, place, clean_text)
    if origin is tuple:
        return _read_tuple(options, plain, place, clean_text)
    if origin is dict:
        if not isinstance(plain, dict):
            raise ShapeError(f"{place} must be an object")
        return _free_form(plain, place, clean_text)
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, plain, place, clean_text)  # type: ignore[arg-type]
    return _read_scalar(hint, plain, place, clean_text)


def _read_union(options: tuple[Any, ...], plain: Any, place: str, clean_text: Callable[[str], str]) -> Any:
    if plain is None and type(None) in options:
        return None
    failures = []
    for option in options:
        if option is not type(None):
            try:
                return _read(option, plain, place, clean_text)
            except ShapeError as error:
                failures.append(error)
    raise failures[0]


def _read_tuple(options: tuple[Any, ...], plain: Any, place: str, clean_text: Callable[[str], str]) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise ShapeError(f"{place} must be a list")
    is_open = len(options) == 2 and options[1] is Ellipsis
    if not is_open and len(plain) != len(options):
        raise ShapeError(f"{place} must have {len(options)} items")
    hints = options[:1] * len(plain) if is_open else options
    return tuple(
        _read(hint, item, f"{place}[{i}]", clean_text) for i, (hint, item) in enumerate(zip(hints, plain, strict=True))
    )


def _read_scalar(hint: Any, plain: Any, place: str, clean_text: Callable[[str], str]) -> Any:
    accepted: Mapping[Any, tuple[tuple[type, ...], str]] = {
        str: ((str,), "a text"),
        bool: ((bool,), "true or false"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
    }
    types_accepted, words = accepted[hint]
    if not isinstance(plain, types_accepted) or (isinstance(plain, bool) and hint is not bool):
        raise ShapeError(f"{place} must be {words}")
    if hint is float:
        return _finite(plain, place)
    return clean_text(plain) if isinstance(plain, str) else plain


def _finite(number: Any, place: str) -> float:
    try:
        if math.isfinite(value := float(number)):
            return value
    except OverflowError:
        pass
    raise ShapeError(f"{place} must be a finite number")


def _free_form(plain: Any, place: str, clean_text: Callable[[str], str]) -> Any:
    if isinstance(plain, str):
        return clean_text(plain)
    if isinstance(plain, float):
        return _finite(plain, place)
    if isinstance(plain, list):
        return [_free_form(item, place, clean_text) for item in plain]
    if isinstance(plain, dict):
        return {clean_text(key): _free_form(item, place, clean_text) for key, item in plain.items()}
    return plain
