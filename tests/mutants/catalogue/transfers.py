"""Bugs in copies between the device's memory and the host's, and in images of states."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_TRANSFERS = "adapters/torch_device/transfers.py"
_WORKER = "adapters/torch_device/worker.py"
_PREPARE = "adapters/torch_device/prepare.py"
_ARENAS = "adapters/ragged/arenas.py"
_IMAGES = "adapters/ragged/images.py"

_MOVES = "tests/torch_device/test_transfers.py"
_ARENA_TESTS = "tests/torch_device/test_host_arenas.py::test_"
_THREADS = "tests/torch_device/test_transfer_worker.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "parked-the-wrong-way",
        "Parking reads the device's memory and writes the host's.",
        _TRANSFERS,
        "            host.states.copy(row.source, row.target, self.arenas.states)\n",
        "            self.arenas.states.copy(row.target, row.source, host.states)\n",
        rule="nothing ever writes into a session's state",
        near=(_MOVES,),
    ),
    Mutant(
        "parked-without-its-pages",
        "A state that is parked takes its pages along.",
        _TRANSFERS,
        "            host.pages.copy_all(pairs, self.arenas.pages)\n",
        "            host.pages.copy_all(pairs[1:], self.arenas.pages)\n",
        rule="a state comes back to the bit",
        near=(_MOVES,),
    ),
    Mutant(
        "read-out-of-the-wrong-place",
        "A state is read out of the place where it is.",
        _TRANSFERS,
        "                self.arenas.at(row.place),\n",
        "                self.arenas,\n",
        rule="a state comes back to the bit",
        near=(_MOVES,),
    ),
    Mutant(
        "two-writers-of-one-slot",
        "A transfer that would write one slot from two rows is refused.",
        _TRANSFERS,
        "        _check_targets(step)\n",
        "",
        rule="exclusive xor frozen",
        near=(_MOVES,),
    ),
    Mutant(
        "pages-taken-from-the-wrong-place",
        "Pages that a turn starts from come from the place of its base.",
        _PREPARE,
        "        arenas.pages.copy_all(pairs, arenas.at(place).pages)",
        "        arenas.pages.copy_all(pairs, arenas.pages)",
        rule="a state comes back to the bit",
        near=(_MOVES,),
    ),
    Mutant(
        "stretch-one-page-short",
        "Pages that follow each other are copied at once, and all of them.",
        _ARENAS,
        "            count += 1\n",
        "            count += count == 1\n",
        rule="a state comes back to the bit",
        near=(_ARENA_TESTS + "pages_that_follow_each_other_are_all_copied",),
    ),
    Mutant(
        "image-loaded-past-its-position",
        "What an image leaves of its last page is cleared.",
        _IMAGES,
        "            positions[len(part) :].zero_()\n",
        '            positions[len(part) :].fill_(float("nan"))\n',
        rule="what was not computed is never read",
        near=(_MOVES,),
    ),
    Mutant(
        "dropped-pages-counted-twice",
        "An image that keeps more than its row wants is loaded from where the row begins.",
        _IMAGES,
        "row.pages, source[:, dropped:])",
        "row.pages, source)",
        rule="a state comes back to the bit",
        near=(_MOVES + "::test_an_image_that_keeps_more_is_loaded_from_where_its_row_begins",),
    ),
    Mutant(
        "image-of-something-else-loaded",
        "An image that isn't one of this model's states costs its own row, and is not loaded.",
        "adapters/image_check.py",
        "        if (array.dtype, array.shape) != (kind.dtype, shape):\n",
        "        if array.dtype != kind.dtype:\n",
        rule="bad input costs nobody else",
        near=(_MOVES,),
    ),
    Mutant(
        "stopped-worker-answers-nobody",
        "A transfer that comes after the stop is answered all the same.",
        _WORKER,
        "                if self._is_stopping:\n                    lane.stop()\n",
        "",
        rule="a completion is one message",
        near=(_THREADS,),
    ),
    Mutant(
        "error-ends-the-thread",
        "What raises is reported as failed, and costs nothing that comes after it.",
        _WORKER,
        "            return self._fault(error)\n\n    def _fault",
        "            raise\n\n    def _fault",
        rule="a completion is one message",
        near=(_THREADS,),
    ),
    Mutant(
        "failed-image-is-committed",
        "What the device could not load is given back, and the turn goes on from its log.",
        "kernel/scheduling/row_judge.py",
        "        if is_undefined:\n",
        "        if is_undefined and not turn.draws:\n",
        rule="what was not copied is never used",
        near=("tests/kernel/test_refused_images.py",),
    ),
]
