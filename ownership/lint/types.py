"""Types as far as the move checker needs them: classes by qualified name, unions, callables."""

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from ownership.lint.index import ClassInfo, FunctionInfo

__all__ = [
    "ANY",
    "CONTAINERS",
    "NONE",
    "Any_",
    "Class",
    "Function",
    "Instance",
    "ModuleRef",
    "Type",
    "Union_",
    "Variable",
    "elements_of",
    "is_mapping",
    "members",
    "substitute",
    "union",
    "without_none",
]


@attrs.frozen
class Any_:  # noqa: N801  beside typing.Any, and not it
    """Nothing is known."""


@attrs.frozen
class Instance:
    """An instance of a class, by the qualified name of where the class is defined."""

    name: str
    args: tuple["Type", ...] = ()
    info: "ClassInfo | None" = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Union_:  # noqa: N801  beside typing.Union, and not it
    """One of several."""

    members: tuple["Type", ...]


@attrs.frozen
class Class:
    """A class itself; ``instance`` is what calling it gives."""

    instance: Instance


@attrs.frozen
class Function:
    """A function or a bound method."""

    info: "FunctionInfo" = attrs.field(eq=True)
    receiver: Instance | None = None
    bound: ast.expr | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ModuleRef:
    """A module, by its dotted name."""

    name: str


@attrs.frozen
class Variable:
    """A type variable."""

    name: str


Type: TypeAlias = Any_ | Instance | Union_ | Class | Function | ModuleRef | Variable

ANY = Any_()
NONE = Instance("None")

_ABSTRACT = (
    *("Sequence", "MutableSequence", "Iterable", "Iterator", "Collection", "Generator"),
    *("Mapping", "MutableMapping", "AsyncIterator", "AsyncGenerator", "Set", "MutableSet"),
    *("ValuesView", "List", "Dict", "Tuple", "Deque"),
)
CONTAINERS = frozenset(
    {
        "list",
        "tuple",
        "set",
        "frozenset",
        "dict",
        "collections.deque",
        "collections.OrderedDict",
        "collections.defaultdict",
        *(f"{module}.{name}" for module in ("collections.abc", "typing") for name in _ABSTRACT),
    }
)
_MAPPINGS = ("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict")


def members(kind: Type) -> Iterator[Type]:
    """The alternatives of a type."""
    if isinstance(kind, Union_):
        for member in kind.members:
            yield from members(member)
    else:
        yield kind


def union(*kinds: Type) -> Type:
    """One of these, each once; unknown as soon as one is."""
    found: dict[Type, None] = {}
    for kind in kinds:
        found.update(dict.fromkeys(members(kind)))
    if ANY in found:
        return ANY
    return next(iter(found)) if len(found) == 1 else Union_(tuple(found))


def without_none(kind: Type) -> Type:
    """What is left when it is not ``None``."""
    left = [member for member in members(kind) if member != NONE]
    return union(*left) if left else kind


def substitute(kind: Type, by: Mapping[str, Type]) -> Type:
    """Put types for type variables."""
    if not by:
        return kind
    if isinstance(kind, Variable):
        return by.get(kind.name, ANY)
    if isinstance(kind, Instance) and kind.args:
        return attrs.evolve(kind, args=tuple(substitute(arg, by) for arg in kind.args))
    if isinstance(kind, Union_):
        return union(*(substitute(member, by) for member in kind.members))
    return kind


def is_mapping(kind: Instance) -> bool:
    """Whether iterating it gives keys."""
    return kind.name.rpartition(".")[2] in _MAPPINGS


def elements_of(kind: Type) -> Type:
    """What iterating a container of this type gives; for a mapping, its values."""
    found: list[Type] = []
    for member in members(kind):
        if isinstance(member, Instance) and member.name in CONTAINERS and member.args:
            if is_mapping(member):
                found.append(member.args[-1])
            elif member.name == "tuple":
                found += member.args
            else:
                found.append(member.args[0])
    return union(*found) if found else ANY
