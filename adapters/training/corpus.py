"""Rebuild the training corpus from Debian packages of public-domain books.

Every source is a package whose copyright file puts the text in the public domain (or, for the
novels, whose author died in 1817 and whose packaging is MIT). A document is one chapter. Every
fiftieth chapter is held out; a Bible chapter is held out of both translations at once, or the
model would have read the other one. The corpus itself is never committed: this script makes it
again, byte for byte, from the same package versions.

    python -m adapters.training.corpus --work-dir DIR
"""

import argparse
import gzip
import hashlib
import json
import re
import struct
import subprocess
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

__all__ = [
    "SOURCES",
    "Document",
    "Source",
    "clean",
    "documents",
    "r_vector",
    "read_corpus",
    "without_markup",
]

HELD_OUT_EVERY = 50
CORPUS_FILE = "corpus.jsonl.gz"
SOURCES_FILE = "sources.json"


@attrs.frozen
class Source:
    """One Debian package and what is taken from it."""

    package: str
    data: str
    """Folder inside the package, relative to its root."""
    form: Literal["sword", "r-novels"]
    title: str
    licence: str


SOURCES = (
    Source(
        package="sword-text-kjv",
        data="usr/share/sword/modules/texts/ztext/engKJV2006eb",
        form="sword",
        title="King James Bible (1769 text)",
        licence="public domain",
    ),
    Source(
        package="sword-text-web",
        data="usr/share/sword/modules/texts/ztext/engWEB2015eb",
        form="sword",
        title="World English Bible with Deuterocanon, adapted",
        licence="public domain",
    ),
    Source(
        package="r-cran-janeaustenr",
        data="usr/lib/R/site-library/janeaustenr/data",
        form="r-novels",
        title="Jane Austen: the six novels (1811-1818)",
        licence="public domain (text), MIT (package)",
    ),
)


@attrs.frozen
class Document:
    """One chapter as plain ASCII prose."""

    package: str
    name: str
    text: str
    held_out: bool


_PLAIN = str.maketrans(
    {
        "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2014": "--",
        "\u2013": "-", "\u2026": "...", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe",
        "\u2011": "-", "\u00b6": "", "_": "",
    }
)  # fmt: skip


def clean(text: str) -> str:
    """Reduce a text to ASCII paragraphs, one a line, with single spaces."""
    folded = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    ascii_text = re.sub(r"[^\n -~]|[][\\\\*<>&%/]", "", folded)
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in ascii_text.split("\n"))
    return "\n".join(line for line in lines if line)


def _sword_chapters(folder: Path) -> Iterator[tuple[str, str]]:
    """Chapters of a SWORD zText module: its OSIS markup tells where each begins."""
    for testament in ("ot", "nt"):
        blocks = (folder / f"{testament}.bzs").read_bytes()
        index = (folder / f"{testament}.bzv").read_bytes()
        packed = (folder / f"{testament}.bzz").read_bytes()
        books = [
            zlib.decompress(packed[start : start + size])
            for start, size, _ in struct.iter_unpack("<III", blocks)
        ]
        verses = (
            books[book][start : start + size].decode("utf-8")
            for book, start, size in struct.iter_unpack("<IIH", index)
            if size
        )
        marked = "\n\n".join(verses)
        pieces = re.split(r'<chapter [^>]*?osisID="([^"]+)"[^>]*?/>', marked)
        yield from zip(pieces[1::2], pieces[2::2], strict=True)


def without_markup(osis: str) -> str:
    """Drop notes and headings; a paragraph mark becomes a new line, a verse joins the last."""
    text = re.sub(r"<(note|title)\b[^>]*?(?<!/)>.*?</\1>", "", osis, flags=re.DOTALL)
    text = re.sub(r"\s*\n\s*", " ", text)
    text = re.sub(r"<(div|lg)\b[^>]*sID=[^>]*type=\"x-p\"[^>]*>|<lg\b[^>]*sID[^>]*>", "\n", text)
    text = re.sub(r"<(l|lb|div|milestone|chapter)\b[^>]*>", " ", text)
    return re.sub(r"<[^>]*>", "", text)


