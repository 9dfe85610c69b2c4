"""The expressions of notes: conditions, and values in the text.

Jinja parses an expression, as it parses templates, but does not run it. This module evaluates the
few kinds of syntax that notes need (calls of the functions of `lmperf.reporting.notes.functions`,
comparisons, arithmetic, filters that format a number) and rejects all others. So a note can neither
loop nor build a long text, and it reaches no object of Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.parser import Parser

from lmperf.reporting.numbers import Spread, fixed, listed, ranged
from lmperf.reporting.templates import FORMS, load_templates
from lmperf.statistics import FASTER, SAME, SLOWER

VERDICTS = (FASTER, SLOWER, SAME)
FILTERS = {**FORMS, "fixed": fixed}
_ARITHMETIC = {
    nodes.Add: operator.add,
    nodes.Sub: operator.sub,
    nodes.Mul: operator.mul,
    nodes.Div: operator.truediv,
}
_TOO_DEEP = "the expression is nested too deeply"


class WrongExpression(Exception):
    """A fault of an expression that its author must correct, and its line in the file."""

    def __init__(self, message: str, line: int = 0):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Number:
    """A number of the evidence, and the ends of its interval if it has one."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(value: float) -> Number:
        """A number without an interval."""
        return Number(float(value), float(value), float(value))


# What an expression gives: one number or verdict, or several if a call lists values of an axis.
Values = tuple[Number, ...] | tuple[str, ...]
# Name, positional and keyword arguments -> the values; raises WrongExpression.
Call = Callable[[str, Sequence[Any], dict[str, Any]], Values]


def holds(condition: str, line: int, call: Call) -> bool:
    """Whether a condition is true.

    A comparison of several values or of intervals is true if it is true of every value and over the
    whole interval. Both sides of ``and`` and ``or`` are always evaluated, so that a wrong
    expression never stays hidden.

    Args:
        line: the line of the file on which the condition starts.
        call: calls a function of notes.
    """

    def parse(source: str) -> nodes.Expr:
        parser = Parser(load_templates(), source, state="variable")
        found = parser.parse_expression()
        if not parser.stream.eos:
            raise WrongExpression("holds: must be one condition", line)
        return found

    return _guarded(condition, line, lambda source: _Evaluator(call).truth(parse(source)))


def filled(text: str, line: int, call: Call) -> str:
    """The text of a note with its expressions replaced by formatted numbers and verdicts.

    Args:
        line: the line of the file on which the text starts.
        call: calls a function of notes.
    """

    def fill(source: str) -> str:
        evaluator, parts = _Evaluator(call), []
        for output in load_templates().parse(source).body:
            if not isinstance(output, nodes.Output):
                raise WrongExpression("a note holds {{ values }}, but no {% %}", output.lineno)
            for node in output.nodes:
                is_text = isinstance(node, nodes.TemplateData)
                parts.append(node.data if is_text else evaluator.words(node))
        return "".join(parts).strip()

    return _guarded(text, line, fill)


def _guarded(source: str, line: int, evaluate: Callable[[str], Any]) -> Any:
    """The result of ``evaluate`` on the source, moved to its line; faults as WrongExpression."""
    try:
        return evaluate("\n" * (line - 1) + source)
    except TemplateSyntaxError as error:
        raise WrongExpression(error.message or "cannot be read", error.lineno) from None
    except (ValueError, ArithmeticError) as error:  # a number with thousands of digits; x / 0
        raise WrongExpression(str(error), line) from None
    except RecursionError:
        raise WrongExpression(_TOO_DEEP, line) from None


