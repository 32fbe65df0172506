"""What kernel code looks like: choices, rounds, matches and messages, half of them wrong."""

import pytest

from tests.lint.engine.judging import expected, found

KEEPER = """\
import enum
from typing import Generic, assert_never

class NoState(enum.Enum):
    NO_STATE = "no state"

NO_STATE = NoState.NO_STATE

class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2

    def other(self) -> "Side": ...

@attrs.frozen
class Pair:
    carries: ClassVar[tuple[str, ...]] = ("one", "two")
    one: BatchOwned
    two: BatchOwned

class Keeper:
    kept: Owns[dict[int, SessionOwned]]
    claims: Owns[dict[str, BatchOwned]]
    rows: Owns[list[BatchOwned]]
    held: Owns[BatchOwned | None]
    current: int | NoState
    port: SessionPort
    batch: BatchPort
    view: LedgerView

"""

PROGRAMS = {
    "choices_in_rounds": """\
    def each(self, names: list[int]) -> None:
        for name in names:
            state = self.kept.pop(name) if name in self.kept else None
            if state is not None:
                self.port.close(state)

    def last(self, names: list[int]) -> None:
        last = None
        for name in names:
            state = self.kept.pop(name) if name in self.kept else None
            if last is not None:
                self.port.close(last)
            last = state
        if last is not None:
            self.port.close(last)

    def last_forgotten(self, names: list[int]) -> None:
        last = None
        for name in names:
            state = self.kept.pop(name) if name in self.kept else None  # OWN003
            if last is not None:
                self.port.close(last)
            last = state

    def last_by_statement(self, names: list[int]) -> None:
        last = None
        for name in names:
            if name in self.kept:
                state = self.kept.pop(name)
            else:
                state = None
            if last is not None:
                self.port.close(last)
            last = state
        if last is not None:
            self.port.close(last)

    def last_closed_twice(self, names: list[int]) -> None:
        last = None
        for name in names:
            if name in self.kept:
                state = self.kept.pop(name)
            else:
                state = None
            if last is not None:
                self.port.close(last)  # OWN001
            last = state
            if state is not None:
                self.port.close(state)

    def drain(self) -> None:
        while (row := self.rows.pop() if self.rows else None) is not None:
            self.batch.rollback(row)

    def drain_some(self, n: int) -> None:
        while (row := self.rows.pop() if self.rows else None) is not None:  # OWN003
            if n:
                break
            self.batch.rollback(row)

    def replaced(self, names: list[int], need: Need) -> None:
        for name in names:
            old = self.kept.pop(name) if name in self.kept else None
            claim = self.batch.reserve(need, ZEROS, turn="t")
            if isinstance(claim, Refused):
                if old is not None:
                    self.port.close(old)
                continue
            self.kept[name] = self.port.commit(claim, replaces=old)
""",
    "what_a_call_gave_goes_on_by_its_truth": """\
    def first_of_two(self) -> None:
        state = self.kept.pop(1, None) or self.kept.pop(0, None)
        if state is not None:
            self.port.close(state)

    def first_of_two_in_rounds(self, names: list[int]) -> None:
        for name in names:
            state = self.kept.pop(name, None) or self.kept.pop(0, None)
            if state is not None:
                self.port.close(state)

    def lost(self) -> None:
        if self.kept.pop(1, None):  # OWN003
            print("there was one")

    def put(self, a: Consume[BatchOwned]) -> bool:
        self.port.rollback(a)
        return True

    def put_or_not(self, a: Consume[BatchOwned], n: int) -> None:
        if n and self.put(a):
            return
        self.port.rollback(a)  # OWN002

    def put_in_a_test(self, a: Consume[BatchOwned]) -> None:
        if not self.put(a):
            self.port.rollback(a)  # OWN001
""",
    "all_that_is_declared_is_matched": """\
    def of_a_parameter(self, version: int | NoState, a: Consume[BatchOwned]) -> bool:
        match version:
            case NoState():
                self.port.rollback(a)
                return False
            case int():
                self.kept[version] = self.port.commit(a, replaces=None)
                return True

    def of_an_attribute(self, a: Consume[BatchOwned]) -> None:
        match self.current:
            case NoState.NO_STATE:
                self.port.rollback(a)
            case int() as version:
                self.kept[version] = self.port.commit(a, replaces=None)

    def one_arm_forgets(self, a: Consume[BatchOwned]) -> None:  # OWN003
        match self.current:
            case NoState.NO_STATE:
                print("forgotten")
            case int() as version:
                self.kept[version] = self.port.commit(a, replaces=None)

    def elsewhere(self, me: "Keeper", n: Optional[int], a: Consume[BatchOwned]) -> None:  # OWN003
        match n:
            case int():
                self.port.rollback(a)
        match me.view:
            case LedgerView():
                print("all of it")
        match me:
            case [_]:
                print("a sequence")
        match (me, n):
            case (Keeper(), int()):
                print("not looked into")

def members(side: Side, port: BatchPort, a: Consume[BatchOwned]) -> None:
    match side:
        case Side.LEFT:
            port.rollback(a)
        case Side.RIGHT:
            port.rollback(a)

def members_by_class(side: Side | None, port: BatchPort, a: Consume[BatchOwned]) -> None:
    match side:
        case Side():
            port.rollback(a)
        case None:
            port.rollback(a)

def one_member(side: Side, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match side:
        case Side.LEFT:
            port.rollback(a)

def literals(side: Literal["l", "r"], port: BatchPort, a: Consume[BatchOwned]) -> None:
    match side:
        case "l" | "r":
            port.rollback(a)

def one_literal(n: Literal["l"] | None, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case "l":
            port.rollback(a)

def guarded(n: int | str, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case int() if n:
            port.rollback(a)
        case str():
            port.rollback(a)

def rebound(n: int | str, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    n = unknown(n)
    match n:
        case int() | str():
            port.rollback(a)

def with_a_field(n: Note | int, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case Note(text="x") | int():
            port.rollback(a)

def with_a_name(n: Note | int, port: BatchPort, a: Consume[BatchOwned]) -> None:
    match n:
        case Note(text=_):
            port.rollback(a)
        case int():
            port.rollback(a)

def promoted(n: float, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case float():
            port.rollback(a)

def truth(n: bool, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case True:
            port.rollback(a)

def unknown_classes(n: Any, m, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case int():
            port.rollback(a)
    match m:
        case int():
            print(m)

class Heir(Keeper):
    def __init__(self) -> None:
        self.found = 1

    def inherited(self, a: Consume[BatchOwned]) -> None:
        match self.current:
            case NoState() | int():
                self.port.rollback(a)

    def undeclared(self, a: Consume[BatchOwned]) -> None:  # OWN003
        match self.found:
            case int():
                self.port.rollback(a)
        match self.missing:
            case int():
                print("nobody knows it")

def of_anything(box: Any, either: Keeper | Heir, port: BatchPort, a: Consume[BatchOwned]) -> None:
    match box.found:
        case int():
            print("it may be anything")
    match either.current:
        case int():
            print("or the other")
    port.rollback(a)

Perhaps = int | None

def of_an_alias(n: Perhaps, port: BatchPort, a: Consume[BatchOwned]) -> None:
    match n:
        case None:
            port.rollback(a)
        case int():
            port.rollback(a)

def by_what_is_not_known(n: int, port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match n:
        case unknown.Number():
            port.rollback(a)

def chained(n: int | str, port: BatchPort, a: Consume[BatchOwned]) -> int:
    if isinstance(n, str):
        port.rollback(a)
        return 0
    elif isinstance(n, int):
        port.rollback(a)
        return 1
    assert_never(n)
""",
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
    "generic_and_class_methods": """\
    def __init__(self, a: Consume[BatchOwned]) -> None:
        self.held = a

    @classmethod
    def of(cls, a: Consume[BatchOwned]) -> "Keeper":
        return cls(a)

    @classmethod
    def late(cls, port: BatchPort, a: Consume[BatchOwned]) -> "Keeper":
        port.rollback(a)
        return cls(a)  # OWN001

T = TypeVar("T")

def same(x: T, *, text: str = "") -> T:
    print(text)
    return x

def passed(port: BatchPort, a: Consume[BatchOwned]) -> None:
    port.rollback(same(a))

def passed_twice(port: BatchPort, a: Consume[BatchOwned]) -> None:
    b = same(a, text="x")
    port.rollback(b)
    port.rollback(a)  # OWN001

class Shelf(Generic[T]):
    kept: Owns[dict[int, T]]

    def put(self, at: int, one: Consume[T]) -> None:
        self.kept[at] = one

    def take(self, at: int) -> T:
        return self.kept.pop(at)

def taken(shelf: Shelf[SessionOwned], port: SessionPort) -> None:
    port.close(shelf.take(1))

def put(shelf: Shelf[SessionOwned], port: SessionPort, s: Consume[SessionOwned]) -> None:
    shelf.put(1, s)
    port.close(s)  # OWN001
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
def test_in_the_styles_of_the_kernel_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    program = KEEPER + PROGRAMS[name]

    assert found(program) == expected(program)
