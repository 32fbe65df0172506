"""Names through imports, re-exports, stars and aliases, to where they are defined."""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from ownership.lint.index import (
    ClassInfo,
    FunctionInfo,
    Imported,
    Module,
    Symbol,
    VariableInfo,
    index,
)
from ownership.lint.types import ModuleRef

__all__ = ["Defined", "Names", "parse"]

Defined = ClassInfo | FunctionInfo | ModuleRef | tuple[VariableInfo, Module, str] | str
"""What a name stands for; a string is the dotted name of what is not read."""

_DEEPEST = 12


def parse(text: str, name: str, path: Path, *, is_package: bool = False) -> Module:
    """Index a source text.

    Raises:
        SyntaxError: it is no Python.
        ValueError: it holds a null byte.
    """
    return index(Module(name, path, text.splitlines(), ast.parse(text), is_package))


class HasModule(Protocol):
    """A file that is checked."""

    @property
    def module(self) -> Module | None: ...


class Names:
    """All modules that are known, and the names in them.

    Args:
        sources: what is checked, by dotted name.
        readable: top-level packages whose other modules may be read for their annotations.
        roots: where those are looked for, before ``sys.path``.
    """

    def __init__(
        self, sources: Mapping[str, HasModule], readable: Iterable[str], roots: Iterable[Path]
    ) -> None:
        self._sources = sources
        self._modules: dict[str, Module | None] = {}
        self._readable = frozenset(readable)
        self._roots = [*roots, *(Path(entry) for entry in sys.path if entry)]

    def module(self, name: str) -> Module | None:
        """A module by its dotted name, read on first use; None when it is none of ours."""
        if name not in self._modules:
            source = self._sources.get(name)
            self._modules[name] = self._read(name) if source is None else source.module
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        parts = name.split(".")
        if parts[0] not in self._readable:
            return None
        for root in self._roots:
            base = root.joinpath(*parts)
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    try:
                        text = path.read_text(encoding="utf-8")
                        return parse(text, name, path, is_package=path.stem == "__init__")
                    except (OSError, ValueError, SyntaxError):
                        return None
        return None

    def find(self, module: Module, name: str, depth: int = 0) -> Defined | None:
        """What a bare name means in a module; None for builtins and what is not known."""
        symbol = module.symbols.get(name)
        if symbol is not None:
            return self._follow(module, name, symbol, depth)
        for source in module.stars:
            found = self.member(source, name, depth + 1)
            if found is not None and not isinstance(found, str):
                return found
        return None

    def _follow(self, module: Module, name: str, symbol: Symbol, depth: int) -> Defined | None:
        if isinstance(symbol, VariableInfo):
            return symbol, module, name
        if not isinstance(symbol, Imported):
            return symbol
        if symbol.name is None:
            return ModuleRef(symbol.module)
        return self.member(symbol.module, symbol.name, depth + 1)

    def member(self, source: str, name: str, depth: int = 0) -> Defined | None:
        """What ``source.name`` means; a dotted name when the source is not read."""
        module = self.module(source)
        if module is None or depth > _DEEPEST:
            return f"{source}.{name}"
        found = self.find(module, name, depth)
        if found is None and self.module(f"{source}.{name}") is not None:
            return ModuleRef(f"{source}.{name}")
        return found

    def locate(self, name: str) -> Defined | None:
        """What a dotted name of a configuration means."""
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            source = ".".join(parts[:cut])
            if self.module(source) is None:
                continue
            found: Defined | None = ModuleRef(source)
            for part in parts[cut:]:
                found = self.inside(found, part)
            return found
        return name

    def inside(self, found: Defined | None, name: str) -> Defined | None:
        """What ``found.name`` means."""
        if isinstance(found, ModuleRef):
            return self.member(found.name, name)
        if isinstance(found, ClassInfo):
            return found.nested.get(name) or found.methods.get(name)
        return f"{found}.{name}" if isinstance(found, str) else None

    def expression(self, module: Module, node: ast.expr) -> Defined | None:
        """What a name or an attribute chain means in a module."""
        if isinstance(node, ast.Name):
            return self.find(module, node.id)
        if isinstance(node, ast.Attribute):
            return self.inside(self.expression(module, node.value), node.attr)
        return None
