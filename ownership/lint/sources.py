"""Which files are read at all, and under which names: most of a code base needs no parsing."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import attrs

from ownership.lint.config import Config
from ownership.lint.index import Module
from ownership.lint.resolve import parse

__all__ = ["Source", "importable", "module_name", "read", "root_of", "seeds"]

_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)", re.MULTILINE)
_IMPORTS_MARKS = re.compile(r"^\s*(?:from|import)\s+ownership\b", re.MULTILINE)


@attrs.define(eq=False)
class Source:
    """One file that is checked; parsed when it is needed."""

    path: Path
    shown: str
    name: str
    text: str
    _module: Module | None = None
    error: str | None = None

    @property
    def module(self) -> Module | None:
        """The module in it; None when it can't be parsed."""
        if self._module is None and self.error is None:
            try:
                is_package = self.path.stem == "__init__"
                self._module = parse(self.text, self.name, self.path, is_package=is_package)
            except (SyntaxError, ValueError) as error:
                self.error = str(error)
        return self._module


def read(paths: Sequence[Path], config: Config) -> tuple[list[Source], list[tuple[str, str]]]:
    """Read files, and those in folders; also which could not be read, and why."""
    sources: list[Source] = []
    unreadable: list[tuple[str, str]] = []
    names: dict[Path, str] = {}
    for path in _files(paths, config):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append((str(path), str(error)))
        else:
            sources.append(Source(path, str(path), module_name(path, names), text))
    return sources, unreadable


def _files(paths: Sequence[Path], config: Config) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if one not in seen and not any(fnmatch(str(one), glob) for glob in config.exclude):
                seen.add(one)
                yield one


def module_name(path: Path, known: dict[Path, str] | None = None) -> str:
    """The dotted name under which a file is imported."""
    package = _package(path.absolute().parent, {} if known is None else known)
    stem = "" if path.stem == "__init__" else path.stem
    return ".".join(part for part in (package, stem) if part)


def _package(folder: Path, known: dict[Path, str]) -> str:
    if folder not in known:
        if (folder / "__init__.py").is_file():
            outer = _package(folder.parent, known)
            known[folder] = f"{outer}.{folder.name}" if outer else folder.name
        else:
            known[folder] = ""
    return known[folder]


def root_of(source: Source) -> Path:
    """The folder from which a file's module is imported."""
    depth = source.name.count(".") + (source.path.stem == "__init__")
    return source.path.absolute().parents[depth]


def importable(root: Path) -> Iterator[str]:
    """Modules and packages that stand in a folder."""
    for entry in sorted(root.iterdir()):
        if entry.suffix == ".py" or (entry / "__init__.py").is_file():
            yield entry.stem


def seeds(sources: Sequence[Source], config: Config) -> list[Source]:
    """Files that import the marks, are part of their package, or name a configured class."""
    short = {part for name in config.linear for part in [name.rpartition(".")[2]]}
    for entry in config.consuming:
        owner, _, function = entry.partition(":")[0].rpartition(".")
        short |= {function, owner.rpartition(".")[2]}
    configured = (
        re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(short)))})\b") if short else None
    )
    found = [source for source in sources if _is_seed(source, configured)]
    return found + _by_imports([one for one in sources if one not in found], sources, configured)


def _by_imports(
    sources: Sequence[Source], known: Sequence[Source], configured: re.Pattern[str] | None
) -> list[Source]:
    """Files that import seeds of their project which are not among those that are checked."""
    tops = {source.name.partition(".")[0] for source in sources}
    outside: dict[str, bool] = {source.name: False for source in known}
    roots = {root_of(source) for source in sources}
    found: list[Source] = []
    for source in sources:
        names = {name for name in imports(source) if name.partition(".")[0] in tops}
        for name in sorted(names - outside.keys()):
            near = next((one for root in roots if (one := _outside(root, name)) is not None), None)
            outside[name] = near is not None and _is_seed(near, configured)
        if any(outside[name] for name in names):
            found.append(source)
    return found


def imports(source: Source) -> set[str]:
    """The modules that a file imports, relative ones counted from its own."""
    found: set[str] = set()
    parts = source.name.split(".")
    for dots, name in _IMPORT.findall(source.text):
        level = len(dots) - (source.path.stem == "__init__")
        base = parts[: len(parts) - level] if dots else []
        found.add(".".join([*base, *([name] if name else [])]))
    return found


def _outside(root: Path, name: str) -> Source | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return Source(path, str(path), name, path.read_text(encoding="utf-8", errors="replace"))
    return None


def _is_seed(source: Source, configured: re.Pattern[str] | None) -> bool:
    if source.name.partition(".")[0] == "ownership":
        return True
    if "ownership" in source.text and _IMPORTS_MARKS.search(source.text):
        return True
    return configured is not None and configured.search(source.text) is not None
