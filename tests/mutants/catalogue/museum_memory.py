"""Planted bugs of the museum's scenarios: in memory, positions and bases."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "rollback-keeps-the-pin",
        "A rolled back claim lets go of the base that it has pinned.",
        "ownership/endings.py",
        "base_given_back = None if base is None else unpin(book, base)",
        "base_given_back = None",
        rule="the pin is part of the working claim",
    ),
    Mutant(
        "row-writes-into-its-base",
        "A step writes into the slot of the working claim, never into that of its base.",
        "kernel/devices/gpu_pool.py",
        "        place.slot,\n",
        "        place.initial.slot if isinstance(place.initial, CopyFrom) else place.slot,\n",
        rule="nothing ever writes into a SessionOwned slot",
    ),
    Mutant(
        "close-forgets-the-checkpoint",
        "A session that closes gives back its checkpoint too.",
        "kernel/sessions/kept_states.py",
        "        self.marks.clear()\n        for version in list(self.kept):\n",
        "        self.marks.clear()\n        for version in list(self.kept)[-1:]:\n",
    ),
    Mutant(
        "landing-keeps-the-base",
        "A claim that has landed no longer pins its base.",
        "ownership/stepping.py",
        "                bases.append(base)\n                record.base = None\n",
        "                bases.append(base)\n",
        rule="the pin ends when the step that copied lands",
    ),
    Mutant(
        "slot-forgotten-beside-pages",
        "The end of a claim gives back its slot as well as its pages.",
        "ownership/endings.py",
        "    if slot is not NO_SLOT:\n",
        "    if slot is not NO_SLOT and not pages:\n",
    ),
    Mutant(
        "tables-padded-with-the-first-page",
        "A padded page table points to the page that nobody can own.",
        "adapters/ragged/reads.py",
        "np.full((len(rows), width), context.padding_page, dtype=np.int64)",
        "np.full((len(rows), width), 0, dtype=np.int64)",
        rule="padding uses what no handle can name",
    ),
    Mutant(
        "page-table-is-the-exclusive-list",
        "A claim's page table is a list of its own.",
        "ownership/admission.py",
        "table, full = own.copy(), first_page",
        "table, full = own, first_page",
    ),
    Mutant(
        "later-turn-starts-from-zeros",
        "A later turn's slot starts as a copy of its base.",
        "kernel/devices/gpu_pool.py",
        "        initial = CopyOf(place.initial.slot, place.source)\n",
        '        initial = "zeros"\n',
    ),
    Mutant(
        "copied-at-every-step",
        "A base is copied once, by the claim's first step.",
        "ownership/stepping.py",
        "        if record.content is not VALID:\n            record.content = VALID\n",
        "        if record.content is not VALID:\n",
    ),
    Mutant(
        "page-table-cut-in-tokens",
        "A base's page table is cut at its full pages.",
        "ownership/admission.py",
        "source.page_table[: full - first_page] + own",
        "source.page_table[:position] + own",
    ),
    Mutant(
        "pads-count-as-tokens",
        "A padded cell of the scan neither decays a state nor adds to it.",
        "adapters/ragged/indices.py",
        "filled = np.zeros_like(token_of_cell)",
        "filled = np.ones_like(token_of_cell)",
    ),
    Mutant(
        "keep-none-of-it-does-nothing",
        "A late interrupt that keeps nothing cuts the whole answer.",
        "kernel/sessions/state.py",
        "        if keep is None or keep == last.kept:\n",
        "        if not keep or keep == last.kept:\n",
    ),
    Mutant(
        "no-checkpoint-is-kept",
        "The state that a turn started from stays, for an interrupt that comes late.",
        "kernel/sessions/kept_states.py",
        "        stays = keep or self._is_named(old) or old not in self.kept\n",
        "        keep = False\n        stays = self._is_named(old) or old not in self.kept\n",
    ),
    Mutant(
        "state-kept-beyond-a-cut",
        "A state that lies beyond the log gives way, with or without a checkpoint.",
        "kernel/sessions/kept_states.py",
        "            if self._view.position(self.kept[version]) > length - 1:\n",
        "            if self.before is not NO_STATE and length <= self.position(version):\n",
    ),
    Mutant(
        "ended-workers-not-looked-for",
        "Whether the worker of a dead pool has ended is asked by the clock.",
        "kernel/devices/recovery.py",
        "            self._dispatcher.call_at(at, self._poll_quarantine)\n",
        "            del at\n",
    ),
    Mutant(
        "base-found-by-version-alone",
        "A base is found by whose it is, and not by its version alone.",
        "ownership/admission.py",
        "            source = book.names.get((base.holder, base.version))\n",
        "            named = [record for (_, v), record in book.names.items() if v == "
        "base.version]\n"
        "            source = named[0] if named else None\n",
    ),
    Mutant(
        "pinned-before-the-check",
        "A reserve that is refused has pinned nothing.",
        "ownership/admission.py",
        '        return Refused("room", slots_short, max(pages_short, 0))\n',
        "        if source is not None:\n"
        "            source.pins += 1\n"
        '        return Refused("room", slots_short, max(pages_short, 0))\n',
        rule="reserve is all or nothing",
    ),
]
