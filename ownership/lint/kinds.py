"""Which types are followed, and in which condition a value of such a type begins."""

import ast
from collections.abc import Iterator
from typing import Literal

import attrs

from ownership.lint.config import Config
from ownership.lint.index import ClassInfo, FunctionInfo
from ownership.lint.members import Members
from ownership.lint.state import Fact, Status
from ownership.lint.types import CONTAINERS, Instance, Type, elements_of, members

__all__ = ["Kind", "Kinds"]

Kind = Literal["handle", "named", "ending", "message", "container"]


@attrs.define(eq=False)
class Ends:
    """What a configuration says of one function: which argument it ends; None: the receiver."""

    parameter: str | None = None


class Kinds:
    """Sorts types; remembers every answer."""

    def __init__(self, config: Config, found: Members) -> None:
        self.members = found
        self._handles = {self._canonical(name) for name in config.handles}
        self._named = {self._canonical(name) for name in config.names} & self._handles
        self._linear = [self._canonical(name) for name in config.linear]
        self._usable = {self._method(name) for name in config.usable_after}
        self._methods: set[str] = set()
        self._functions: dict[str, str] = {}
        self._ending: set[str] = set()
        for entry in config.consuming:
            self._declare(entry)
        self._known: dict[Type, Kind | None] = {}

    def _canonical(self, name: str) -> str:
        found = self.members.names.locate(name)
        if isinstance(found, ClassInfo | FunctionInfo):
            return found.qualified
        return found if isinstance(found, str) else name

    def _method(self, name: str) -> str:
        owner, _, method = name.rpartition(".")
        return f"{self._canonical(owner)}.{method}"

    def _declare(self, entry: str) -> None:
        name, _, parameter = entry.partition(":")
        owner, _, _ = name.rpartition(".")
        found = self.members.names.locate(owner)
        is_class = isinstance(found, ClassInfo) or (
            isinstance(found, str) and owner.rpartition(".")[2][:1].isupper()
        )
        if is_class and not parameter:
            self._methods.add(self._method(name))
            self._ending.add(self._canonical(owner))
        else:
            self._functions[self._canonical(name)] = parameter

    def ends_receiver(self, receiver: Instance, method: str) -> bool:
        """Whether a configured method ends the object that it is called on."""
        return self._declares(receiver, method, self._methods)

    def usable_after(self, receiver: Instance, method: str) -> bool:
        """Whether a method may still be called on what has ended."""
        return self._declares(receiver, method, self._usable)

    def _declares(self, receiver: Instance, method: str, table: set[str]) -> bool:
        if f"{receiver.name}.{method}" in table:
            return True
        return any(
            f"{info.qualified}.{method}" in table for info, _ in self.members.ancestry(receiver)
        )

    def ended_parameter(self, function: str) -> str | None:
        """The parameter that a configured function ends; empty for its first."""
        return self._functions.get(function)

    def kind(self, kind: Type) -> Kind | None:
        """How one alternative is followed; None: not at all."""
        if not isinstance(kind, Instance):
            return None
        if kind not in self._known:
            self._known[kind] = None
            self._known[kind] = self._sort(kind)
        return self._known[kind]

    def _sort(self, kind: Instance) -> Kind | None:
        if kind.name in self._named:
            return "named"
        if kind.name in self._handles:
            return "handle"
        if kind.name in CONTAINERS:
            inside = {self.kind(member) for member in members(elements_of(kind))} - {None}
            return "container" if inside - {"ending"} else None
        if kind.info is not None:
            for info, _ in self.members.ancestry(kind):
                if info.carries:
                    return "message"
                if info.qualified in self._ending:
                    return "ending"
        return "ending" if kind.name in self._ending else None

    def is_followed(self, kind: Type) -> bool:
        """Whether any alternative is."""
        return any(self.kind(member) is not None for member in members(kind))

    def handle_name(self, kind: Type) -> str | None:
        """The short name of a handle class among the alternatives."""
        for member in members(kind):
            if isinstance(member, Instance) and self.kind(member) in {"handle", "named"}:
                return member.name.rpartition(".")[2]
        return None

    def is_issuer(self, module: str, handle: Instance) -> bool:
        """Whether a module may build these handles: it defines them, or its package does."""
        home = handle.name.rpartition(".")[0]
        if handle.name in self._linear:
            return module == home
        return module.partition(".")[0] == home.partition(".")[0]

    def is_spent_within(self, module: str, kind: Type) -> bool:
        """Whether a ``Consume`` parameter of this type is ended by the function itself.

        So it is where the handles are defined (somebody has to end them), and for names.
        """
        found = list(self._handles_in(kind))
        return bool(found) and all(
            self.kind(one) == "named"
            or (self.kind(one) == "handle" and self.is_issuer(module, one))
            for one in found
        )

    def _handles_in(self, kind: Type) -> Iterator[Instance]:
        for member in members(kind):
            sort = self.kind(member)
            if isinstance(member, Instance) and sort in {"handle", "named", "message"}:
                yield member
            elif sort == "container":
                yield from self._handles_in(elements_of(member))

    def home(self, handle: Instance) -> str:
        """Where handles of a class are built."""
        module = handle.name.rpartition(".")[0]
        return module if handle.name in self._linear else module.partition(".")[0]

    def facts(self, kind: Type, status: Status, where: ast.AST | None = None) -> frozenset[Fact]:
        """The facts of a fresh value: each alternative that is followed begins as ``status``."""
        found: set[Fact] = set()
        for member in members(kind):
            sort = self.kind(member)
            known = member if isinstance(member, Instance) else None
            if sort is None:
                found.add(Fact(Status.PLAIN, known))
            else:
                found.add(Fact(self._begins(sort, known, status), known, where))
        return frozenset(found)

    def _begins(self, sort: Kind, kind: Instance | None, status: Status) -> Status:
        if sort == "ending" and status is not Status.MOVED:
            return Status.FREE
        if sort == "named" and status in {Status.BORROWED, Status.FIELD, Status.FREE}:
            return Status.NAMED
        if kind is not None and sort == "container" and self.begins_named(kind):
            return Status.NAMED
        return status

    def begins_named(self, kind: Instance) -> bool:
        """Whether this is a name of what the device owns, or a container of such names."""
        sort = self.kind(kind)
        return sort == "named" or (sort == "container" and self._holds_names(kind))

    def _holds_names(self, kind: Instance) -> bool:
        inside = {self.kind(member) for member in members(elements_of(kind))} - {None}
        return inside == {"named"}
