"""Corners: rare forms, each followed or left alone, none of them a crash."""

from pathlib import Path

import pytest

from ownership.lint import Config, check_paths, check_source
from tests.lint.engine.judging import PROLOGUE, expected, found

PROGRAMS = {
    "places": """\
class Keeper:
    state: Owns[SessionOwned | None]
    spare: Owns[SessionOwned | None]
    a: Owns[list[BatchOwned]]
    b: Owns[list[BatchOwned]]
    port: BatchPort

    def look(self) -> None:
        held = self.state
        unknown(self)
        print(self.state, held)

    def put(self, s: Consume[SessionOwned], t: Consume[SessionOwned]) -> None:
        find().state = s
        find().other = 1
        find().thing = find().a.pop()  # OWN008
        self.pair = (t, 1)  # OWN008

    def drain(self) -> None:
        for claims in (self.a, self.b):
            while claims:
                self.port.rollback(claims.pop())

    def both(self) -> None:
        self.state = self.spare  # OWN003
        self.spare = None
        del self.a[0]  # OWN003

    def late(
        self, port: SessionPort, s: Consume[SessionOwned], odd: own[int], bad: (1 + 2)[int]
    ) -> None:
        port.close(s)
        self.state = s  # OWN001 OWN003

def either(port: BatchPort | SessionPort, a: Consume[BatchOwned]) -> None:
    port.text = 1
    port.rollback(a)
    port = 2

def find() -> Keeper: ...
def pack() -> Parcel: ...

def f(port: BatchPort, n: int) -> None:
    port.rollback(pack().claim)
    parcel = pack()
    port.rollback(parcel.claim)
    parcel = pack()
    if n:
        port.rollback(parcel.claim)
    else:
        port.rollback(parcel.claim)
""",
    "tuples": """\
def f(port: BatchPort, a: Mine, b: Mine, n: int, xs: dict[int, int]) -> None:
    pair = (a, b)
    if n:
        print(n)
    one, two = pair
    port.rollback(one)
    port.rollback(two)
    c, d = 1, 2
    del (c, d), xs[1]

def g(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned], n: int) -> None:
    deep = ((a, 1), b)
    if n:
        print(n)
    (x, _), y = deep
    port.rollback(x)
    port.rollback(y)

def h(port: BatchPort, need: Need, n: int) -> None:  # no names
    kept = [port]
    while n:
        claim = port.reserve(need, ZEROS, turn="t")  # OWN003
        kept = [claim, claim]
    print(kept)

def k(a: Consume[BatchOwned]) -> None:  # OWN003
    try:
        print(1)
    except ValueError as a:  # OWN003
        print(2)
""",
    "constants": """\
def never() -> NoReturn:
    raise ValueError

def f(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:
    x = a if True else n
    y = False and n and never()
    w = True and n
    k(1, 2, 3, 4)
    z = n or True or never()
    if False and n and n or n:
        print(y, z)
    new: unknown = x
    find().value: int = 3
    find().other: unknown = 3
    port.rollback(new)

def g(port: BatchPort, n: int) -> None:
    x = 1 if never() else 2
    port.reserve(Need(1), ZEROS, turn="t")

def h(port: BatchPort, *names: int, held: Any) -> None:
    empty = list()
    print(list[int](), Deque[int]())
    empty.append(port.reserve(Need(1), ZEROS, turn="t"))
    first = empty.pop()  # OWN003
    if first is None or isinstance(first, Refused):
        return
    port.rollback(first)
    empty.sort()

@(lambda f: f)
def k(held: Any, port: BatchPort, a: Consume[BatchOwned], n: int) -> None:  # OWN003
    other = held if n else a
    if other is None:
        return
    match other:
        case Refused():
            return
        case [1]:
            pass
    if isinstance(other, BatchOwned):
        port.rollback(other)
""",
    "cases_that_cannot_be": """\
def f(port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    match a:  # the 3 may be anything
        case None | 3:
            print(1)
        case Refused(reason=1):
            print(2)
        case SessionOwned() as s:
            print(s)
        case BatchOwned() | _:
            port.rollback(a)
""",
    "inferred_fields": """\
class Base(unknown(), Generic[T]):
    class Deep:
        port: BatchPort

    def __init__(self, ports: list[BatchPort], port: BatchPort, one: BatchPort | BatchPort) -> None:
        self.first = ports[0]
        self.second = (port if one else port)
        self.third = port or port
        self.fourth = None
        self.fifth = (named := port)
        self.sixth = Box[BatchPort](port)
        self.seventh = 1 + 1
        self.eighth: BatchPort
        self.mine = self.mine

class Box(Generic[T]):
    def __init__(self, item: T) -> None: ...
    def get(self) -> T: ...

def f(base: Base, deep: Base.Deep, kind: type[Base]) -> None:
    base.first.reserve(Need(1), ZEROS, turn="t")  # OWN003
    base.second.reserve(Need(1), ZEROS, turn="t")  # OWN003
    base.third.reserve(Need(1), ZEROS, turn="t")  # OWN003
    base.fifth.reserve(Need(1), ZEROS, turn="t")  # OWN003
    base.eighth.reserve(Need(1), ZEROS, turn="t")  # OWN003
    base.sixth.get().reserve(Need(1), ZEROS, turn="t")  # OWN003
    print(base.seventh, base.fourth, base.Deep, base.mine, base.ninth)

def same(first: int, claim: BatchOwned) -> BatchOwned:
    return claim

def g() -> None:
    same(1)  # OWN003
""",
}
T = "T = TypeVar('T')\nfrom typing import Generic\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_judged_as_its_lines_say(name: str) -> None:
    """Nothing is reported elsewhere, and nothing is left out."""
    program = PROGRAMS[name] + T

    assert found(program) == expected(program)


def test_a_test_may_leave_handles_to_its_ledger() -> None:
    """It ends with the test; what is used after a move is reported all the same."""
    text = (
        "def test_it(port: BatchPort) -> None:\n"
        "    claim = port.reserve(Need(1), ZEROS, turn='t')\n"
        "    assert not isinstance(claim, Refused)\n"
        "    port.rollback(claim)\n"
        "    port.rollback(claim)\n"
        "    port.reserve(Need(1), ZEROS, turn='t')\n"
    )
    rules = [one.rule for one in check_source(PROLOGUE + text, "test_it.py")]

    assert rules == ["OWN001"]
    assert len(check_source(PROLOGUE + text, "it.py")) == 2


def test_the_package_that_issues_handles_may_build_and_end_them() -> None:
    """Somebody has to."""
    package = Path(__file__).parents[3] / "ownership"

    assert check_paths([package / "handles.py", package / "ports.py"]).findings == ()


def test_a_configured_name_may_be_no_class() -> None:
    """Then nothing is of that class."""
    config = Config(linear=["ownership.handles", "ownership.ids.SlotIndex", "none.of.it"])

    assert check_source("import ownership\n", config=config) == []


def test_consuming_types_may_be_kept_in_lists() -> None:
    """Nobody has to own them."""
    text = (
        "class S:\n    def close(self) -> None: ...\n"
        "def f(a: S, b: S) -> None:\n    kept = [a]\n    kept.append(b)\n    a.close()\n"
    )

    assert check_source(text, config=Config(consuming=["__source__.S.close"])) == []
