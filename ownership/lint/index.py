"""What a module defines, read from its source: classes, functions, imports, never imported."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

__all__ = [
    "ClassInfo",
    "FunctionInfo",
    "Imported",
    "Module",
    "Symbol",
    "VariableInfo",
    "class_in",
    "index",
]

_IMPORT = re.compile(r"\s+(?:from|import)\s")
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.define(eq=False)
class FunctionInfo:
    """A function or method."""

    name: str
    module: "Module"
    node: AnyFunction
    owner: "ClassInfo | None" = None
    passes: str | None = attrs.field(init=False, default="")
    """The parameter that it gives back as it is; the empty string until somebody has looked."""

    @property
    def decorators(self) -> list[str]:
        """Their last names."""
        return decorator_names(self.node)

    @property
    def qualified(self) -> str:
        """Module, class and name."""
        return f"{self.owner.qualified if self.owner else self.module.name}.{self.name}"

    @property
    def is_property(self) -> bool:
        """Whether reading the attribute calls it."""
        return any(name in {"property", "cached_property"} for name in self.decorators)

    @property
    def parameters(self) -> list[ast.arg]:
        """All parameters that a call can name or count, the receiver included."""
        args = self.node.args
        return [*args.posonlyargs, *args.args, *args.kwonlyargs]


@attrs.define(eq=False)
class ClassInfo:
    """A class: its fields as they are annotated in its body, and its methods."""

    name: str
    module: "Module"
    node: ast.ClassDef
    fields: dict[str, ast.AnnAssign] = attrs.field(factory=dict[str, ast.AnnAssign])
    methods: dict[str, FunctionInfo] = attrs.field(factory=dict[str, FunctionInfo])
    nested: dict[str, "ClassInfo"] = attrs.field(factory=dict[str, "ClassInfo"])
    carries: tuple[str, ...] = ()
    """Fields whose handles travel with an instance: it is a message."""

    @property
    def qualified(self) -> str:
        """Module and name."""
        return f"{self.module.name}.{self.name}"

    @property
    def makes_init(self) -> bool:
        """Whether attrs or dataclasses write its ``__init__``."""
        made = {"frozen", "define", "mutable", "dataclass", "attrs", "s"}
        return "__init__" not in self.methods and bool(made & set(decorator_names(self.node)))


@attrs.frozen
class Imported:
    """A name that comes from another module; ``name`` None: the module itself."""

    module: str
    name: str | None


@attrs.define(eq=False)
class VariableInfo:
    """A module's variable: its annotation, its value, or both."""

    annotation: ast.expr | None
    value: ast.expr | None


Symbol = ClassInfo | FunctionInfo | Imported | VariableInfo


@attrs.define(eq=False)
class Module:
    """One source file."""

    name: str
    path: Path
    lines: Sequence[str]
    tree: ast.Module
    is_package: bool = False
    symbols: dict[str, Symbol] = attrs.field(factory=dict[str, Symbol])
    stars: list[str] = attrs.field(factory=list[str])
    functions: list[FunctionInfo] = attrs.field(factory=list[FunctionInfo])
    """All that are not nested in another function."""

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that a ``from`` names, relative ones counted from here."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def index(module: Module) -> Module:
    """Fill in what the module defines."""
    _Indexer(module).body(module.tree.body)
    if not any(line[:1] in " \t" and _IMPORT.match(line) for line in module.lines):
        return module
    # Imports inside of functions, where no definition of the module says otherwise.
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, symbol in imports_of(module, node):
                module.symbols.setdefault(name, symbol)
    return module


def imports_of(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """The names that an import binds; a star binds none here."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, Imported(alias.name if alias.asname else top, None)
        return
    source = module.absolute(node)
    for alias in node.names:
        if alias.name == "*":
            if source not in module.stars:
                module.stars.append(source)
        else:
            yield alias.asname or alias.name, Imported(source, alias.name)


def class_in(node: ast.ClassDef, module: Module) -> ClassInfo:
    """A class that is defined in a function of a module."""
    return _Indexer(Module(module.name, module.path, module.lines, module.tree)).class_(
        node, module
    )


class _Indexer:
    def __init__(self, module: Module) -> None:
        self.module = module

    def body(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        symbols = self.module.symbols
        match node:
            case ast.Import() | ast.ImportFrom():
                symbols.update(imports_of(self.module, node))
            case ast.ClassDef():
                symbols[node.name] = self.class_(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                symbols[node.name] = self.function(node, None)
            case ast.AnnAssign(target=ast.Name(id=name)):
                symbols[name] = VariableInfo(node.annotation, node.value)
            case ast.Assign(targets=[ast.Name(id=name)]):
                symbols[name] = VariableInfo(None, node.value)
            case ast.If():
                # A name that is bound on both sides is what the side for type checkers says.
                self.body(node.orelse)
                self.body(node.body)
            case ast.Try():
                for handler in node.handlers:
                    self.body(handler.body)
                self.body([*node.body, *node.orelse, *node.finalbody])
            case ast.With():
                self.body(node.body)
            case _:
                pass

    def function(
        self, node: AnyFunction, owner: ClassInfo | None, module: Module | None = None
    ) -> FunctionInfo:
        info = FunctionInfo(node.name, module or self.module, node, owner)
        self.module.functions.append(info)
        return info

    def class_(
        self, node: ast.ClassDef, module: Module | None = None, outer: str = ""
    ) -> ClassInfo:
        info = ClassInfo(outer + node.name, module or self.module, node)
        for item in node.body:
            match item:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    method = self.function(item, info, module)
                    # The last of several overloads has the body; a property's setter has not.
                    if not any(name in {"setter", "deleter"} for name in method.decorators):
                        info.methods[item.name] = method
                case ast.ClassDef():
                    info.nested[item.name] = self.class_(item, module, f"{info.name}.")
                case ast.AnnAssign(target=ast.Name(id="carries")):
                    info.carries = _strings(item.value)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    info.fields[name] = item
                case _:
                    pass
        return info


def _strings(node: ast.expr | None) -> tuple[str, ...]:
    elements = node.elts if isinstance(node, ast.Tuple) else []
    return tuple(str(item.value) for item in elements if isinstance(item, ast.Constant))


def decorator_names(node: AnyFunction | ast.ClassDef) -> list[str]:
    """The last name of each decorator."""
    names: list[str] = []
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(call, ast.Attribute):
            names.append(call.attr)
        elif isinstance(call, ast.Name):
            names.append(call.id)
    return names
