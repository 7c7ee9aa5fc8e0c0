"""Filters, tests and text methods a chat template may use, each with a check of what it would make before it runs.

Refuses what has no use in a prompt and could be large: other filters do not exist, other methods of texts are unsafe.
"""

import json
import re
import string
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from runtime.text.template_budget import Budget, TemplateLimitError, surface

_NAVIGATING = frozenset({
    *("attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
    *("reverse", "select", "selectattr"),
})  # fmt: skip
"""Filters that look at a value's items, not into them."""
_READING = frozenset({
    *("abs", "capitalize", "center", "dictsort", "e", "escape", "float", "format", "indent", "int", "join", "lower"),
    *("max", "min", "replace", "round", "safe", "sort", "string", "title", "trim", "unique", "upper", "wordcount"),
})  # fmt: skip
_SHRINKING_METHODS = frozenset({
    *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal"),
    *("isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "lower"),
    *("lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip"),
    *("split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
})  # fmt: skip
_ABOUT_THE_ENVIRONMENT = frozenset({"filter", "test"})
_MAX_INDENT = 16
_MAX_PRECISION = 32
_MAX_FIELD = 999
"""Width and precision of a formatted value: three digits at most."""
_SMALL_CONVERSION = re.compile(r"%(\([^)]*\))?[-+ #0]*\d{0,3}(\.\d{0,3})?[hlL]?[a-zA-Z%]")
_JINJA = ImmutableSandboxedEnvironment()
"""Where the functions behind the checks come from."""


def bounded_filters() -> dict[str, Callable[..., Any]]:
    """All filters, by name."""
    return {name: _bounded_filter(name) for name in _NAVIGATING | _READING} | {"tojson": _tojson}


def bounded_tests() -> dict[str, Callable[..., Any]]:
    """All tests, by name."""
    return {name: _bounded_test(name) for name in _JINJA.tests if name not in _ABOUT_THE_ENVIRONMENT}


def check_call(budget: Budget, function: Any, arguments: tuple[Any, ...]) -> None:
    """Before a global function, or a method of a text, list or mapping is called. The template's own macros pass."""
    if isinstance(function, Macro):
        return
    owner = getattr(function, "__self__", None)
    weight = budget.read(arguments)
    if not isinstance(owner, str):
        budget.spend(surface(owner))
        return
    name = function.__name__
    weight += budget.read(owner)
    if name in ("format", "format_map"):
        budget.check_size(len(owner) + owner.count("{") * (weight + _MAX_FIELD))
    elif name == "join":
        budget.check_size(weight + len(owner) * len(arguments[0]))
    elif name in _GROWTH:
        budget.check_size(_GROWTH[name](owner, *arguments))
    elif name not in _SHRINKING_METHODS:
        raise SecurityError(f"str.{name} is unsafe in a template")


def check_format(text: str) -> None:
    """Refuse format() of a text whose fields are wide, or as wide as an argument says."""
    for _, _, spec, _ in string.Formatter().parse(text):
        if spec and ("{" in spec or re.search(r"\d{4}", spec)):
            raise TemplateLimitError("it formats without bound")


def check_percent(budget: Budget, text: str, values: Any) -> None:
    """Before `text % values`."""
    if "%" in _SMALL_CONVERSION.sub("", text):
        raise TemplateLimitError("it formats without bound")
    weight = budget.read(text) + budget.read(values)
    budget.check_size(len(text) + text.count("%") * (weight + _MAX_FIELD))


def listed(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with what can be gone through only once as a list."""
    return tuple(list(value) if isinstance(value, Iterator) else value for value in values)


def _padded(text: str, width: int = 80, *_: Any) -> int:
    return max(len(text), width)


def _replaced(text: str, old: str, new: str, count: int | None = -1) -> int:
    found = text.count(old)
    num_replaced = found if count is None or count < 0 else min(count, found)
    return len(text) + num_replaced * len(new)


def _expanded(text: str, tab_size: int = 8) -> int:
    return len(text) + text.count("\t") * tab_size


def _indented(text: str, width: int | str = 4, *_: Any) -> int:
    return len(text) + (len(text.splitlines()) + 1) * (len(width) if isinstance(width, str) else width)


_GROWTH: dict[str, Callable[..., int]] = {
    "center": _padded, "ljust": _padded, "rjust": _padded, "zfill": _padded,
    "replace": _replaced, "expandtabs": _expanded, "indent": _indented,
}  # fmt: skip
"""The largest size of what a method or filter makes of a text and its other arguments."""


def _bounded_filter(name: str) -> Callable[..., Any]:
    @jinja2.pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = Budget.of(context)
        budget.step()
        (value, *rest), options = listed((value, *args)), dict(zip(kwargs, listed(tuple(kwargs.values())), strict=True))
        if name in _NAVIGATING:
            budget.spend(surface(value))
        else:
            _check_filter(budget, name, value, rest, options)
        return budget.made(_JINJA.call_filter(name, value, rest, options, context))

    return run


def _check_filter(budget: Budget, name: str, value: Any, args: list[Any], options: dict[str, Any]) -> None:
    given = [*args, *options.values()]
    weight = budget.read(value) + budget.read(given)
    if name == "join":
        separators = sum(len(item) for item in given if isinstance(item, str))
        budget.check_size(weight + separators * (surface(value) + 1))
    elif name == "format":
        check_percent(budget, str(value), given)
    elif name == "round":
        if any(isinstance(item, int) and abs(item) > _MAX_PRECISION for item in given):
            raise TemplateLimitError("it formats without bound")
    elif name in _GROWTH:
        budget.check_size(_GROWTH[name](str(value), *args, *options.values()))


def _bounded_test(name: str) -> Callable[..., Any]:
    @jinja2.pass_context
    def run(context: Context, value: Any, *args: Any) -> bool:
        budget = Budget.of(context)
        budget.step()
        if args:
            budget.read((value, args))
        else:
            budget.spend(surface(value))
        return _JINJA.call_test(name, value, args, context=context)

    return run


@jinja2.pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter it leaves HTML characters alone."""
    budget = Budget.of(context)
    budget.step()
    (value,) = listed((value,))
    spaces = indent or 0
    if not isinstance(spaces, int) or spaces > _MAX_INDENT or len("".join(separators or ())) > _MAX_INDENT:
        raise TemplateLimitError("it formats without bound")
    budget.check_size(budget.read(value, spaces))
    return budget.made(
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )
