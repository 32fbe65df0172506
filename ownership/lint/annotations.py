"""Annotations to types and marks: ``Consume[...]``, ``Owns[...]``, aliases, strings, generics."""

import ast
import builtins
from typing import Final, Literal

from ownership.lint.index import ClassInfo, FunctionInfo, Module
from ownership.lint.resolve import Defined, Names
from ownership.lint.types import ANY, NONE, Class, Instance, ModuleRef, Type, Variable, union

__all__ = ["Annotations", "MarkName", "Marked"]

MarkName = Literal["", "consume", "owns"]
Marked = tuple[Type, MarkName]

_MARKS: Final[dict[str, MarkName]] = {
    "ownership.marks.Consume": "consume",
    "ownership.marks.Owns": "owns",
}
_WRAPPERS: Final = frozenset(
    {
        "Final",
        "ClassVar",
        "Required",
        "NotRequired",
        "ReadOnly",
        "Annotated",
        "Awaitable",
        "Coroutine",
    }
)
_OPAQUE: Final = frozenset({"Literal", "Callable", "Any", "LiteralString", "Concatenate", "Never"})
_UNKNOWN: Final[Marked] = (ANY, "")


class Annotations:
    """Reads annotations in the module that they stand in, each once."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._known: dict[tuple[int, str], Marked] = {}
        self._nodes: list[ast.expr] = []
        """Kept, so that the identity of each stays its own."""

    def read(self, node: ast.expr | None, module: Module, owner: ClassInfo | None = None) -> Marked:
        """The type and the mark of an annotation."""
        if node is None:
            return _UNKNOWN
        key = id(node), owner.qualified if owner is not None else ""
        if key not in self._known:
            self._nodes.append(node)
            self._known[key] = _UNKNOWN  # An alias that names itself ends here.
            self._known[key] = self._read(node, module, owner)
        return self._known[key]

    def _read(self, node: ast.expr, module: Module, owner: ClassInfo | None) -> Marked:
        match node:
            case ast.Constant(value=None):
                return NONE, ""
            case ast.Constant(value=str(text)):
                return self._string(text, module, owner)
            case ast.BinOp(op=ast.BitOr()):
                left, right = (
                    self.read(node.left, module, owner),
                    self.read(node.right, module, owner),
                )
                return union(left[0], right[0]), left[1] or right[1]
            case ast.Subscript():
                return self._subscript(node, module, owner)
            case ast.Name() | ast.Attribute():
                return self._name(node, module, owner)
            case _:
                return _UNKNOWN

    def _string(self, text: str, module: Module, owner: ClassInfo | None) -> Marked:
        try:
            return self._read(ast.parse(text, mode="eval").body, module, owner)
        except SyntaxError:
            return _UNKNOWN

    def _name(self, node: ast.expr, module: Module, owner: ClassInfo | None) -> Marked:
        found = self.names.expression(module, node)
        if found is None and isinstance(node, ast.Name):
            if owner is not None and node.id in owner.nested:
                return instance_of(owner.nested[node.id]), ""
            return (Instance(node.id), "") if hasattr(builtins, node.id) else _UNKNOWN
        return self.meaning(found, owner)

    def meaning(self, found: Defined | None, owner: ClassInfo | None = None) -> Marked:
        """The type that a definition stands for, where an annotation names it."""
        if isinstance(found, ClassInfo):
            return instance_of(found), ""
        if isinstance(found, str):
            short = found.rpartition(".")[2]
            if short == "Self" and owner is not None:
                return instance_of(owner), ""
            if short in _OPAQUE or short == "Self":
                return _UNKNOWN
            return Instance(found), ""
        if not isinstance(found, tuple):
            return _UNKNOWN
        variable, module, name = found
        if isinstance(variable.value, ast.Call):
            made = ast.unparse(variable.value.func).rpartition(".")[2]
            if made in {"TypeVar", "ParamSpec", "TypeVarTuple"}:
                return Variable(name), ""
            return (Instance(f"{module.name}.{name}"), "") if made == "NewType" else _UNKNOWN
        return self.read(variable.value, module)

    def _subscript(self, node: ast.Subscript, module: Module, owner: ClassInfo | None) -> Marked:
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = self.qualified(node.value, module)
        short = name.rpartition(".")[2]
        if name in _MARKS:
            return self.read(arguments[0], module, owner)[0], _MARKS[name]
        if short in {"Optional", "Union"}:
            read = [self.read(argument, module, owner) for argument in arguments]
            kinds = [kind for kind, _ in read] + ([NONE] if short == "Optional" else [])
            marks: list[MarkName] = [mark for _, mark in read if mark]
            return union(*kinds), marks[0] if marks else ""
        if short in _WRAPPERS:
            kind, mark = self.read(arguments[-1 if short == "Coroutine" else 0], module, owner)
            return kind, mark or (_mark_in(arguments[1:]) if short == "Annotated" else "")
        if short in _OPAQUE:
            return _UNKNOWN
        kinds = [
            self.read(argument, module, owner)[0]
            for argument in arguments
            if not _is_dots(argument)
        ]
        if name in {"type", "typing.Type"}:
            return (Class(kinds[0]), "") if isinstance(kinds[0], Instance) else _UNKNOWN
        base = self.read(node.value, module, owner)[0]
        if isinstance(base, Instance):
            return Instance(base.name, tuple(kinds), base.info), ""
        return _UNKNOWN

    def qualified(self, node: ast.expr, module: Module) -> str:
        """The dotted name of a definition; a bare name for a builtin."""
        found = self.names.expression(module, node)
        if isinstance(found, ClassInfo | FunctionInfo):
            return found.qualified
        if isinstance(found, tuple):
            return f"{found[1].name}.{found[2]}"
        if isinstance(found, ModuleRef):
            return found.name
        return found or (node.id if isinstance(node, ast.Name) else "")


def instance_of(info: ClassInfo, args: tuple[Type, ...] = ()) -> Instance:
    """The type of a class's instances."""
    return Instance(info.qualified, args, info)


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _mark_in(metadata: list[ast.expr]) -> MarkName:
    for node in metadata:
        if isinstance(node, ast.Attribute) and node.attr in {"CONSUME", "OWNS"}:
            return "consume" if node.attr == "CONSUME" else "owns"
    return ""
