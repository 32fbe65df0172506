"""Reads the documentation as data: fenced blocks, links, and the output that a page promises.

``python -m tests.docs.markdown docs/tutorial.md`` runs a page and writes its outputs back into it.
"""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import attrs

__all__ = ["ROOT", "Block", "blocks", "links", "pages", "rewrite", "run"]

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")


@attrs.frozen
class Block:
    """One fenced Python block of a page, and the output that stands right below it."""

    line: int
    words: tuple[str, ...]
    """The words after the three backticks; the first is the language."""
    code: str
    output: str | None
    """The ``text`` block that follows with nothing in between; ``None``: none is promised."""
    output_span: tuple[int, int]
    """Where the promised output stands in the page."""


def pages() -> list[Path]:
    """Every page of the documentation, the top-level ones included."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(text: str, language: str = "python") -> list[Block]:
    """The blocks of a language, in order."""
    fences = list(_FENCE.finditer(text))
    found: list[Block] = []
    for fence, following in zip_longest(fences, fences[1:]):
        words = tuple(fence["info"].split())
        if words[:1] != (language,):
            continue
        output, span = None, (fence.end(), fence.end())
        if following is not None and following["info"].strip() == "text":
            between = text[fence.end() : following.start()]
            if not between.strip():
                output, span = following["body"], following.span("body")
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(line, words, fence["body"], output, span))
    return found


def run(block: Block, namespace: dict[str, object], *, page: str) -> str:
    """Execute a block in a namespace; returns what it printed."""
    # The empty lines make a traceback's line number that of the page.
    source = "\n" * block.line + block.code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, page, "exec"), namespace)
    return printed.getvalue()


def links(text: str) -> Iterator[str]:
    """Targets of the inline links that stand outside of fenced blocks."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        yield match["target"]


def rewrite(path: Path) -> None:
    """Run a page from top to bottom and put what it prints into it."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    outputs: list[tuple[tuple[int, int], str]] = []
    for block in blocks(text):
        if block.words == ("python",):
            printed = run(block, namespace, page=path.name)
            if block.output is not None:
                outputs.append((block.output_span, printed))
    for (start, end), printed in reversed(outputs):
        text = text[:start] + printed + text[end:]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