def _r_strings(folder: Path) -> Iterator[list[str]]:
    """Each character vector of an R data file (lazy-load blocks of XDR-serialized objects)."""
    stored = (folder / "Rdata.rdb").read_bytes()
    while len(stored) > 4:
        unpacker = zlib.decompressobj()
        block = unpacker.decompress(stored[4:])
        stored = unpacker.unused_data
        start = block.find(struct.pack(">I", 16))
        if start >= 0:
            yield list(r_vector(block, start + 4))


def r_vector(block: bytes, offset: int) -> Iterator[str]:
    (count,) = struct.unpack_from(">I", block, offset)
    offset += 4
    for _ in range(count):
        kind, size = struct.unpack_from(">Ii", block, offset)
        if kind & 0xFF != 9:
            raise ValueError(f"not a character vector: object kind {kind & 0xFF} at {offset}")
        offset += 8
        yield block[offset : offset + max(size, 0)].decode("utf-8")
        offset += max(size, 0)


_CHAPTER = re.compile(r"^\s*(chapter|volume)\s+[ivxlc\d]+\.?\s*$", re.IGNORECASE)


def _novel_chapters(folder: Path) -> Iterator[tuple[str, str]]:
    """Chapters of the novels; what stands before a novel's first chapter is left out."""
    for lines in _r_strings(folder):
        title = " ".join(line for line in lines[:3] if line).title()
        starts = [i for i, line in enumerate(lines) if _CHAPTER.match(line)]
        ends = [*starts[1:], len(lines)]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            paragraphs = "\n".join(lines[start + 1 : end]).split("\n\n")
            text = "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
            yield f"{title} {number}", text


def _chapters(source: Source, root: Path) -> Iterator[tuple[str, str]]:
    folder = root / source.data
    if source.form == "r-novels":
        found = _novel_chapters(folder)
    else:
        found = ((name, without_markup(osis)) for name, osis in _sword_chapters(folder))
    for name, text in found:
        plain = clean(text)
        if len(plain) > 200:
            yield name, plain


def documents(roots: dict[str, Path]) -> Iterator[Document]:
    """All chapters; a name (a chapter's place in the Bible, a novel's chapter) counts once."""
    numbers: dict[str, int] = {}
    for source in SOURCES:
        for name, text in _chapters(source, roots[source.package]):
            number = numbers.setdefault(name, len(numbers))
            held_out = number % HELD_OUT_EVERY == HELD_OUT_EVERY // 2
            yield Document(source.package, name, text, held_out)


def fetch(source: Source, folder: Path) -> dict[str, str]:
    """Download and unpack one package; returns what pins it down."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.deb")):
        subprocess.run(["apt-get", "download", source.package], cwd=folder, check=True)
    (deb,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", deb.name, "root"], cwd=folder, check=True)
    return {
        "package": source.package,
        "version": deb.name.split("_")[1],
        "sha256": hashlib.sha256(deb.read_bytes()).hexdigest(),
        "title": source.title,
        "licence": source.licence,
    }


def read_corpus(work_dir: Path) -> list[Document]:
    """The corpus that this script wrote under ``work_dir``."""
    with gzip.open(work_dir / CORPUS_FILE, "rt", encoding="utf-8") as lines:
        return [Document(**json.loads(line)) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the training corpus.")
    parser.add_argument("--work-dir", type=Path, required=True)
    work_dir: Path = parser.parse_args().work_dir
    facts = [fetch(source, work_dir / "packages" / source.package) for source in SOURCES]
    roots = {source.package: work_dir / "packages" / source.package / "root" for source in SOURCES}
    found = list(documents(roots))
    with gzip.GzipFile(work_dir / CORPUS_FILE, "wb", mtime=0) as out:
        for document in found:
            out.write((json.dumps(attrs.asdict(document)) + "\n").encode())
    print("package | version | documents | held out | bytes | licence")
    for fact in facts:
        own = [document for document in found if document.package == fact["package"]]
        fact["documents"] = str(len(own))
        fact["held_out"] = str(sum(document.held_out for document in own))
        fact["bytes"] = str(sum(len(document.text) for document in own))
        keys = ("package", "version", "documents", "held_out", "bytes", "licence")
        print(" | ".join(fact[key] for key in keys))
    (work_dir / SOURCES_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
