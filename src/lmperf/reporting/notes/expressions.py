"""The expressions of notes: conditions, and values in the text.

Jinja parses an expression, as it parses templates, but does not run it. This module evaluates the
few kinds of syntax that notes need (calls of the functions of `lmperf.reporting.notes.functions`,
comparisons, arithmetic, filters that format a number) and rejects all others. So a note can neither
loop nor build a long text, and it reaches no object of Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Expressions:
    """Evaluates the expressions of one note.

    Attributes:
        call: calls a function of notes.
        names: name -> values, for the names that the note defines.
    """

    call: Call
    names: dict[str, Values] = field(default_factory=dict)

    def define(self, name: str, expression: str, line: int) -> None:
        """Give a name to what an expression gives; ``line``: its line in the file."""

        def evaluate(source: str) -> Values:
            return self.values(_require_evidence(_expression(source, line)))

        self.names[name] = _guarded(expression, line, evaluate)

    def holds(self, condition: str, line: int) -> bool:
        """Whether a condition is true; ``line``: its line in the file.

        A comparison of several values or of intervals is true if it is true of every value and over
        the whole interval. Both sides of ``and`` and ``or`` are always evaluated, so that a wrong
        expression never stays hidden.
        """
        return _guarded(condition, line, lambda text: self.truth(_expression(text, line)))

    def filled(self, text: str, line: int) -> str:
        """A text with its expressions replaced by numbers and verdicts; ``line``: its first."""
        return _guarded(text, line, lambda source: self._filled(_template(source, line)))

    def _filled(self, template: nodes.Template) -> str:
        parts = []
        for output in template.body:
            if not isinstance(output, nodes.Output):
                raise WrongExpression("a note holds {{ values }}, but no {% %}", output.lineno)
            for node in output.nodes:
                is_text = isinstance(node, nodes.TemplateData)
                parts.append(node.data if is_text else self.words(node))
        return "".join(parts).strip()

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
                _require_evidence(node)
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
            case nodes.List() if node.items and not node.find(nodes.List | nodes.Name):
                return tuple(one for item in node.items for one in self.values(item))
            case nodes.Const(value=int() | float()) if not isinstance(node.value, bool):
                return (Number.of(node.value),)
            case nodes.Neg():
                return (_calculated(operator.sub, Number.of(0), self.single(node.node)),)
            case nodes.Add() | nodes.Sub() | nodes.Mul() | nodes.Div():
                left, right = self.single(node.left), self.single(node.right)
                return (_calculated(_ARITHMETIC[type(node)], left, right),)
            case nodes.Call():
                return self.called(node)
            case nodes.Name():
                if node.name not in self.names:
                    known = f"it defines {listed(self.names)}" if self.names else "it defines none"
                    words = f"the note defines no {node.name}; {known}"
                    raise WrongExpression(words, node.lineno)
                return self.names[node.name]
            case nodes.Filter():
                raise WrongExpression("a filter stands at the end, in the text only", node.lineno)
        raise WrongExpression(
            "here are only calls, names, numbers, verdicts and + - * / possible", node.lineno
        )

    def single(self, node: nodes.Expr) -> Number:
        """The number on one side of an arithmetic operation."""
        values = self.values(node)
        if len(values) != 1:
            raise WrongExpression("arithmetic takes one number on each side", node.lineno)
        return _number(values[0], node)

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
            error.line = node.lineno
            raise


def _guarded(source: str, line: int, evaluate: Callable[[str], Any]) -> Any:
    """The result of ``evaluate`` on the source, moved to its line; faults as WrongExpression."""
    try:
        return evaluate("\n" * (line - 1) + source)
    except TemplateSyntaxError as error:
        raise WrongExpression(f"cannot be read: {error.message}", error.lineno) from None
    except ArithmeticError as error:
        raise WrongExpression(str(error), line) from None
    except RecursionError:
        raise WrongExpression("the expression is nested too deeply", line) from None


def _expression(source: str, line: int) -> nodes.Expr:
    """The syntax tree of a source that is one expression."""

    def parse(parser: Parser) -> nodes.Expr:
        found = parser.parse_expression()
        if not parser.stream.eos:
            raise WrongExpression("must be one expression", line)
        return found

    return _parsed(parse, source, line, state="variable")


def _template(source: str, line: int) -> nodes.Template:
    """The syntax tree of a text with expressions in {{ }}."""
    return _parsed(Parser.parse, source, line)


def _parsed(parse: Callable[[Parser], Any], source: str, line: int, **state: str) -> Any:
    try:
        return parse(Parser(load_templates(), source, **state))
    except ValueError as error:  # a number with thousands of digits
        raise WrongExpression(str(error), line) from None


def _require_evidence(node: nodes.Expr) -> nodes.Expr:
    """The expression; raises WrongExpression if it has neither a call nor a name."""
    if not isinstance(node, nodes.Name) and node.find(nodes.Name) is None:
        raise WrongExpression("the expression reads no evidence", node.lineno)
    return node


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


def _calculated(how: Callable[[float, float], float], left: Number, right: Number) -> Number:
    """The result of an operation, and the ends of all that it gives for values of the intervals."""
    if how is operator.truediv and right.low <= 0 <= right.high:
        raise ZeroDivisionError("division by zero")
    ends = [how(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Number(how(left.value, right.value), min(ends), max(ends))


def _compared(operand: nodes.Operand, left: Values, right: Values) -> bool:
    """Whether a comparison is true of every pair of values."""
    if len({isinstance(value, str) for value in (*left, *right)}) > 1:
        raise WrongExpression("a number cannot be compared with a verdict", operand.expr.lineno)
    if operand.op in ("in", "notin"):
        none = all(_differ(one, other) for one in left for other in right)
        each = all(any(_equal(one, other) for other in right) for one in left)
        return each if operand.op == "in" else none
    if isinstance(left[0], str) and operand.op not in ("eq", "ne"):
        raise WrongExpression("compare a verdict by ==, != or in", operand.expr.lineno)
    return all(_COMPARED[operand.op](one, other) for one in left for other in right)


def _equal(one: Number | str, other: Number | str) -> bool:
    return one == other and (isinstance(one, str) or one.low == one.high)


def _differ(one: Number | str, other: Number | str) -> bool:
    if isinstance(one, str):
        return one != other
    return one.high < other.low or one.low > other.high


# Of numbers with intervals: true only if true of each of their values.
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": _equal,
    "ne": _differ,
    "lt": lambda one, other: one.high < other.low,
    "lteq": lambda one, other: one.high <= other.low,
    "gt": lambda one, other: one.low > other.high,
    "gteq": lambda one, other: one.low >= other.high,
}
