"""Classes and their bases, and what their methods assign to attributes of ``self``."""

import ast
from collections.abc import Iterator, Mapping

from ownership.lint.annotations import Annotations
from ownership.lint.index import ClassInfo, FunctionInfo
from ownership.lint.types import Instance, Type, Variable, substitute

__all__ = ["Assigned", "Hierarchy", "receiver_of"]

Assigned = tuple[FunctionInfo, ast.expr | None, ast.expr | None]
"""The method, the annotation and the value of an assignment to an attribute."""

_DEEPEST = 8


class Hierarchy:
    """Bases, each with what its type variables stand for."""

    def __init__(self, annotations: Annotations) -> None:
        self.annotations = annotations
        self.names = annotations.names
        self._assigned: dict[str, Mapping[str, Assigned]] = {}

    def ancestry(
        self, instance: Instance, depth: int = 0
    ) -> Iterator[tuple[ClassInfo, dict[str, Type]]]:
        """A class and its bases, each with what its type variables stand for."""
        info = instance.info
        if info is None or depth > _DEEPEST:
            return
        bases = [(base, self.annotations.read(base, info.module)[0]) for base in info.node.bases]
        variables = [
            arg.name
            for _, kind in bases
            if isinstance(kind, Instance)
            for arg in kind.args
            if isinstance(arg, Variable)
        ]
        by = dict(zip(dict.fromkeys(variables), instance.args, strict=False))
        yield info, by
        for base in [substitute(kind, by) for _, kind in bases]:
            if isinstance(base, Instance):
                yield from self.ancestry(base, depth + 1)

    def is_subclass(self, instance: Instance, name: str) -> bool | None:
        """Whether instances are also of the class ``name``; None when a base is not known."""
        if instance.name == name:
            return True
        if instance.info is None:
            return None if "." in instance.name or "." in name else False
        return any(info.qualified == name for info, _ in self.ancestry(instance))

    def assignments(self, info: ClassInfo) -> Mapping[str, Assigned]:
        """What methods assign to attributes of ``self``; annotated ones and ``__init__`` first."""
        if info.qualified not in self._assigned:
            found: dict[str, Assigned] = {}
            for method in sorted(
                info.methods.values(), key=lambda method: method.name != "__init__"
            ):
                for target, annotation, value in _self_assignments(method):
                    if annotation is not None or target not in found:
                        found[target] = method, annotation, value
            self._assigned[info.qualified] = found
        return self._assigned[info.qualified]


def receiver_of(function: FunctionInfo) -> str | None:
    """The name of a method's receiver: ``self``."""
    if function.owner is None or {"staticmethod", "classmethod"} & set(function.decorators):
        return None
    return function.parameters[0].arg if function.parameters else None


def _self_assignments(
    method: FunctionInfo,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    receiver = receiver_of(method)
    for node in ast.walk(method.node):
        pairs: list[tuple[ast.expr, ast.expr | None, ast.expr | None]] = []
        if isinstance(node, ast.AnnAssign):
            pairs.append((node.target, node.annotation, node.value))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs += (
                        (one, None, value)
                        for one, value in zip(target.elts, node.value.elts, strict=False)
                    )
                else:
                    pairs.append((target, None, node.value))
        for target, annotation, value in pairs:
            match target:
                case ast.Attribute(value=ast.Name(id=name)) if name == receiver:
                    yield target.attr, annotation, value
                case _:
                    pass
