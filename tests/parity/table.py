"""The table of ``docs/models.md``, and the figures that it is made of."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.parity.paths import PATHS
from tests.parity.result import CACHED, LARGEST, TOLERANCES, CaseResult
from tests.results.digest import ROOT

__all__ = ["BEGIN", "END", "PAGE", "figures", "page_with", "table"]

PAGE: Final = ROOT / "docs" / "models.md"
BEGIN: Final = "<!-- written by `python -m tests.parity --write` -->"
END: Final = "<!-- end of the table -->"

_NAMES = {"chunks": "chunkings", "mixed": "mixed batch"}


def figures(results: Sequence[CaseResult]) -> dict[str, Any]:
    """What is kept of a run: the largest of everything, and each shape by itself."""
    errors = {
        dtype: max(max(result.errors[dtype].values()) for result in results) for dtype in TOLERANCES
    }
    halves = {dtype: [result.half[dtype] for result in results] for dtype in LARGEST}
    medians = {
        f"{dtype}_median": max(half.median for half in found) for dtype, found in halves.items()
    }
    dense = {
        dtype: max(half.largest for half in found if not half.has_experts)
        for dtype, found in halves.items()
    }
    counts = [count for result in results for count in (result.generated, result.worlds)]
    return {
        "families": len({result.case.family for result in results}),
        "shapes": len(results),
        **errors,
        **dense,
        **medians,
        "tokens": sum(count.compared for count in counts),
        "differing_tokens": sum(count.differing - count.ties for count in counts),
        "ties": sum(count.ties for count in counts),
        "faults": [fault for result in results for fault in result.faults],
        "results": {result.case.key: _kept(result) for result in results},
    }


def _kept(result: CaseResult) -> dict[str, Any]:
    return {
        "errors": result.errors,
        "half": {name: attrs.asdict(half) for name, half in result.half.items()},
        "peer": {"stepped": result.peer.stepped, "appended": result.peer.appended},
        "generated": attrs.asdict(result.generated),
        "worlds": attrs.asdict(result.worlds),
    }


def table(results: Mapping[str, Any]) -> str:
    """The table in Markdown, from the ``results`` of :func:`figures`."""
    names = [_NAMES.get(path, path) for path in PATHS]
    head = ["family", "shape", *names, "bfloat16", "float16", "generate", "worlds"]
    lines = [_row(head), _row(["---"] * len(head))]
    previous = ""
    for key, kept in results.items():
        family, _, shape = key.partition(":")
        shown = "" if family == previous else f"`{family}`"
        previous = family
        lines.append(_row([shown, shape, *_cells(kept)]))
    return "\n".join(lines) + "".join(f"\n\n{said}" for said in _where_the_peer_differs(results))


def _cells(kept: Mapping[str, Any]) -> Iterator[str]:
    errors = kept["errors"]
    for path in PATHS:
        yield f"{errors['float32'][path]:.0e} / {errors['float64'][path]:.0e}"
    for dtype in LARGEST:
        half = kept["half"][dtype]
        yield f"{half['largest']:.0e}, {half['median']:.0e} / {half['peer']:.0e}"
    for what in ("generated", "worlds"):
        count = kept[what]
        same = count["compared"] - count["differing"]
        ties = f", {count['ties']} ties" if count["ties"] else ""
        yield f"{same} of {count['compared']}{ties}" if count["compared"] else "—"


def _where_the_peer_differs(results: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the peer's cached paths."""
    peer = "`transformers`"
    for what, how in (("stepped", "one by one"), ("appended", "several at once")):
        off = {
            key: kept["peer"][what] for key, kept in results.items() if kept["peer"][what] >= CACHED
        }
        if off:
            each = ", ".join(f"{key} {error:.0e}" for key, error in off.items())
            yield f"With tokens added to its cache {how}, {peer} differs from itself: {each}."
    own = [
        kept["peer"][what]
        for kept in results.values()
        for what in ("stepped", "appended")
        if kept["peer"][what] < CACHED
    ]
    if own:
        yield f"Everywhere else its cached paths agree with the uncached one, to {max(own):.0e}."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page_with(written: str, page: Path = PAGE) -> str:
    """The text of the page, with ``written`` between its markers."""
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{written}\n\n{END}{tail}"
