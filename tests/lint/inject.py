"""Move faults, planted into the sources of this repository, each as a person might write it.

A fault is a change of text at one :class:`~tests.lint.sites.Site`. It names the rules that may tell
of it; a program with a fault still parses.
"""

import ast
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

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
    planted = {name: list(_planted(kind, texts, sites)) for name, kind in KINDS.items()}
    used: Counter[Site] = Counter()
    seed = first_seed
    while any(planted.values()):
        for name, places in planted.items():
            if places and seed < first_seed + count:
                site, text = place = min(places, key=lambda place: used[place[0]])
                places.remove(place)
                used[site] += 1
                rules = KINDS[name].rules
                yield Fault(seed, name, site.path, site.function, site.start, rules, text)
                seed += 1
        if seed == first_seed + count:
            return


def _planted(
    kind: Kind, texts: Mapping[str, str], sites: Sequence[Site]
) -> Iterator[tuple[Site, str]]:
    seen: set[str] = set()
    for site in sites:
        text = _plant(kind, texts[site.path], site)
        if text is not None and text not in seen:
            seen.add(text)
            yield site, text


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
