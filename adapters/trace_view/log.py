"""Reads a log and draws each engine's events apart."""

from collections.abc import Iterable
from pathlib import Path

from adapters.trace_audit.log import audit_lines, decode
from adapters.trace_audit.report import EngineAudit
from adapters.trace_audit.seal import COVERED
from adapters.trace_view.lanes import Drawing
from adapters.trace_view.picture import Picture

__all__ = ["draw_file", "draw_lines"]


def draw_file(log: Path) -> list[Picture]:
    """Draw a log file; see :func:`draw_lines`.

    Raises:
        OSError: the file can't be read.
    """
    return draw_lines(log.read_text(encoding="utf-8", errors="replace").splitlines())


def draw_lines(lines: Iterable[str]) -> list[Picture]:
    """Draw a log: one picture for each ledger in it, in the order in which they begin."""
    lines = list(lines)
    drawings: dict[str, Drawing] = {}
    checks: dict[str, object] = {}
    pictures: list[Picture] = []
    for line in lines:
        event = decode(line)
        if event is None or ("engine" not in event.fields and event.name not in COVERED):
            continue
        engine = str(event.fields.get("engine", ""))
        if event.name == "ledger.opened":
            check = event.fields.get("check")
            if engine in drawings and check is not None and check == checks[engine]:
                continue  # the line stands there twice; the audit tells of it
            # A log may be appended to: the same name again is another ledger.
            if engine in drawings:
                drawings[engine].finish()
            drawings[engine], checks[engine] = Drawing(engine), check
            pictures.append(drawings[engine].picture)
        if engine in drawings:
            drawings[engine].feed(event)
    for drawing in drawings.values():
        drawing.finish()
    _judge(pictures, lines)
    return pictures


def _judge(pictures: Iterable[Picture], lines: Iterable[str]) -> None:
    """Write the audit's verdict on each picture."""
    verdicts: dict[str, list[EngineAudit]] = {}
    for verdict in audit_lines(lines).engines:
        verdicts.setdefault(verdict.engine, []).append(verdict)
    for picture in pictures:
        found = verdicts.get(picture.engine)
        if found:
            verdict = found.pop(0)
            picture.conserved = verdict.conserved
            picture.problems = [str(problem) for problem in verdict.problems]
        else:
            picture.conserved = False
            picture.problems = ["the audit does not take this part of the log for a ledger's"]
