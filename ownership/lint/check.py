"""From paths to findings: what a handle can't reach is only counted, the rest is followed."""

import ast
import re
import time
from collections.abc import Sequence
from pathlib import Path

from ownership.lint.annotations import Annotations
from ownership.lint.config import Config
from ownership.lint.findings import Finding, Report
from ownership.lint.flow import Flow, Summaries
from ownership.lint.index import FunctionInfo
from ownership.lint.kinds import Kinds
from ownership.lint.members import Members
from ownership.lint.operands import Sink
from ownership.lint.resolve import Names
from ownership.lint.sources import Source, importable, imports, module_name, read, root_of, seeds
from ownership.lint.triggers import touches, triggers, words
from ownership.lint.types import Type

__all__ = ["check_paths", "check_source"]

_IGNORED = re.compile(r"#\s*(?:type|pyright):\s*ignore")
_VERBS = ("ownership.handles", "ownership.ports", "ownership.ledger", "ownership.view")


def check_source(
    text: str, filename: str = "<source>", config: Config | None = None
) -> list[Finding]:
    """Check one source text.

    Raises:
        SyntaxError: it is no Python.
    """
    path = Path(filename)
    name = module_name(path) if path.stem.isidentifier() else "__source__"
    source = Source(path, filename, name, text)
    findings = _Check([source], config or Config()).run()
    if source.error is not None:
        raise SyntaxError(source.error)
    return findings


def check_paths(paths: Sequence[Path | str], config: Config | None = None) -> Report:
    """Check files and folders."""
    started = time.perf_counter()
    config = config or Config()
    sources, unreadable = read([Path(path) for path in paths], config)
    check = _Check(sources, config)
    findings = check.run()
    unreadable += [(one.shown, one.error) for one in sources if one.error is not None]
    return Report(
        findings=tuple(findings),
        files=len(sources),
        lines=sum(source.text.count("\n") for source in sources),
        seconds=time.perf_counter() - started,
        unreadable=unreadable,
        consuming_calls=check.consuming_calls,
    )


class _Check:
    """One run over some sources."""

    def __init__(self, sources: Sequence[Source], config: Config) -> None:
        self._sources = sources
        self._config = config
        self.consuming_calls = 0

    def run(self) -> list[Finding]:
        """Findings in order of path and line."""
        first = seeds(self._sources, self._config)
        if not first:
            return []
        config = self._config
        tops = {source.name.partition(".")[0] for source in self._sources}
        tops |= {name.partition(".")[0] for name in (*config.handles, *config.consuming)}
        roots = sorted({root_of(source) for source in first})
        roots.append(Path.cwd())
        tops |= {name for root in roots for name in importable(root)}
        here = Path(__file__).resolve().parents[2]
        names = Names({one.name: one for one in self._sources}, tops, [*roots, here])
        self._kinds = Kinds(config, Members(Annotations(names)))
        self._summaries = Summaries(self._kinds)
        reached = self._reached(first, names)
        found = [finding for source in reached for finding in self._file(source)]
        return sorted(found, key=lambda one: (one.path, one.line, one.column, one.rule))

    def _reached(self, first: Sequence[Source], names: Names) -> list[Source]:
        """The sources that a handle can reach, found by the names that it travels under."""
        self._triggers = {name.rpartition(".")[2] for name in self._config.handles}
        for entry in self._config.consuming:
            owner, _, function = entry.partition(":")[0].rpartition(".")
            self._triggers |= {function, owner.rpartition(".")[2]}
        for module in filter(None, map(names.module, _VERBS)):
            self._triggers.update(triggers(module, self._kinds))
        todo, reached = list(first), list[Source]()
        inside = {one.name for one in self._sources}
        left = {id(one): one for one in self._sources}
        said: dict[int, set[str]] = {}
        while todo:
            for source in todo:
                del left[id(source)]
                reached.append(source)
                self._triggers.update(self._declared(source, names, inside))
            for one in left.values():
                if id(one) not in said:
                    said[id(one)] = words(one.text)
            todo = [one for one in left.values() if not said[id(one)].isdisjoint(self._triggers)]
        return reached

    def _declared(self, source: Source, names: Names, inside: set[str]) -> set[str]:
        """The triggers of a source, and of what it imports from outside of what is checked."""
        modules = [source.module, *(names.module(name) for name in imports(source) - inside)]
        return {
            trigger
            for module in modules
            if module is not None
            for trigger in triggers(module, self._kinds)
        }

    def _file(self, source: Source) -> list[Finding]:
        module = source.module
        if module is None:
            return []
        sink = Sink(source.shown, module)
        is_test_file = source.path.stem.startswith("test_") or source.path.stem.endswith("_test")
        handled: dict[int, str] = {}
        for function in module.functions:
            if not touches(function, self._triggers):
                continue
            is_test = is_test_file and function.name.startswith("test")
            todo: list[tuple[FunctionInfo, dict[str, Type]]] = [(function, {})]
            while todo:
                inner, outer = todo.pop()
                flow = Flow(inner, self._kinds, sink, self._summaries, is_test=is_test, outer=outer)
                flow.run()
                handled.update(flow.handled)
                todo += flow.nested.values()
        _silenced(sink, handled)
        self.consuming_calls += len(sink.consumed)
        return list(sink.found.values())


def _silenced(sink: Sink, handled: dict[int, str]) -> None:
    """Report lines that tell the type checkers to look away from a handle."""
    for line, name in handled.items():
        text = sink.module.lines[line - 1]
        if "ignore" in text and _IGNORED.search(text):
            start = text.index("#")
            at = ast.Name(
                "", lineno=line, col_offset=start, end_lineno=line, end_col_offset=len(text)
            )
            sink.add("OWN007", f"`type: ignore` on a line that handles `{name}`", at, None)
