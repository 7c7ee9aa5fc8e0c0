"""Where a checkpoint's chat template runs: Jinja's immutable sandbox, as transformers sets it up, with bounds.

Owns the environment and the bounds on work and size: a template that loops or grows without end raises
`TemplateLimitError`. Every loop round and call is counted; so is the length of every joined or multiplied text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.visitor
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

OWN_STEPS = 200_000
"""Loop rounds and calls a template may make, besides one per character of its content."""
OWN_CHARACTERS = 1_000_000
MAX_GROWTH = 8
"""Characters a template may write, besides so many times its content."""
_BUDGET = " budget"
"""Context key of the render's budget; the space keeps it out of a template's reach."""


class TemplateLimitError(jinja2.TemplateError):
    """The template does not end or writes without bound."""


@dataclass
class _Budget:
    """What one rendering may still do."""

    steps: int
    max_characters: int

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TemplateLimitError("it does not come to an end")

    def check_size(self, num_characters: int) -> None:
        if num_characters > self.max_characters:
            raise TemplateLimitError("it writes without end")


class SandboxedTemplate:
    """A compiled chat template. Raises jinja2.TemplateError for source that does not compile."""

    def __init__(self, source: str) -> None:
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
        )
        environment.filters |= {"tojson": _tojson, "_bounded": _bounded, "_joined": _joined}
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self._template = environment.from_string(_with_bounds(environment, source))

    def render(self, variables: Mapping[str, Any], num_content_characters: int) -> str:
        """The text. `num_content_characters` is how much the variables hold: the result may be a multiple of it.

        Raises whatever the template's expressions raise, besides jinja2.TemplateError.
        """
        budget = _Budget(OWN_STEPS + num_content_characters, OWN_CHARACTERS + MAX_GROWTH * num_content_characters)
        pieces, num_characters = [], 0
        for piece in self._template.generate({**variables, _BUDGET: budget}):
            num_characters += len(piece)
            budget.check_size(num_characters)
            pieces.append(piece)
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        _budget_of(context).step()
        return super().call(context, called, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _budget_of(context).check_size(_product_size(left, right))
        if operator == "**":
            raise TemplateLimitError("it uses powers")
        result = super().call_binop(context, operator, left, right)
        _budget_of(context).check_size(_size(result))
        return result


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks training targets; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012  (the base class's type)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _with_bounds(environment: _Environment, source: str) -> nodes.Template:
    """The parsed template, changed to count every loop round and every `~`."""
    tree = environment.parse(source)
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, "_bounded", [], [], None, None, lineno=loop.lineno)
    tree = _ConcatBounder().visit(tree)
    tree.set_environment(environment)
    return tree


class _ConcatBounder(jinja2.visitor.NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  (named by Jinja)
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), "_joined", [], [], None, None, lineno=node.lineno)


def _budget_of(context: Context) -> _Budget:
    return context.parent[_BUDGET]


@jinja2.pass_context
def _bounded(context: Context, values: Iterable[Any]) -> Any:
    if isinstance(values, jinja2.Undefined):
        return values
    return _CountedIterable(values, _budget_of(context))


@jinja2.pass_context
def _joined(context: Context, values: list[Any]) -> str:
    budget = _budget_of(context)
    texts = [str(value) for value in values]
    budget.check_size(sum(map(len, texts)))
    return "".join(texts)


class _CountedIterable:
    """An iterable that takes a step of the budget per item, and knows its length where the original does."""

    def __init__(self, values: Iterable[Any], budget: _Budget) -> None:
        self._values = values if hasattr(values, "__len__") else list(values)
        self._budget = budget

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            self._budget.step()
            yield value

    def __len__(self) -> int:
        return len(self._values)  # type: ignore[arg-type]


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _product_size(left: Any, right: Any) -> int:
    sizes = [_size(left), _size(right)]
    counts = [count for count in (left, right) if isinstance(count, int)]
    return max(sizes) * max(counts, default=0)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter it leaves HTML characters alone."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().strftime(date_format)
