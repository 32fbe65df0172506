"""What a subject may be by its annotation, so that a ``match`` over all of it has no way past it.

Only what is declared counts, as for the type checkers: a parameter that is never given another
value, or an annotated attribute. Alternatives are classes, literals and members of enumerations.
"""

import ast
from collections.abc import Iterator

from ownership.lint.annotations import Annotations
from ownership.lint.hierarchy import Hierarchy
from ownership.lint.index import ClassInfo, FunctionInfo, Module
from ownership.lint.types import NONE, Instance, Type, members, without_none

__all__ = ["Alternative", "alternatives", "declared", "is_covered"]

Alternative = Instance | tuple[str, object]
"""A class; or a value by the name of its class: a literal, or the name of a member."""

_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum"})
_PROMOTED = frozenset({"float", "complex"})
"""Annotations that admit what is no instance of them."""


def declared(
    subject: ast.expr, base: Type, function: FunctionInfo, found: Hierarchy
) -> list[Alternative] | None:
    """The alternatives of a subject; None where nobody has declared them.

    Args:
        subject: of a ``match``.
        base: type of what it is an attribute of.
        function: where it stands.
        found: the classes.
    """
    match subject:
        case ast.Name(id=name):
            return _of_parameter(name, function, found.annotations)
        case ast.Attribute(attr=name):
            return _of_attribute(name, base, found)
        case _:
            return None


def _of_parameter(
    name: str, function: FunctionInfo, annotations: Annotations
) -> list[Alternative] | None:
    parameter = next((one for one in function.parameters if one.arg == name), None)
    if parameter is None or parameter.annotation is None:
        return None
    for node in ast.walk(function.node):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return None
    return alternatives(parameter.annotation, function.module, annotations)


def _of_attribute(name: str, base: Type, found: Hierarchy) -> list[Alternative] | None:
    (kind, *others) = members(without_none(base))
    if others or not isinstance(kind, Instance):
        return None
    for info, _ in found.ancestry(kind):
        field = info.fields.get(name)
        assigned = found.assignments(info).get(name)
        annotation = field.annotation if field is not None else assigned and assigned[1]
        if annotation is not None:
            return alternatives(annotation, info.module, found.annotations)
    return None


def alternatives(
    node: ast.expr, module: Module, annotations: Annotations
) -> list[Alternative] | None:
    """All that an annotation admits; None where it can't be told."""
    match node:
        case ast.BinOp(op=ast.BitOr()):
            left = alternatives(node.left, module, annotations)
            right = alternatives(node.right, module, annotations)
            return None if left is None or right is None else left + right
        case ast.Constant(value=None):
            return [_literal(None)]
        case ast.Subscript() if annotations.qualified(node.value, module) == "typing.Literal":
            nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            literals = [_literal(one.value) for one in nodes if isinstance(one, ast.Constant)]
            return list(literals) if len(literals) == len(nodes) else None
        case ast.Name() | ast.Attribute():
            return _of_class(annotations.read(node, module)[0])
        case _:
            return None


def _of_class(kind: Type) -> list[Alternative] | None:
    found: list[Alternative] = []
    for one in members(kind):
        if not isinstance(one, Instance) or one.name in _PROMOTED:
            return None
        values = [] if one.info is None else list(_values(one.info))
        if one == NONE:
            found.append(_literal(None))
        else:
            found += [(one.name, value) for value in values] or [one]
    return found


def _values(info: ClassInfo) -> Iterator[str]:
    """The names of an enumeration's members; none for any other class."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in info.node.bases}
    if bases.isdisjoint(_ENUMS):
        return
    for node in info.node.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass


def _literal(value: object) -> tuple[str, object]:
    return "None" if value is None else type(value).__name__, value


def is_covered(
    one: Alternative, pattern: ast.pattern, function: FunctionInfo, found: Hierarchy
) -> bool:
    """Whether a pattern takes all of an alternative; it has no guard."""
    match pattern:
        case ast.MatchOr():
            return any(is_covered(one, inner, function, found) for inner in pattern.patterns)
        case ast.MatchAs(pattern=inner):
            return inner is None or is_covered(one, inner, function, found)
        case ast.MatchSingleton(value=value) | ast.MatchValue(value=ast.Constant(value=value)):
            return one == _literal(value)
        case ast.MatchValue(value=ast.Attribute(value=owner, attr=name)):
            return one == (found.annotations.qualified(owner, function.module), name)
        case ast.MatchClass(patterns=[]):
            kind = found.annotations.read(pattern.cls, function.module, function.owner)[0]
            is_whole = all(
                isinstance(inner, ast.MatchAs) and inner.pattern is None
                for inner in pattern.kwd_patterns
            )
            return is_whole and any(_is_one(one, each, found) for each in members(kind))
        case _:
            return False


def _is_one(one: Alternative, kind: Type, found: Hierarchy) -> bool:
    if not isinstance(kind, Instance):
        return False
    if isinstance(one, Instance):
        return found.is_subclass(one, kind.name) is True
    return one[0] == kind.name
