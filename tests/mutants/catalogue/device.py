"""Bugs in the torch device: memory that is not what the plan says."""

from tests.mutants.mutant import Mutant

_PREPARE = "adapters/torch_device/prepare.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "device-skips-zeroing",
        "A slot that starts from nothing is cleared.",
        _PREPARE,
        "        state.fill(zeroed, 0.0)",
        "        state.fill(zeroed[1:], 0.0)",
        rule="zeros is a value of its own",
    ),
    Mutant(
        "device-skips-the-tail",
        "The tail of a base is copied before the row is computed.",
        _PREPARE,
        "            _copy(arenas, (row.tail_copy,))\n",
        "            _copy(arenas, ())\n",
        rule="exclusive xor frozen",
    ),
    Mutant(
        "device-copies-the-wrong-way",
        "A copy reads its base and writes the turn's own slot.",
        _PREPARE,
        "            state.copy(initial.slot, slot, arenas.at(initial.place).states)",
        "            arenas.at(initial.place).states.copy(slot, initial.slot, state)",
        rule="nothing ever writes into a session's state",
    ),
]
