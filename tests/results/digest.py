"""A digest of code by what it does: comments, docstrings and layout don't count.

A result must not go stale because a sentence was reworded. So Python files count by their syntax
trees, written out here by hand, for :func:`ast.dump` differs from one Python to the next.
"""

import ast
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

__all__ = ["ROOT", "digest", "files_of", "normal_form"]

ROOT = Path(__file__).parent.parent.parent


def digest(patterns: Sequence[str], root: Path = ROOT) -> str:
    """The digest of all files that the patterns match.

    Raises:
        ValueError: a pattern matches nothing; it would measure nothing, and never be stale.
    """
    total = hashlib.sha256()
    for path in files_of(patterns, root):
        content = _digest_of(path.read_bytes(), is_python=path.suffix == ".py")
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()[:16]


def files_of(patterns: Iterable[str], root: Path = ROOT) -> list[Path]:
    """The files that the patterns match, in order; ``!PATTERN`` takes away again.

    Raises:
        ValueError: a pattern matches nothing.
    """
    files: set[Path] = set()
    for pattern in patterns:
        found = {path for path in root.glob(pattern.removeprefix("!")) if path.is_file()}
        found = {path for path in found if "__pycache__" not in path.parts}
        if not found:
            raise ValueError(f"{pattern!r} matches no file")
        files = files - found if pattern.startswith("!") else files | found
    return sorted(files)


@cache
def _digest_of(content: bytes, *, is_python: bool) -> str:
    # Remembered by content, not by path: a file may change while a run is made.
    if is_python:
        content = normal_form(content.decode()).encode()
    return hashlib.sha256(content).hexdigest()


def normal_form(source: str) -> str:
    """The code without what doesn't run."""
    parts: list[str] = []
    _write(ast.parse(source), parts)
    return "".join(parts)


def _write(node: Any, parts: list[str]) -> None:
    if isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for field in node._fields:
            value: Any = getattr(node, field, None)
            if field == "body" and isinstance(value, list):
                body = cast("list[object]", value)
                value = [each for each in body if not _is_docstring(each)]
            # What is empty may be missing in another Python's trees.
            if value not in (None, []) and field not in {"kind", "type_comment"}:
                parts.append(f" {field}=")
                _write(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        nodes = cast("list[object]", node)
        parts.append("[")
        for each in nodes:
            _write(each, parts)
        parts.append("]")
    else:
        parts.append(repr(node))


def _is_docstring(node: object) -> bool:
    """A string that stands by itself, under an attribute as well, is a comment."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)
