"""`where` and `when`: conditions on a point, as arithmetic and comparisons, and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from experiments.border import brief
from experiments.errors import PlanError
from experiments.records import AxisValue
from kernels.near_names import nearest

Value = AxisValue | tuple[AxisValue, ...]

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.In,
    ast.NotIn,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Tuple,
    ast.List,
    *_ARITHMETIC,
    *_ORDER,
)
_REMEDY = "Use names, numbers, + - * / // %, comparisons, in, and, or, not."


class Constraint:
    """One condition. PlanError if it holds anything but arithmetic, comparisons and booleans.

    `field` is where the plan has it, for messages.
    """

    def __init__(self, text: str, field: str = "where") -> None:
        self.text = text
        self._field = field
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._error("is not an expression", _REMEDY) from error
        for node in ast.walk(self._tree):
            plain = not isinstance(node, ast.Constant) or isinstance(
                node.value, str | int | float | bool | None
            )
            if not isinstance(node, _ALLOWED) or not plain:
                raise self._error(f"may not hold {type(node).__name__}", _REMEDY)

    @property
    def names(self) -> set[str]:
        """The names that it reads."""
        return {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}

    def holds(self, values: Mapping[str, AxisValue]) -> bool:
        """True where the point meets it. PlanError for an unknown name or unlike operands."""
        try:
            result = self._value(self._tree, values)
        except RecursionError as error:
            raise self._error("is nested too deeply", "Write it as several conditions.") from error
        if not isinstance(result, bool):
            raise self._error(f"gives {result!r}, not true or false", "Compare it with something.")
        return result

    def _value(self, node: ast.expr, values: Mapping[str, AxisValue]) -> Value:
        match node:
            case ast.Constant():
                return node.value  # type: ignore[return-value]  # checked when built
            case ast.Name():
                return self._named(node.id, values)
            case ast.Tuple() | ast.List():
                return tuple(self._value(one, values) for one in node.elts)  # type: ignore[misc]
            case ast.BoolOp():
                return self._boolean(node, values)
            case ast.UnaryOp():
                return self._unary(node, values)
            case ast.BinOp():
                return self._arithmetic(node, values)
            case ast.Compare():
                return self._comparison(node, values)
        raise AssertionError(f"{type(node).__name__} was let through")

    def _named(self, name: str, values: Mapping[str, AxisValue]) -> AxisValue:
        if name not in values:
            raise self._error(f"names {name!r}, which no point has", nearest(name, values))
        return values[name]

    def _boolean(self, node: ast.BoolOp, values: Mapping[str, AxisValue]) -> bool:
        wanted = isinstance(node.op, ast.Or)
        return (
            wanted
            if any(self._truth(one, values) is wanted for one in node.values)
            else (not wanted)
        )

    def _truth(self, node: ast.expr, values: Mapping[str, AxisValue]) -> bool:
        value = self._value(node, values)
        if not isinstance(value, bool):
            raise self._error(f"uses {value!r} as true or false", "Compare it with something.")
        return value

    def _unary(self, node: ast.UnaryOp, values: Mapping[str, AxisValue]) -> AxisValue:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand, values)
        return -self._number(node.operand, values)

    def _arithmetic(self, node: ast.BinOp, values: Mapping[str, AxisValue]) -> float:
        left, right = self._number(node.left, values), self._number(node.right, values)
        try:
            return _ARITHMETIC[type(node.op)](left, right)
        except (ZeroDivisionError, OverflowError) as error:
            raise self._error(f"cannot be computed: {error}", None) from error

    def _comparison(self, node: ast.Compare, values: Mapping[str, AxisValue]) -> bool:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if not self._compare(op, left, right, values):
                return False
            left = right
        return True

    def _compare(
        self, op: ast.cmpop, left: ast.expr, right: ast.expr, values: Mapping[str, AxisValue]
    ) -> bool:
        if type(op) in _ORDER:
            return _ORDER[type(op)](self._number(left, values), self._number(right, values))
        one, other = self._value(left, values), self._value(right, values)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(other, tuple):
                raise self._error("has `in` without a list", "Write e.g. `draft_length in [0, 5]`.")
            return (one in other) is isinstance(op, ast.In)
        return (one == other) is isinstance(op, ast.Eq)

    def _number(self, node: ast.expr, values: Mapping[str, AxisValue]) -> float:
        value = self._value(node, values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            name = ast.unparse(node)
            raise self._error(
                f"needs a number and {name} is {value!r}",
                f"Give {name} a number under engine or axes." if value is None else None,
            )
        return value

    def _error(self, what: str, remedy: str | None) -> PlanError:
        return PlanError(what, where=f"{self._field}: {brief(self.text)}", remedy=remedy)
