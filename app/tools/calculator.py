"""Arithmetic, exactly: numbers, + - * / // % **, brackets, a few functions. Evaluates no code and no huge number."""

import ast
import math
import operator
from collections.abc import Callable
from fractions import Fraction

from app.tools.registry import Arguments, Scope, Tool, ToolError, text_schema

CALCULATOR = text_schema(
    "calculator", "Evaluate an arithmetic expression.", expression="The expression, for example (3 + 4) * 2"
)
MAX_CHARS = 1000
MAX_BITS = 4096
"""Of any number on the way; 2**4096 has 1,234 digits."""
_INVALID = "invalid expression"
_TOO_LARGE = "the result is too large"
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**"})

Number = Fraction | float
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    "abs": lambda x: x if x >= 0 else -x, "round": lambda x: Fraction(round(x)),
    "floor": lambda x: Fraction(math.floor(x)), "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "ln": math.log,
    "ceil": lambda x: Fraction(math.ceil(x)), "log10": math.log10, "log2": math.log2,
    "sin": math.sin, "cos": math.cos, "tan": math.tan,
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e}


def calculator() -> Tool:
    """The built-in tool."""
    return Tool(CALCULATOR, "none", _run)


async def _run(arguments: Arguments, _: Scope) -> str:
    return calculate(arguments["expression"])


def calculate(expression: str) -> str:
    """The value, exact where it has few digits, else to 12. Raises ToolError."""
    text = expression.translate(_SPELLINGS).strip().rstrip("=").strip()
    if not text or len(text) > MAX_CHARS:
        raise ToolError(_INVALID)
    try:
        return _written(_value(ast.parse(text, mode="eval").body))
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:
        raise ToolError(_TOO_LARGE) from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(_INVALID) from None


def _value(node: ast.AST) -> Number:
    match node:
        case ast.Constant(value=bool()):
            raise ToolError(_INVALID)
        case ast.Constant(value=int() | float()):
            # A decimal fraction means what is written, not the nearest binary one.
            return _bounded(Fraction(str(node.value)))
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.BinOp(op=ast.Pow()):
            return _bounded(_power(_value(node.left), _value(node.right)))
        case ast.BinOp() if type(node.op) in _BINARY:
            return _bounded(_BINARY[type(node.op)](_value(node.left), _value(node.right)))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](_value(argument)))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
    raise ToolError(_INVALID)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent) > MAX_BITS:
            raise OverflowError
        return base**exponent.numerator
    power = float(base) ** float(exponent)
    if isinstance(power, complex):
        raise ToolError(_INVALID)
    return power


def _bounded(value: Number) -> Number:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise OverflowError
    elif not math.isfinite(value):
        raise OverflowError
    return value


def _written(value: Number) -> str:
    if isinstance(value, Fraction) and value.denominator == 1:
        return str(value.numerator)
    text = f"{float(value):.12g}"
    return text.removesuffix(".0")
