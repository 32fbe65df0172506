"""Choices, rounds and matches as kernel code writes them, half of them wrong."""

import pytest

from tests.lint.engine.judging import expected, found
from tests.lint.engine.kernel_style import KEEPER

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
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_choices_and_matches_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    program = KEEPER + PROGRAMS[name]

    assert found(program) == expected(program)
