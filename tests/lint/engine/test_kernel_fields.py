"""Messages and owner fields as kernel code writes them, half of them wrong."""

import pytest

from tests.lint.engine.judging import expected, found
from tests.lint.engine.kernel_style import KEEPER

PROGRAMS = {
    "messages_under_other_names": """\
    def nothing(self) -> None: ...

def matched(port: BatchPort, message: Consume[Parcel | Note]) -> None:
    match message:
        case Parcel() as parcel:
            port.rollback(parcel.claim)
        case Note() as note:
            print(note.text)

def matched_and_forgotten(port: BatchPort, message: Consume[Parcel | Note]) -> None:  # OWN003
    match message:
        case (Parcel() | Note()) as either:
            print(either.text)

def under_both_names(port: BatchPort, message: Consume[Parcel | Note]) -> None:
    match message:
        case Parcel() as parcel:
            port.rollback(parcel.claim)
            port.rollback(message.claim)  # OWN001
        case Note():
            pass

def two_names(port: BatchPort, message: Consume[Parcel]) -> None:
    same = message
    port.rollback(message.claim)
    port.rollback(same.claim)  # OWN001

def two_names_on_two_paths(port: BatchPort, message: Consume[Parcel], n: int) -> None:
    same = message
    if n:
        port.rollback(message.claim)
    else:
        port.rollback(same.claim)

def two_handles(port: BatchPort, message: Consume[Pair]) -> None:
    same = message
    port.rollback(message.one)
    port.rollback(same.two)
    port.rollback(same.one)  # OWN001

def rounds(port: BatchPort, mail: Consume[list[Parcel | Note]]) -> None:
    for message in mail:
        match message:
            case Parcel(claim=claim, text="drop"):
                port.rollback(claim)
            case Parcel() as parcel:
                port.rollback(parcel.claim)
            case Note():
                pass

def rounds_that_forget(port: BatchPort, mail: Consume[list[Parcel | Note]]) -> None:  # OWN003
    for message in mail:
        if isinstance(message, Parcel) and message.text:
            port.rollback(message.claim)

def rounds_with_two_names(port: BatchPort, mail: Consume[list[Parcel]], box: Any) -> None:
    while mail:
        message = mail.pop()
        same = message
        port.rollback(same.claim)
    while box:
        other: Parcel = box.take()
        same = other
        port.rollback(same.claim)
""",
    "pops_swaps_and_ways_out": """\
    def swapped(self, a: Consume[BatchOwned]) -> None:
        before, self.held = self.held, a
        if before is not None:
            self.port.rollback(before)

    def swapped_the_wrong_way(self, a: Consume[BatchOwned]) -> None:
        before, self.held = self.held, a  # OWN003
        if before is None:
            print("nothing was there")

    def found(self, version: int, a: Consume[BatchOwned]) -> None:
        old = self.current
        if old is NO_STATE:
            self.port.rollback(a)
            return
        self.kept[old] = self.port.commit(a, replaces=self.kept.pop(old))

    def found_and_lost(self, a: Consume[BatchOwned], keep: bool) -> None:
        old = self.current
        if old is NO_STATE:
            self.port.rollback(a)
            return
        replaced = self.kept.pop(old)  # OWN003
        if keep:
            state = self.port.commit(a, replaces=None)
        else:
            state = self.port.commit(a, replaces=replaced)
        self.kept[old] = state

    def looked_at(self, a: Consume[BatchOwned], version: int) -> None:
        if (state := self.kept.get(version)) is None or self.view.position(state) < 3:
            self.port.rollback(a)
        else:
            self.kept[version] = self.port.commit(a, replaces=self.kept.pop(version))

    def looked_at_and_closed(self, version: int) -> None:
        if (state := self.kept.get(version)) is not None:
            self.port.close(state)  # OWN004

    def popped(self, version: int) -> None:
        if (state := self.kept.pop(version, None)) is not None and self.view.position(state) > 3:
            self.port.close(state)
        elif state is not None:
            self.kept[version] = state

    def popped_and_lost(self, at: int) -> None:
        if (state := self.kept.pop(at, None)) is not None and self.view.position(state):  # OWN003
            self.port.close(state)

    def searched(self, a: Consume[BatchOwned], names: list[int]) -> None:
        for name in names:
            if name not in self.kept:
                self.kept[name] = self.port.commit(a, replaces=None)
                break
        else:
            self.port.rollback(a)

    def searched_and_lost(self, a: Consume[BatchOwned], names: list[int]) -> None:  # OWN003
        for name in names:
            if name not in self.kept:
                self.kept[name] = self.port.commit(a, replaces=None)
                break

    def guarded(self, names: list[str]) -> None:
        for name in names:
            claim = self.claims.pop(name)
            try:
                if name == "x":
                    continue
                print(name)
            finally:
                self.batch.rollback(claim)

    def guarded_and_again(self, names: list[str]) -> None:
        claim = None
        for name in names:
            claim = self.claims.pop(name)
            try:
                if name == "x":
                    break
            finally:
                self.batch.rollback(claim)
        if claim is not None:
            self.batch.rollback(claim)  # OWN001

    def inside(self, version: int) -> None:
        def close(at: int) -> None:
            self.port.close(self.kept.pop(at))

        def lose(at: int) -> None:
            state = self.kept.pop(at)  # OWN003
            print(at)

        close(version)
""",
    "a_fresh_object_begins_empty": """\
    def nothing(self) -> None: ...

class Seat:
    state: Owns[SessionOwned | None]
    all: Owns[dict[int, SessionOwned]]

    def __init__(self) -> None:
        self.state = None
        self.all = {}

    @classmethod
    def of(cls, a: Consume[SessionOwned]) -> "Seat":
        seat = cls()
        seat.state = a
        return seat

def f(a: Consume[SessionOwned]) -> Seat:
    seat = Seat()
    seat.state = a
    return seat

def g(a: Consume[SessionOwned]) -> Seat:
    seat = Seat()
    seat.all[1] = a
    return seat

def h(a: Consume[SessionOwned], b: Consume[SessionOwned]) -> Seat:  # OWN003
    seat = Seat()
    seat.state = a
    seat.state = b
    return seat

def k(seat: Seat, a: Consume[SessionOwned]) -> Seat:
    seat.state = a  # OWN003
    return seat

def l(a: Consume[SessionOwned]) -> Seat:
    seat = Seat()
    fill(seat)
    seat.state = a  # OWN003
    return seat

def fill(seat: Seat) -> None: ...

def m(port: SessionPort, items: list[int], a: Consume[dict[int, SessionOwned]]) -> list[Seat]:
    seats = []
    for item in items:
        seat = Seat()
        seat.state = a.pop(item)
        seats.append(seat)
    for rest in a.values():
        port.close(rest)
    return seats

def n(port: SessionPort, a: Consume[SessionOwned]) -> None:
    seat = Seat()
    seat.state = a
    state, seat.state = seat.state, None
    if state is not None:
        port.close(state)

def o(port: SessionPort, a: Consume[SessionOwned]) -> None:
    seat = Seat()
    seat.state = a
    port.close(a)  # OWN001

class Given:
    state: Owns[SessionOwned | None]

    def __init__(self, state: Consume[SessionOwned] | None) -> None:
        self.state = state

def given(a: Consume[SessionOwned], b: Consume[SessionOwned]) -> Given:
    seat = Given(a)
    seat.state = b  # OWN003
    return seat
""",
    "an_owner_field_that_was_emptied_takes_again": """\
    def nothing(self) -> None: ...

class Row:
    all: Owns[dict[int, SessionOwned]]
    rows: Owns[list[SessionOwned]]
    plain: dict[int, SessionOwned]
    port: SessionPort

    def __init__(self, a: Consume[SessionOwned]) -> None:
        self.all = {}
        self.all[1] = a

    def f(self, a: Consume[SessionOwned]) -> None:
        rows, self.rows = self.rows, []
        self.rows.append(a)
        for one in rows:
            self.port.close(one)

    def g(self, a: Consume[SessionOwned]) -> None:
        rows, self.rows = self.rows, []  # OWN003
        self.rows.append(a)
        print(len(rows))

    def h(self, a: Consume[SessionOwned]) -> None:
        self.all = {}  # OWN003
        self.all[1] = a
        self.all = {}  # OWN003

    def k(self, a: Consume[SessionOwned]) -> None:
        self.plain = {}
        self.plain[1] = a  # OWN008

    def l(self, a: Consume[SessionOwned]) -> None:
        rows, self.rows = self.rows, []
        self.rows.append(a)
        self.port.close(a)  # OWN001
        for one in rows:
            self.port.close(one)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_messages_and_owner_fields_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    program = KEEPER + PROGRAMS[name]

    assert found(program) == expected(program)
