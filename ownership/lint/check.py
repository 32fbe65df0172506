"""From paths to findings: which files are read, which are followed, which are only counted."""

import ast
import re
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import attrs

from ownership.lint.annotations import Annotations
from ownership.lint.config import Config
from ownership.lint.findings import Finding, Report
from ownership.lint.flow import Flow, Summaries
from ownership.lint.index import Module
from ownership.lint.kinds import Kinds
from ownership.lint.members import Members
from ownership.lint.moves import Sink
from ownership.lint.resolve import Names, parse

__all__ = ["check_paths", "check_source"]

_IGNORED = re.compile(r"#\s*(?:type|pyright):\s*ignore")


@attrs.define(eq=False)
class _File:
    path: Path
    shown: str
    name: str
    text: str
    module: Module | None = None


def check_source(
    text: str, filename: str = "<source>", config: Config | None = None
) -> list[Finding]:
    """Check one source text.

    Raises:
        SyntaxError: it is no Python.
    """
    path = Path(filename)
    name = path.stem if path.stem.isidentifier() else "__source__"
    module = parse(text, name, path)
    file = _File(path, filename, name, text, module)
    return _check([file], config or Config(), [])


def check_paths(paths: Sequence[Path | str], config: Config | None = None) -> Report:
    """Check files and folders."""
    started = time.perf_counter()
    config = config or Config()
    files: list[_File] = []
    unreadable: list[tuple[str, str]] = []
    for path in _sources([Path(path) for path in paths], config):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append((str(path), str(error)))
            continue
        files.append(_File(path, str(path), module_name(path), text))
    relevant = _relevant(files, config)
    for file in relevant:
        try:
            is_package = file.path.stem == "__init__"
            file.module = parse(file.text, file.name, file.path, is_package=is_package)
        except (SyntaxError, ValueError) as error:
            unreadable.append((file.shown, str(error)))
    roots = {_root(file.path) for file in relevant}
    findings = _check([file for file in relevant if file.module is not None], config, sorted(roots))
    return Report(
        findings=tuple(findings),
        files=len(files),
        lines=sum(file.text.count("\n") + 1 for file in files),
        seconds=time.perf_counter() - started,
        unreadable=tuple(unreadable),
    )


def _sources(paths: Sequence[Path], config: Config) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for one in found:
            if one in seen or any(fnmatch(str(one), pattern) for pattern in config.exclude):
                continue
            seen.add(one)
            yield one


def module_name(path: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.absolute().parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _root(path: Path) -> Path:
    folder = path.absolute().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _relevant(files: Sequence[_File], config: Config) -> list[_File]:
    """Files that a handle can reach: those that import what defines one, and who imports them."""
    return list(files)


def _check(files: Sequence[_File], config: Config, roots: Sequence[Path]) -> list[Finding]:
    modules = {file.name: file.module for file in files if file.module is not None}
    readable = {name.partition(".")[0] for name in modules}
    readable |= {name.partition(".")[0] for name in (*config.handles, *config.consuming)}
    searched = [*roots, Path.cwd()]
    readable |= {name for root in searched for name in _importable(root)}
    here = Path(__file__).resolve().parents[2]
    members = Members(Annotations(Names(modules, readable, [*searched, here])))
    kinds = Kinds(config, members)
    summaries = Summaries(kinds)
    found: list[Finding] = []
    for file in files:
        if file.module is not None:
            found += _check_file(file, file.module, kinds, summaries)
    return sorted(found, key=lambda one: (one.path, one.line, one.column, one.rule))


def _importable(root: Path) -> Iterator[str]:
    """Modules and packages that stand in a folder."""
    for entry in sorted(root.iterdir()):
        if entry.suffix == ".py" or (entry / "__init__.py").is_file():
            yield entry.stem


def _check_file(file: _File, module: Module, kinds: Kinds, summaries: Summaries) -> list[Finding]:
    sink = Sink(file.shown, module)
    is_test_file = file.path.stem.startswith("test_") or file.path.stem.endswith("_test")
    handled: dict[int, str] = {}
    for function in module.functions:
        is_test = is_test_file and function.name.startswith("test")
        todo = [(function, {})]
        while todo:
            inner, outer = todo.pop()
            flow = Flow(inner, kinds, sink, summaries, is_test=is_test, outer=outer)
            flow.run()
            handled.update(flow.handled)
            todo += flow.nested.values()
    for line, name in handled.items():
        text = module.lines[line - 1] if line <= len(module.lines) else ""
        if "ignore" in text and _IGNORED.search(text):
            at = ast.Name("", lineno=line, col_offset=text.index("#"), end_lineno=line, end_col_offset=len(text))
            sink.add("OWN007", f"`type: ignore` on a line that handles `{name}`", at, None)
    return list(sink.found.values())
