"""Containers: what goes in is moved, what comes out is owned, what is looked at is lent."""

import pytest

from tests.lint.engine.judging import expected, found

PROGRAMS = {
    "a_list_is_filled_and_emptied": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    held: list[BatchOwned] = []
    held.append(a)
    held += [b]
    held.insert(0, port)
    while held:
        port.rollback(held.pop())
""",
    "a_list_that_is_forgotten": """\
def f(a: Consume[BatchOwned]) -> None:
    held: list[BatchOwned] = []  # OWN003
    held.append(a)
""",
    "clear_of_a_local_list": """\
def f(a: Consume[BatchOwned]) -> None:
    held: list[BatchOwned] = []
    held.append(a)
    held.clear()  # OWN003
    held.clear()
""",
    "what_is_popped_from_a_borrowed_list_is_taken": """\
def f(port: BatchPort, held: list[BatchOwned]) -> None:
    claim = held.pop()  # OWN004
    port.rollback(claim)
""",
    "a_list_of_unknown_things": """\
def f(port: BatchPort, seen: list[int], a: Consume[BatchOwned]) -> None:
    seen.append(1)
    seen.pop()
    seen.get(1)
    port.rollback(a)
""",
    "literals_know_their_elements": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    pair = [a, b]
    port.rollback(pair[0])
    port.rollback(pair[-1])
    port.rollback(a)  # OWN001
""",
    "slices_of_literals": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> Lease:
    pair = [a, b]
    port.launch(pair[:1], step=1)  # OWN003
    lease = port.launch(pair[1:], step=1)
    return lease
""",
    "slices_that_are_not_known": """\
def f(port: BatchPort, a: Consume[BatchOwned], n: int) -> Lease:
    pair = [a]
    return port.launch(pair[n:], step=1)

def g(port: BatchPort, a: Consume[list[BatchOwned]], n: int) -> Lease:
    return port.launch(a[n:], step=1)

def h(port: BatchPort, a: Consume[list[BatchOwned]], n: int) -> None:
    port.rollback(a[n])
""",
    "known_elements_put_aside": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    pair = [a]
    pair.append(b)
    while pair:
        port.rollback(pair.pop())

def g(port: BatchPort, a: Consume[BatchOwned]) -> None:
    pair = [a]
    port.rollback(pair.pop())
""",
    "displays": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    for claim in (a, *[b]):
        port.rollback(claim)
    by_name = {"a": port.reserve(Need(1), ZEROS, turn="t"), **{}}  # OWN003
    print(by_name)

def g(port: BatchPort, a: Consume[BatchOwned]) -> None:
    by_name = {"a": a}
    for claim in by_name.values():
        port.rollback(claim)
""",
    "a_field_that_owns": """\
class Keeper:
    claims: Owns[dict[str, BatchOwned]]
    order: Owns[list[BatchOwned]]
    port: BatchPort

    def __init__(self) -> None:
        self.claims = {}
        self.order = []

    def put(self, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
        self.claims["a"] = a
        self.order.append(b)
        self.port.rollback(a)  # OWN001

    def take(self) -> BatchOwned | None:
        for name, claim in self.claims.items():
            self.port.grow(claim, Need(1))
        for name in self.claims.keys():
            print(name)
        for name in self.claims:
            print(name)
        for number, claim in enumerate(self.order):
            self.port.grow(claim, Need(1))
        copied = self.order.copy()
        print(len(copied), sorted(self.claims), list(self.order))
        return self.claims.pop("a", None)

    def look(self) -> None:
        self.port.grow(self.claims["a"], Need(1))
        found = self.claims.get("a")
        if found is not None:
            self.port.rollback(found)  # OWN004
        self.port.rollback(self.claims["a"])  # OWN004

    def lose(self) -> None:
        self.claims.clear()  # OWN003
        del self.order[0]  # OWN003
        self.order = []  # OWN003

    def empty(self) -> None:
        while self.claims:
            name, claim = self.claims.popitem()
            self.port.rollback(claim)
        while self.order:
            self.port.rollback(self.order.pop())
        self.order = []

    def end_all(self) -> None:
        for claim in self.order:
            self.port.rollback(claim)  # OWN004

    def fill(self, claims: Consume[list[BatchOwned]]) -> None:
        self.order = claims  # OWN003

    def fill_from_a_display(self, a: Consume[BatchOwned]) -> None:
        held, self.order = self.order, [a]
        while held:
            self.port.rollback(held.pop())
""",
    "elements_of_a_landing": """\
def f(port: BatchPort, lease: Consume[Lease]) -> None:
    for claim in port.land(lease, StepFailed("")):
        port.rollback(claim)

def g(port: BatchPort, lease: Consume[Lease]) -> None:
    for claim in port.land(lease, StepFailed("")):  # OWN003
        print("lost")

def h(port: BatchPort, lease: Consume[Lease]) -> None:
    first, *rest = port.land(lease, StepFailed(""))
    port.rollback(first)
    for claim in rest:
        port.rollback(claim)

def k(port: BatchPort, lease: Consume[Lease]) -> None:
    claims = port.land(lease, StepFailed(""))  # OWN003
    for claim in claims:
        if port.grow(claim, Need(1)):
            port.rollback(claim)
            break

def l(port: BatchPort, leases: Sequence[Lease]) -> None:
    for lease in leases:
        port.land(lease, StepFailed(""))  # OWN003
    a, b = leases
    one, two = port
""",
    "rounds_of_borrowed_and_moved_containers": """\
def f(port: BatchPort, claims: Sequence[BatchOwned]) -> None:
    for claim in claims:
        port.rollback(claim)  # OWN004

def g(port: BatchPort, claims: Consume[Sequence[BatchOwned]]) -> None:
    lease = port.launch(claims, step=1)
    for claim in claims:  # OWN001
        port.grow(claim, Need(1))
    for row in zip(claims, range(3)):
        print(row)
    for row in enumerate([1]):
        print(row)
    port.land(lease, StepFailed(""))

def h(port: BatchPort, first: BatchOwned) -> None:
    seen = [first]
    one = next(iter(seen))
    port.grow(one, Need(1))
    local: list[BatchOwned] = []
    local.append(first)
    port.rollback(local[0])  # OWN004

def k(port: BatchPort, *claims: BatchOwned) -> None:
    port.rollback(claims[0])  # OWN004

def l(port: BatchPort, *claims: Consume[BatchOwned]) -> None:
    for claim in claims:
        port.rollback(claim)
""",
    "names_of_leases_may_be_noted": """\
LEASES: list[Lease] = []

class Board:
    leases: dict[int, Lease]
    last: Lease
    known: list[object]

    def note(self, port: BatchPort, claim: Consume[BatchOwned]) -> None:
        lease = port.launch([claim], step=1)
        self.leases[1] = lease
        self.last = lease
        local = [lease]
        local.append(lease)
        port.land(local[0], StepFailed(""))  # OWN003

    def land(self, port: BatchPort) -> None:
        lease = self.leases.pop(1)
        claims = port.land(lease, StepFailed(""))
        for claim in claims:
            port.rollback(claim)
        print(port.land(lease, StepFailed("")))  # OWN001 OWN003
""",
    "tuples_of_a_call": """\
def pair(port: BatchPort) -> tuple[BatchOwned, int]:
    return port.land(port.view, StepFailed(""))[0], 1

def f(port: BatchPort) -> None:
    claim, number = pair(port)
    port.rollback(claim)
    both = pair(port)  # OWN003
    print(number)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_judged_as_its_lines_say(name: str) -> None:
    """Nothing is reported elsewhere, and nothing is left out."""
    assert found(PROGRAMS[name]) == expected(PROGRAMS[name])
