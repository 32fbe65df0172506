"""Move faults, planted into the sources of this repository, each as a person might write it.

A fault is a change of text at one :class:`~tests.lint.sites.Site`. It names the rules that may tell
of it; a program with a fault still parses.
"""

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from tests.lint.kinds import KINDS, Kind
from tests.lint.sites import Site, sites_in, sources

__all__ = ["KINDS", "Fault", "faults"]


@attrs.frozen
class Fault:
    """One planted fault.

    Attributes:
        seed: which one of :func:`faults`.
        kind: of :data:`KINDS`.
        line: where the site was, before the change.
        rules: any of them tells of it.
        text: the whole file with the fault.
    """

    seed: int
    kind: str
    path: str
    function: str
    line: int
    rules: tuple[str, ...]
    text: str


def faults(count: int, *, first_seed: int = 0) -> Iterator[Fault]:
    """Plant ``count`` faults: the kinds in turn, each at the site with the fewest faults so far.

    Which of those is drawn by the seed. No two faults are the same.
    """
    texts = sources()
    sites = [site for path, text in texts.items() for site in sites_in(path, text)]
    random.Random(first_seed).shuffle(sites)
    left = {name: list(sites) for name in KINDS}
    used: Counter[Site] = Counter()
    seen: set[str] = set()
    seed, end = first_seed, first_seed + count
    while any(left.values()) and seed < end:
        for name, places in left.items():
            planted = _next(KINDS[name], places, used, texts, seen)
            if planted is not None and seed < end:
                site, text = planted
                used[site] += 1
                rules = KINDS[name].rules
                yield Fault(seed, name, site.path, site.function, site.start, rules, text)
                seed += 1


def _next(
    kind: Kind, places: list[Site], used: Counter[Site], texts: Mapping[str, str], seen: set[str]
) -> tuple[Site, str] | None:
    """Plant a fault at the first of the least used places that takes it."""
    places.sort(key=lambda site: used[site])
    while places:
        site = places.pop(0)
        text = _plant(kind, texts[site.path], site)
        if text is not None and text not in seen:
            seen.add(text)
            return site, text
    return None


def _plant(kind: Kind, text: str, site: Site) -> str | None:
    if kind.drops and site.is_test:
        return None
    changed = kind.change(text.splitlines(), site)
    if changed is None:
        return None
    after = "\n".join(changed) + "\n"
    try:
        ast.parse(after)
    except SyntaxError:
        return None
    return after if after != text else None
