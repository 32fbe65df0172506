"""Watches every ledger that a test makes; when the watch ends, nothing of it is left.

``Ledger``, ``Core`` and ``Door`` are patched for as long as the watch is kept. So a suite that
never watches runs the very code that it ships with.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import attrs

from kernel.actors.door import Door
from kernel.engine.core import Core
from kernel.ids import TurnId
from kernel.testing.leaks import NOT_THE_USERS, Held, Site, Witness, report, site_outside
from ownership import Ledger, Observer

__all__ = ["Watch", "watching"]


@attrs.define(eq=False, repr=False)
class Watch:
    """The ledgers that were made while this watch was kept."""

    _witnesses: list[Witness] = attrs.field(factory=list[Witness])
    _submits: dict[int, dict[str, Site | None]] = attrs.field(
        factory=dict[int, "dict[str, Site | None]"]
    )
    """By the door that the turns of an engine come through."""
    _kept_alive: list[object] = attrs.field(factory=list[object])

    def held(self) -> list[Held]:
        """Claims that are held now, those of each ledger in the order in which they were taken."""
        return [held for witness in self._witnesses for held in witness.held()]

    def report(self, root: str = "") -> str:
        """Say what is held and where it was taken; empty when nothing is."""
        return report(self.held(), root)

    def observed(self, sound: property) -> property:
        """``Ledger.observer`` with a witness before whoever is asked for."""

        def fget(ledger: Ledger) -> Observer | None:
            observer: Observer | None = sound.__get__(ledger)
            return observer.passes_to if isinstance(observer, Witness) else observer

        def fset(ledger: Ledger, observer: Observer | None) -> None:
            present = sound.__get__(ledger)
            if isinstance(present, Witness):
                present.pass_to(observer)
            elif ledger.view.counters.transitions:
                sound.__set__(ledger, observer)  # older than the watch: it holds what nobody saw
            else:
                witness = Witness(observer)
                self._witnesses.append(witness)
                sound.__set__(ledger, witness)

        return property(fget, fset, doc=sound.__doc__)

    def opened(self, sound: Callable[..., None]) -> Callable[..., None]:
        """``Core.__init__`` that tells the ledger's witness which turns come through which door."""

        def init(core: Core, *args: Any, **options: Any) -> None:
            count = len(self._witnesses)
            sound(core, *args, **options)
            self._kept_alive.append(core.door)  # so that its id is nobody else's
            for witness in self._witnesses[count:]:
                self._submits[id(core.door)] = witness.submits

        return init

    def entered(self, sound: Callable[[Door, TurnId, int], None]) -> Callable[..., None]:
        """``Door.enter`` that notes who submits."""

        def enter(door: Door, turn: TurnId, tokens: int) -> None:
            sound(door, turn, tokens)
            submits = self._submits.get(id(door))
            if submits is not None:
                submits[turn] = site_outside(NOT_THE_USERS)

        return enter


@contextmanager
def watching() -> Generator[Watch]:
    """Watch the ledgers that are made within the block, engines' and bare ones."""
    watch = Watch()
    sound: list[tuple[type, str, Any]] = [
        (Ledger, "observer", vars(Ledger)["observer"]),
        (Core, "__init__", Core.__init__),
        (Door, "enter", Door.enter),
    ]
    watched = [watch.observed(sound[0][2]), watch.opened(sound[1][2]), watch.entered(sound[2][2])]
    try:
        for (owner, name, _), replacement in zip(sound, watched, strict=True):
            setattr(owner, name, replacement)
        yield watch
    finally:
        for owner, name, original in sound:
            setattr(owner, name, original)
