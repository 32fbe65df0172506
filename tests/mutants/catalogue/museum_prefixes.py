"""Planted bugs of the museum's scenarios: in what the prefix cache keeps, and what it finds."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "dropped-turn-leaves-its-state",
        "What a turn leaves in the prefix cache, a step of its own has written.",
        "kernel/workload.py",
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
]
