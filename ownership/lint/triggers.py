"""Names without which a function can't touch a handle, so that the others need not be followed.

A handle comes into a function by a parameter, a call, a field or a cast, and leaves it by a call.
Each of these is declared with a type that is followed: the names of what is declared so are the
triggers. A text in which none of them stands is silent, however long it is.
"""

import re
from collections.abc import Iterable, Iterator

from ownership.lint.index import ClassInfo, FunctionInfo, Module
from ownership.lint.kinds import Kinds

__all__ = ["touches", "triggers", "words"]

_WORD = re.compile(r"[A-Za-z_]\w*")


def words(text: str) -> set[str]:
    """The identifiers in a text, those in strings and comments as well."""
    return set(_WORD.findall(text))


def triggers(module: Module, kinds: Kinds) -> Iterator[str]:
    """What a module declares with a type that is followed."""
    for function in module.functions:
        if _is_followed(function, kinds):
            is_init = function.name == "__init__" and function.owner is not None
            yield function.owner.name if is_init and function.owner else function.name
    for symbol in module.symbols.values():
        if isinstance(symbol, ClassInfo):
            yield from _of_class(symbol, kinds)


def _is_followed(function: FunctionInfo, kinds: Kinds) -> bool:
    read = kinds.members.annotations.read
    for annotation in [*(arg.annotation for arg in function.parameters), function.node.returns]:
        kind, mark = read(annotation, function.module, function.owner)
        if mark or kinds.is_followed(kind):
            return True
    variadic = function.node.args.vararg
    return variadic is not None and kinds.is_followed(
        read(variadic.annotation, function.module, function.owner)[0]
    )


def _of_class(info: ClassInfo, kinds: Kinds) -> Iterator[str]:
    if info.carries:
        yield info.name
    for name, field in info.fields.items():
        kind, mark = kinds.members.annotations.read(field.annotation, info.module, info)
        if mark or kinds.is_followed(kind):
            yield name
            yield info.name
    for nested in info.nested.values():
        yield from _of_class(nested, kinds)


def touches(function: FunctionInfo, names: Iterable[str]) -> bool:
    """Whether a function's text has a trigger in it."""
    node = function.node
    lines = function.module.lines[node.lineno - 1 : node.end_lineno]
    return not words("\n".join(lines)).isdisjoint(names)
