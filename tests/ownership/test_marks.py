"""Marks: erased for the checkers of types, kept for the checker of moves."""

from collections.abc import Sequence
from typing import get_args, get_type_hints

from ownership import BatchOwned, BatchPort, Consume, Lease, Owns, SessionOwned, SessionPort
from ownership.marks import Mark


def test_a_mark_is_the_type_itself() -> None:
    """A function that consumes a handle is called like any other."""

    def consume(claim: Consume[BatchOwned]) -> None: ...

    assert get_type_hints(consume)["claim"] is BatchOwned


def test_marks_can_be_read_from_the_hints() -> None:
    """The move checker and the docs find them there."""

    class Keeper:
        claims: Owns[dict[str, BatchOwned]]

    hint = get_type_hints(Keeper, include_extras=True)["claims"]

    assert hint.__metadata__ == (Mark.OWNS,)
    assert hint.__origin__ == dict[str, BatchOwned]


def test_the_verbs_that_spend_an_argument_say_so() -> None:
    """Everything unmarked is borrowed."""

    def spent(verb: object) -> set[object]:
        hints = get_type_hints(verb, include_extras=True).values()
        parts = [part for hint in hints for part in (hint, *get_args(hint))]
        marked = [part for part in parts if getattr(part, "__metadata__", ()) == (Mark.CONSUME,)]
        return {part.__origin__ for part in marked}

    assert spent(BatchPort.launch) == {Sequence[BatchOwned]}
    assert spent(BatchPort.land) == {Lease}
    assert spent(BatchPort.rollback) == {BatchOwned}
    assert spent(BatchPort.grow) == set()
    assert spent(SessionPort.commit) == {BatchOwned, SessionOwned}
    assert spent(SessionPort.close) == {SessionOwned}