@dataclass(frozen=True)
class _Evaluator:
    """Evaluates the syntax trees of expressions."""

    call: Call

    def truth(self, node: nodes.Expr) -> bool:
        """The truth of a condition."""
        match node:
            case nodes.And():
                left, right = self.truth(node.left), self.truth(node.right)
                return left and right
            case nodes.Or():
                left, right = self.truth(node.left), self.truth(node.right)
                return left or right
            case nodes.Compare():
                sides = [node.expr, *(operand.expr for operand in node.ops)]
                if not any(_reads(side) for side in sides):
                    raise WrongExpression("the comparison reads no evidence", node.lineno)
                values = [self.values(side) for side in sides]
                pairs = zip(node.ops, values, values[1:], strict=False)
                return all([_compared(*pair) for pair in pairs])
        raise WrongExpression(
            "holds: must be a comparison, such as speedup(...) < 1; and, or join several",
            node.lineno,
        )

    def words(self, node: nodes.Expr) -> str:
        """The words of an expression in the text: a formatted number, a range, or a verdict."""
        if not isinstance(node, nodes.Filter):
            values = self.values(node)
            if not all(isinstance(value, str) for value in values):
                names = listed(sorted(FILTERS))
                raise WrongExpression(
                    f"format the number by a filter, {{{{ ... | ratio }}}}; there are {names}",
                    node.lineno,
                )
            return listed(dict.fromkeys(values))
        if node.name not in FILTERS:
            names = listed(sorted(FILTERS))
            raise WrongExpression(f"no filter {node.name}; there are {names}", node.lineno)
        if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            raise WrongExpression(f"the filter {node.name} takes no arguments", node.lineno)
        numbers = (_number(value, node).value for value in self.values(node.node))
        return ranged(Spread.of(numbers), FILTERS[node.name])

    def values(self, node: nodes.Expr) -> Values:
        """The numbers or verdicts that an expression gives."""
        match node:
            case nodes.Const(value=str()):
                if node.value not in VERDICTS:
                    known = listed(VERDICTS)
                    raise WrongExpression(
                        f'no verdict "{node.value}"; there are {known}', node.lineno
                    )
                return (node.value,)
            case nodes.List() | nodes.Tuple():
                return tuple(one for item in node.items for one in self.values(item))
            case nodes.Const(value=int() | float()) if not isinstance(node.value, bool):
                return (Number.of(node.value),)
            case nodes.Neg():
                return (Number.of(-self.single(node.node)),)
            case nodes.Add() | nodes.Sub() | nodes.Mul() | nodes.Div():
                left, right = self.single(node.left), self.single(node.right)
                return (Number.of(_ARITHMETIC[type(node)](left, right)),)
            case nodes.Call():
                return self.called(node)
            case nodes.Filter():
                raise WrongExpression("a filter stands at the end, in the text only", node.lineno)
        raise WrongExpression(
            "only calls, numbers, verdicts, comparisons and + - * / are possible here", node.lineno
        )

    def single(self, node: nodes.Expr) -> float:
        """The number on one side of an arithmetic operation."""
        values = self.values(node)
        if len(values) != 1:
            raise WrongExpression("arithmetic takes one number on each side", node.lineno)
        return _number(values[0], node).value

    def called(self, node: nodes.Call) -> Values:
        """What a function of notes returns."""
        names = [keyword.key for keyword in node.kwargs]
        if not isinstance(node.node, nodes.Name) or node.dyn_args or node.dyn_kwargs:
            raise WrongExpression("only functions of notes can be called", node.lineno)
        if repeated := {name for name in names if names.count(name) > 1}:
            words = f"{node.node.name}: {listed(sorted(repeated))} is given twice"
            raise WrongExpression(words, node.lineno)
        given = [_argument(one) for one in node.args]
        named = {keyword.key: _argument(keyword.value) for keyword in node.kwargs}
        try:
            return self.call(node.node.name, given, named)
        except WrongExpression as error:
            raise WrongExpression(str(error), node.lineno) from None


def _reads(node: nodes.Expr) -> bool:
    """Whether an expression calls a function."""
    return isinstance(node, nodes.Call) or node.find(nodes.Call) is not None


def _argument(node: nodes.Expr) -> Any:
    """The value of an argument: a text, a number, a truth value, or a list of these."""
    match node:
        case nodes.Const(value=str() | int() | float()):
            return node.value
        case nodes.List() if node.items:
            return [_argument(item) for item in node.items]
    raise WrongExpression("an argument is a text, a number, true or false, or a list", node.lineno)


def _number(value: Number | str, node: nodes.Expr) -> Number:
    if isinstance(value, str):
        raise WrongExpression(f"{value} is a verdict, not a number", node.lineno)
    return value


def _compared(operand: nodes.Operand, left: Values, right: Values) -> bool:
    """Whether a comparison is true of every pair of values."""
    if len({isinstance(value, str) for value in (*left, *right)}) > 1:
        raise WrongExpression("a number cannot be compared with a verdict", operand.expr.lineno)
    if operand.op in ("in", "notin"):
        return all((one in right) == (operand.op == "in") for one in left)
    if isinstance(left[0], str) and operand.op not in ("eq", "ne"):
        raise WrongExpression("compare a verdict by ==, != or in", operand.expr.lineno)
    return all(_COMPARED[operand.op](one, other) for one in left for other in right)


# Of numbers with intervals: true only if true of each of their values.
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": lambda one, other: one.high < other.low,
    "lteq": lambda one, other: one.high <= other.low,
    "gt": lambda one, other: one.low > other.high,
    "gteq": lambda one, other: one.low >= other.high,
}
