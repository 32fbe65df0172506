"""What an attribute is, and what a call gives: looked up by type, never by name alone."""

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from ownership.lint.annotations import Annotations, MarkName, instance_of
from ownership.lint.hierarchy import Assigned, Hierarchy, receiver_of
from ownership.lint.index import ClassInfo, FunctionInfo, Module
from ownership.lint.resolve import Defined
from ownership.lint.types import (
    ANY,
    Class,
    Function,
    Instance,
    ModuleRef,
    Type,
    Union_,
    Variable,
    elements_of,
    members,
    substitute,
    union,
    without_none,
)

__all__ = ["Member", "Members", "Parameter"]

Scope = Callable[[str], Type | None]


@attrs.frozen
class Member:
    """An attribute: of which sort, which type, and what it is marked with."""

    sort: Literal["field", "property", "method", "class"]
    type: Type
    mark: MarkName = ""
    owner: ClassInfo | None = None
    is_declared: bool = False


@attrs.frozen
class Parameter:
    """One parameter of a call."""

    name: str
    type: Type
    mark: MarkName
    is_variadic: bool = False
    field: str | None = None
    """The field that a generated ``__init__`` stores it in."""


class Members(Hierarchy):
    """Attributes and results by type."""

    def __init__(self, annotations: Annotations) -> None:
        super().__init__(annotations)
        self._inferring: set[tuple[str, str]] = set()
        self._named: dict[tuple[str, str], Type] = {}
        self._members: dict[tuple[Instance, str], Member | None] = {}

    # Classes

    def member(self, instance: Instance, name: str) -> Member | None:
        """An attribute of an instance."""
        key = instance, name
        if key not in self._members:
            self._members[key] = None
            self._members[key] = self._member(instance, name)
        return self._members[key]

    def _member(self, instance: Instance, name: str) -> Member | None:
        for info, by in self.ancestry(instance):
            if name in info.fields:
                kind, mark = self.annotations.read(info.fields[name].annotation, info.module, info)
                mark = "owns" if name in info.carries else mark
                return Member("field", substitute(kind, by), mark, info, is_declared=True)
            if name in info.methods:
                method = info.methods[name]
                if method.is_property:
                    kind = self.annotations.read(method.node.returns, info.module, info)[0]
                    return Member("property", substitute(kind, by), "", info)
                return Member("method", Function(method, instance), "", info)
            if name in info.nested:
                return Member("class", Class(instance_of(info.nested[name])))
        # What a class declares counts before what one of its bases or heirs assigns.
        for info, by in self.ancestry(instance):
            assigned = self.assignments(info).get(name)
            if assigned is not None:
                return self._assigned_member(info, assigned, by)
        return None

    def _assigned_member(
        self,
        info: ClassInfo,
        assigned: Assigned,
        by: Mapping[str, Type],
    ) -> Member:
        method, annotation, value = assigned
        if annotation is not None:
            kind, mark = self.annotations.read(annotation, info.module, info)
            return Member("field", substitute(kind, by), mark, info, is_declared=True)
        kind = ANY if value is None else self.infer(value, self.scope(method, info), info.module)
        return Member("field", substitute(kind, by), "", info)

    # Expressions, as far as types go

    def scope(self, function: FunctionInfo, owner: ClassInfo) -> Scope:
        """The types of a method's parameters."""
        kinds = {
            parameter.arg: self.annotations.read(
                parameter.annotation, function.module, function.owner
            )[0]
            for parameter in function.parameters
        }
        kinds[receiver_of(function) or ""] = instance_of(owner)
        return kinds.get

    def infer(self, node: ast.expr, scope: Scope, module: Module) -> Type:
        """The type of an expression, without following what is assigned before it."""
        match node:
            case ast.Name(id=name):
                return scope(name) or self.named(name, module)
            case ast.Attribute():
                return self.attribute(self.infer(node.value, scope, module), node.attr)
            case ast.Call():
                callee = self.infer(node.func, scope, module)
                return self.result(callee, [self.infer(arg, scope, module) for arg in node.args])
            case ast.Subscript():
                base = self.infer(node.value, scope, module)
                if isinstance(base, Class):
                    return Class(self._subscripted(node, base, module))
                return elements_of(base)
            case ast.Await() | ast.NamedExpr():
                return self.infer(node.value, scope, module)
            case ast.IfExp():
                return union(
                    self.infer(node.body, scope, module), self.infer(node.orelse, scope, module)
                )
            case ast.BoolOp():
                return self.infer(node.values[-1], scope, module)
            case ast.Constant(value=None):
                return Instance("None")
            case _:
                return ANY

    def _subscripted(self, node: ast.Subscript, base: Class, module: Module) -> Instance:
        kind = self.annotations.read(node, module)[0]
        return kind if isinstance(kind, Instance) else base.instance

    def named(self, name: str, module: Module) -> Type:
        """What a module's name is, as a value."""
        key = module.name, name
        if key not in self._named:
            found = self.names.find(module, name)
            if found is not None:
                self._named[key] = self.defined(found)
            else:
                self._named[key] = Class(Instance(name)) if hasattr(builtins, name) else ANY
        return self._named[key]

    def defined(self, found: Defined | None) -> Type:
        """What a definition is, as a value."""
        if isinstance(found, ClassInfo):
            return Class(instance_of(found))
        if isinstance(found, FunctionInfo):
            return Function(found)
        if isinstance(found, ModuleRef):
            return found
        if isinstance(found, str):
            return Class(Instance(found))
        if found is None:
            return ANY
        variable, module, _ = found
        if variable.annotation is not None:
            return self.annotations.read(variable.annotation, module)[0]
        key = "", str(id(variable))
        if variable.value is None or key in self._inferring:
            return ANY
        self._inferring.add(key)
        try:
            return self.infer(variable.value, lambda _: None, module)
        finally:
            self._inferring.discard(key)

    def attribute(self, kind: Type, name: str) -> Type:
        """The type of ``value.name``; ``None`` is assumed away."""
        found: list[Type] = []
        for member in members(without_none(kind)):
            if isinstance(member, ModuleRef):
                found.append(self.defined(self.names.member(member.name, name)))
            elif isinstance(member, Instance):
                attribute = self.member(member, name)
                found.append(attribute.type if attribute is not None else _opaque(member, name))
            elif isinstance(member, Class):
                attribute = self.member(member.instance, name)
                found.append(
                    attribute.type if attribute is not None else _opaque(member.instance, name)
                )
            else:
                return ANY
        return union(*found)

    def result(self, callee: Type, arguments: Sequence[Type]) -> Type:
        """The type of what a call gives."""
        if isinstance(callee, Class):
            return callee.instance
        if isinstance(callee, Union_):
            return union(*(self.result(member, arguments) for member in callee.members))
        if not isinstance(callee, Function):
            return ANY
        info = callee.info
        kind = self.annotations.read(info.node.returns, info.module, info.owner)[0]
        return substitute(kind, self._bindings(callee, arguments))

    def _bindings(self, callee: Function, arguments: Sequence[Type]) -> dict[str, Type]:
        by: dict[str, Type] = {}
        if callee.receiver is not None:
            for info, bound in self.ancestry(callee.receiver):
                if info is callee.info.owner:
                    by.update(bound)
        direct: dict[str, Type] = {}
        for parameter, given in zip(self.parameters(callee), arguments, strict=False):
            _bind(parameter.type, given, direct if isinstance(parameter.type, Variable) else by)
        # What is given as the variable itself says more than what is given around it.
        return by | direct

    # Parameters

    def parameters(self, callee: Function) -> list[Parameter]:
        """The parameters of a function, without the receiver of a bound method."""
        info = callee.info
        read = self.annotations.read
        found = [
            Parameter(arg.arg, *read(arg.annotation, info.module, info.owner))
            for arg in info.parameters
        ]
        is_bound = callee.receiver is not None or "classmethod" in info.decorators
        if info.owner is not None and "staticmethod" not in info.decorators and is_bound:
            del found[:1]
        variadic = info.node.args.vararg
        if variadic is not None:
            position = max(0, len(found) - len(info.node.args.kwonlyargs))
            marked = read(variadic.annotation, info.module, info.owner)
            found.insert(position, Parameter(variadic.arg, *marked, is_variadic=True))
        return found

    def init_parameters(self, instance: Instance) -> list[Parameter] | None:
        """The parameters of a class's ``__init__``, written or generated; None when unknown."""
        if instance.info is None:
            return None
        init = self.member(instance, "__init__")
        if init is not None and isinstance(init.type, Function):
            return self.parameters(init.type)
        found: list[Parameter] = []
        for info, by in reversed(list(self.ancestry(instance))):
            if info.makes_init:
                for name, field in info.fields.items():
                    kind, mark = self.annotations.read(field.annotation, info.module, info)
                    if not _is_class_variable(field):
                        mark = "owns" if name in info.carries else mark
                        kind = substitute(kind, by)
                        found.append(Parameter(name.lstrip("_"), kind, mark, field=name))
        return found


def _opaque(instance: Instance, name: str) -> Type:
    """An attribute of a class that is not read: a class or function by its dotted name."""
    return (
        Class(Instance(f"{instance.name}.{name}"))
        if instance.info is None and "." in instance.name
        else ANY
    )


def _bind(expected: Type, given: Type, by: dict[str, Type]) -> None:
    if isinstance(expected, Variable):
        by.setdefault(expected.name, given)
    elif isinstance(expected, Instance) and isinstance(given, Instance):
        for inner, outer in zip(expected.args, given.args, strict=False):
            _bind(inner, outer, by)


def _is_class_variable(field: ast.AnnAssign) -> bool:
    text = ast.unparse(field.annotation)
    has_no_init = isinstance(field.value, ast.Call) and any(
        keyword.arg == "init"
        and isinstance(keyword.value, ast.Constant)
        and not keyword.value.value
        for keyword in field.value.keywords
    )
    return "ClassVar" in text or has_no_init
