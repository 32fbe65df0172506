"""Planted bugs of the museum's scenarios: in what a cache or a file keeps, and what is found."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "dropped-turn-leaves-its-state",
        "What a turn leaves in the prefix cache, a step of its own has written.",
        "kernel/scheduling/workload.py",
        "        self.parking.give_back_parked(turn)\n"
        "        if claim is not None:\n"
        "            self.port.rollback(claim)\n",
        "        self.parking.give_back_parked(turn)\n"
        "        cache = self.prefixes.cache\n"
        "        if claim is not None and cache is not None:\n"
        "            turn.position = turn.target - 1\n"
        "            leave_state(cache, turn, claim)\n"
        "        elif claim is not None:\n"
        "            self.port.rollback(claim)\n",
    ),
    Mutant(
        "export-leaves-the-state-away",
        "What is saved of a session is its log and its state.",
        "kernel/sessions/tiers.py",
        "        reply.answer(Exported(record, image))\n        then()\n",
        "        reply.answer(Exported(record, None))\n        then()\n",
        rule="a moved state is bit-identical",
    ),
    Mutant(
        "damaged-file-is-taken",
        "A file whose checksum is wrong is refused before anything of it is loaded.",
        "adapters/session_files/format.py",
        'if metadata.get("sha256") != _digest(arrays, signed):',
        'if metadata.get("sha256") == "":',
        rule="a damaged file is refused",
    ),
]
