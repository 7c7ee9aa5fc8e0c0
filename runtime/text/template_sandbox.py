"""Where a checkpoint's chat template runs: Jinja's immutable sandbox, as transformers sets it up, with bounds.

Owns the environment and puts every loop round, call, operator and written text through the render's budget: a template
that runs, grows or asks for something large raises `TemplateLimitError` before it happens.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.visitor
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.text.template_budget import Budget, TemplateLimitError
from runtime.text.template_functions import (
    bounded_filters,
    bounded_tests,
    check_call,
    check_format,
    check_percent,
    listed,
)

MAX_INTEGER_BITS = 4096


class SandboxedTemplate:
    """A compiled chat template. Raises jinja2.TemplateError for source that does not compile."""

    def __init__(self, source: str) -> None:
        environment = _Environment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _GenerationTag],
            finalize=_written,
        )
        environment.filters = {
            **bounded_filters(),
            "_rounds": _rounds,
            "_joined": _joined,
            "_read": _read,
            "_made": _made,
        }
        environment.tests |= bounded_tests()
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        del environment.globals["lipsum"]
        self._template = environment.from_string(_with_bounds(environment, source))

    def render(self, variables: Mapping[str, Any], num_content_characters: int) -> str:
        """The text. `num_content_characters` is how much the variables hold: the result may be a multiple of it.

        Raises whatever the template's expressions raise, besides jinja2.TemplateError.
        """
        budget = Budget(num_content_characters)
        pieces, num_characters = [], 0
        for piece in self._template.generate({**variables, **budget.as_variable()}):
            num_characters += len(piece)
            budget.check_size(num_characters)
            pieces.append(piece)
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = Budget.of(context)
        budget.step()
        args = listed(args)
        if kwargs:
            kwargs = dict(zip(kwargs, listed(tuple(kwargs.values())), strict=True))
        if isinstance(called, LoopContext):
            # A recursive loop is called with what to loop over.
            args = tuple(_CountedIterable(values, budget) for values in args)
        check_call(budget, getattr(called, "__wrapped__", called), (*args, *kwargs.values()))
        return budget.made(super().call(context, called, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            check_format(value.__self__)
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = Budget.of(context)
        if operator == "**":
            raise TemplateLimitError("it uses powers")
        if operator == "*":
            _check_product(budget, left, right)
        if operator == "%" and isinstance(left, str):
            check_percent(budget, left, right)
        return budget.made(super().call_binop(context, operator, left, right))


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks training targets; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012  (the base class's type)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _with_bounds(environment: _Environment, source: str) -> nodes.Template:
    """The parsed template, changed so that what is no call and no operator takes from the budget too."""
    tree = _Bounder().visit(environment.parse(source))
    tree.set_environment(environment)
    return tree


class _Bounder(jinja2.visitor.NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (named by Jinja, as are the others)
        self.generic_visit(node)
        node.iter = _through("_rounds", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _through("_joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _through("_read", node.expr)
        return node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _through("_read", node.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        """A key is hashed, which goes through all of a tuple."""
        self.generic_visit(node)
        node.key = _through("_read", node.key)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _through("_made", node)
        node.arg = _through("_read", node.arg)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        return _through("_made", nodes.Const(node.data, lineno=node.lineno))


def _through(name: str, expression: nodes.Node) -> nodes.Filter:
    return nodes.Filter(expression, name, [], [], None, None, lineno=expression.lineno)


@jinja2.pass_context
def _rounds(context: Context, values: Iterable[Any]) -> Any:
    if isinstance(values, jinja2.Undefined):
        return values
    return _CountedIterable(values, Budget.of(context))


@jinja2.pass_context
def _joined(context: Context, values: list[Any]) -> str:
    budget = Budget.of(context)
    budget.check_size(budget.read([value for value in values if not isinstance(value, jinja2.Undefined)]))
    return budget.made("".join(map(str, values)))


@jinja2.pass_context
def _read(context: Context, value: Any) -> Any:
    Budget.of(context).read(value)
    return value


@jinja2.pass_context
def _made(context: Context, value: Any) -> Any:
    return Budget.of(context).made(value)


@jinja2.pass_context
def _written(context: Context, value: Any) -> Any:
    """Every value on its way into the text."""
    Budget.of(context).read(value)
    return value


class _CountedIterable:
    """An iterable that takes a step of the budget per item, and knows its length where the original does."""

    def __init__(self, values: Iterable[Any], budget: Budget) -> None:
        self._values: Any = values if hasattr(values, "__len__") else budget.made(list(values))
        self._budget = budget

    def __iter__(self) -> Iterator[Any]:
        for value in self._values:
            self._budget.step()
            yield value

    def __len__(self) -> int:
        return len(self._values)


def _check_product(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
            raise TemplateLimitError("it computes with endless numbers")
        return
    lengths = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
    counts = [value for value in (left, right) if isinstance(value, int)]
    budget.check_size(max(lengths, default=0) * max(counts, default=0))


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().strftime(date_format)
