"""Where the sources of this repository move a handle: the places into which faults are planted.

Found by names and marks alone, without the move checker, so that what it overlooks is not
overlooked here as well. What a test does with a handle inside ``pytest.raises`` is left out.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

__all__ = ["ROOT", "Site", "Taking", "sites_in", "sources"]

ROOT = Path(__file__).parent.parent.parent
_FOLDERS = ("kernel", "adapters", "tests")
_LEFT_OUT = ("tests/lint/", "tests/types/", "tests/mutants/", "tests/museum/")
_TAKES = frozenset({"reserve", "launch", "land", "commit", "admit", "working", "release"})
_ENDS = frozenset(
    {"rollback", "commit", "close", "admit", "evict", "launch", "land", "take", "roll_back"}
    | {"_roll_back_late", "land_as_failed", "_land", "post"}
)
_CARRIED = re.compile(r"\w+\.(claim|lease)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Taking:
    """The assignment by which a local name comes to own a handle."""

    start: int
    end: int
    value: str


@attrs.frozen
class Site:
    """One statement that moves the handle of one local name.

    Attributes:
        function: qualified by its class.
        header: line of the ``def``.
        start: first line of the statement, which stands alone on its lines.
        verb: text of what is called; empty when the statement stores or returns.
        arguments: text of the arguments.
        name: whose handle moves: a local name, or the field of a message.
        taking: how the name got it; None when a marked parameter.
        is_test: a test's ledger ends with the test, so that nothing is dropped there.
    """

    path: str
    function: str
    header: int
    start: int
    end: int
    indent: str
    form: Literal["call", "assignment", "store", "return"]
    verb: str
    arguments: str
    name: str
    taking: Taking | None
    is_method: bool
    is_async: bool
    is_test: bool

    @property
    def is_lease(self) -> bool:
        """A lease's name may be kept anywhere: its custodian is the device."""
        return "land" in self.verb or "lease" in self.name

    @property
    def call(self) -> str:
        """The consuming call as it stands there."""
        return f"{self.verb}({self.arguments})"


def sources() -> dict[str, str]:
    """Every file that may hold a site, by its path from the root."""
    found: dict[str, str] = {}
    for folder in _FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if not path.startswith(_LEFT_OUT):
                found[path] = file.read_text(encoding="utf-8")
    return {path: text for path, text in found.items() if "ownership" in text}


def sites_in(path: str, text: str) -> Iterator[Site]:
    """All sites of one file, in its order."""
    for qualified, function, is_method in _functions(ast.parse(text)):
        reader = _Reader(path, text, qualified, function, is_method)
        yield from reader.sites()


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function, bool]]:
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node, False
        elif isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, Function):
                    yield f"{node.name}.{child.name}", child, True


class _Reader:
    """Reads one function."""

    def __init__(
        self, path: str, text: str, qualified: str, function: Function, is_method: bool
    ) -> None:
        self._path = path
        self._text = text
        self._lines = text.splitlines()
        self._qualified = qualified
        self._function = function
        self._is_method = is_method
        self._statements = list(_statements(function.body))

    def sites(self) -> Iterator[Site]:
        """Statements that move what a name of this function owns."""
        owned = self._owned()
        for statement in self._statements:
            for name, taking in owned.items():
                site = self._site(statement, name, taking)
                if site is not None:
                    yield site
                    break

    def _owned(self) -> Mapping[str, Taking | None]:
        owned: dict[str, Taking | None] = {}
        arguments = self._function.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if one.annotation is not None and "Consume[" in ast.unparse(one.annotation):
                owned[one.arg] = None
        for statement in self._statements:
            owned |= self._taken_by(statement)
        return owned

    def _taken_by(self, statement: ast.stmt) -> Mapping[str, Taking | None]:
        start, end = statement.lineno, statement.end_lineno or statement.lineno
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value) if _takes(
                value
            ):
                return {name: Taking(start, end, self._of(value))}
            case ast.Assign(
                targets=[ast.Tuple(elts=[ast.Name(id=name), ast.Attribute()])],
                value=ast.Tuple(elts=[ast.Attribute() as field, _]),
            ) if any(word in field.attr for word in ("state", "checkpoint", "held")):
                return {name: Taking(start, end, self._of(field))}
            case ast.For(target=target, iter=rows) if ".land(" in ast.unparse(rows):
                return {ast.unparse(target).strip("()").split(", ")[-1]: None}
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                carried = (ast.unparse(argument) for argument in call.args)
                return {path: None for path in carried if _CARRIED.fullmatch(path)}
            case _:
                return {}

    def _site(self, statement: ast.stmt, name: str, taking: Taking | None) -> Site | None:
        found = self._moves(statement, name)
        start, end = statement.lineno, statement.end_lineno or statement.lineno
        line = self._lines[start - 1]
        if found is None or line[: statement.col_offset].strip():
            return None
        form, call = found
        return Site(
            path=self._path,
            function=self._qualified,
            header=self._function.lineno,
            start=start,
            end=end,
            indent=line[: statement.col_offset],
            form=form,
            verb="" if call is None else self._of(call.func),
            arguments="" if call is None else ", ".join(self._arguments(call)),
            name=name,
            taking=taking if taking is None or taking.start < start else None,
            is_method=self._is_method and "staticmethod" not in self._decorators(),
            is_async=isinstance(self._function, ast.AsyncFunctionDef),
            is_test=self._function.name.startswith("test_"),
        )

    def _moves(
        self, statement: ast.stmt, name: str
    ) -> tuple[Literal["call", "assignment", "store", "return"], ast.Call | None] | None:
        match statement:
            case ast.Expr(value=ast.Call() as call) if _ends(call, name):
                return "call", call
            case ast.Assign(value=ast.Call() as call) if _ends(call, name):
                return "assignment", call
            case ast.Assign(targets=[ast.Subscript()], value=ast.Name(id=stored)):
                return ("store", None) if stored == name else None
            case ast.Return(value=ast.Name(id=returned)) if returned == name:
                return "return", None
            case ast.Return(value=ast.Call() as call) if _ends(call, name):
                return "return", call
            case _:
                return None

    def _arguments(self, call: ast.Call) -> Iterator[str]:
        for argument in call.args:
            yield self._of(argument)
        for keyword in call.keywords:
            yield f"{keyword.arg}={self._of(keyword.value)}"

    def _decorators(self) -> list[str]:
        return [ast.unparse(one) for one in self._function.decorator_list]

    def _of(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ast.unparse(node)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a function but those of functions in it and of refusals under test."""
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        if isinstance(statement, ast.With) and "raises" in ast.unparse(statement.items[0]):
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)
        for case in getattr(statement, "cases", []):
            yield from _statements(case.body)


def _takes(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr=verb)):
            return verb in _TAKES or (verb == "pop" and "claims" in ast.unparse(value.func))
        case ast.Call(func=ast.Name(id=function)):
            return function in _TAKES
        case _:
            return False


def _ends(call: ast.Call, name: str) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _ENDS:
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if call.func.attr == "land" and given and isinstance(given[0], ast.List):
        return False  # A test's helper, which launches what it borrows and lands it.
    for argument in given:
        elements = argument.elts if isinstance(argument, ast.List) else [argument]
        if any(ast.unparse(one) == name for one in elements):
            return True
    return False
