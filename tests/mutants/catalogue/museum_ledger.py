"""Bugs in the ledger that scenarios of the museum are checked with."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "refusal-keeps-a-slot",
        "a reserve that is refused for want of pages has changed nothing",
        "ownership/admission.py",
        'return Refused("room", slots_short, max(pages_short, 0))',
        "return (slots_short or _new_claim(book, pool, custodian, source, 0, 0, turn)) and Refused("
        '"room", slots_short, max(pages_short, 0))',
    ),
    Mutant(
        "turn-borrows-its-sessions-slot",
        "a turn works in a slot of its own",
        "ownership/admission.py",
        "        slot, generations = pool.free_slots.pop(), book.generations\n",
        "        slot, generations = pool.free_slots.pop(), book.generations\n"
        "        slot = slot if source is None else source.slot  # type: ignore\n",
    ),
    Mutant(
        "release-forgets-the-tail",
        "a claim that ends gives back its own pages",
        "ownership/endings.py",
        "    pages = record.exclusive\n",
        "    pages = record.exclusive[:0]\n",
    ),
    Mutant(
        "absent-slot-is-given-back",
        "no slot is not a slot",
        "ownership/endings.py",
        "    if slot is not NO_SLOT:\n        pool.free_slots",
        "    if slot is not None:\n        pool.free_slots",
    ),
    Mutant(
        "slotless-claim-names-slot-zero",
        "a claim without a slot says so",
        "ownership/admission.py",
        "    slot: SlotIndex | NoSlot = NO_SLOT",
        "    slot: SlotIndex | NoSlot = SlotIndex(0)",
    ),
    Mutant(
        "first-copy-ends-the-drain",
        "a base drains until the last copy out of it has landed",
        "ownership/endings.py",
        "    if base.pins or base.kind is not DRAINING:",
        "    if base.kind is not DRAINING:",
    ),
    Mutant(
        "unwritten-state-is-published",
        "only a valid state is committed or published",
        "ownership/endings.py",
        "    if record.content is not VALID:",
        "    if record.content is None:",
    ),
    Mutant(
        "rows-share-one-length",
        "each row of a step absorbs what was planned for it",
        "ownership/stepping.py",
        "        record.position = position = record.position + absorbed",
        "        record.position = position = record.position + max(tokens)",
    ),
    Mutant(
        "pages-are-frozen-on-another-grid",
        "the next page is full where the position says so",
        "ownership/stepping.py",
        "            record.next_full = (full + 1) * size",
        "            record.next_full += size",
    ),
    Mutant(
        "tail-on-a-page-edge-minus-one-is-lost",
        "a partly filled last page is copied from the base, however full it is",
        "ownership/placements.py",
        "        if table and position % page_size:",
        "        if table and (position + 1) % page_size and position % page_size:",
    ),
    Mutant(
        "pin-ends-with-any-landing",
        "a base is pinned until the step that copied out of it has landed",
        "ownership/admission.py",
        "        source.pins += 1",
        "        source.pins += bool(book.leases)",
    ),
    Mutant(
        "closed-state-keeps-its-name",
        "a state that has ended can't be asked for",
        "ownership/endings.py",
        "        del book.names[name.holder, name.version]\n",
        "        book.names.get((name.holder, name.version))\n",
    ),
    Mutant(
        "shared-run-ends-with-its-first-owner",
        "a run ends with the last claim that names it",
        "ownership/runs.py",
        "            run.count -= 1\n",
        "            run.count = 0\n",
    ),
    Mutant(
        "growth-forgets-the-frozen-pages",
        "a claim grows by the pages that it lacks",
        "ownership/admission.py",
        "    missing = -(-need.positions // size) - record.first_page - len(record.page_table)",
        "    missing = -(-need.positions // size) - record.first_page - len(record.exclusive)",
    ),
    Mutant(
        "audit-is-blind-to-aliases",
        "the audit sees a page or a slot that two have",
        "ownership/conservation.py",
        "        if times != 1:",
        "        if times > 2:",
    ),
    Mutant(
        "double-rollback-is-silent",
        "the second use of a handle raises",
        "ownership/ports.py",
        '        endings.rollback(self._book, self._custodian, claim, "BatchPort.rollback")',
        "        id(claim) in self._book.live and "
        'endings.rollback(self._book, self._custodian, claim, "BatchPort.rollback")',
    ),
    Mutant(
        "one-copy-ends-every-pin",
        "each copy out of a base is a pin of its own",
        "ownership/endings.py",
        "    base.pins -= 1\n",
        "    base.pins = 0\n",
    ),
    Mutant(
        "pin-needs-a-full-page",
        "a base is pinned whether or not it has full pages",
        "ownership/admission.py",
        "        source.pins += 1",
        "        source.pins += source.tip is not None",
    ),
]
