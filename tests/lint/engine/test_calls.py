"""Calls: marks of parameters, results, messages, copies, and calls that come later."""

import pytest

from ownership.lint import Config
from tests.lint.engine.judging import expected, found

PROGRAMS = {
    "every_way_to_give_an_argument": """\
def spend(port: BatchPort, /, *claims: Consume[BatchOwned], last: Mine = None) -> None:
    port.launch(claims, step=1)  # OWN003
    port.rollback(last)

def f(port: BatchPort, a: Mine, b: Mine, c: Mine) -> None:
    spend(port, a, b, last=c)
    spend(port, *[], unknown=1, **{})
    len(a)  # OWN001
    print(b, 3, "x")  # OWN001

class Tool:
    @classmethod
    def make(cls, claim: Consume[BatchOwned]) -> "Tool": ...

    @staticmethod
    def end(claim: Consume[BatchOwned]) -> None: ...

    @property
    def claim(self) -> BatchOwned: ...

def g(tool: Tool, port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    Tool.make(a)
    Tool.end(b)
    port.grow(tool.claim, Need(1))
    port.rollback(tool.claim)  # OWN004

def h(port: BatchPort, claim: Consume[list[BatchOwned]]) -> None:  # OWN003
    unknown(claim)
    unknown.method(claim)
    (lambda x: x)(claim)
    isinstance(claim, list)
""",
    "what_a_function_gives_back_as_it_is": """\
def same(claim: BatchOwned) -> BatchOwned:
    return claim

def other(claim: BatchOwned) -> BatchOwned:
    claim = same(claim)
    return claim  # OWN004

def third(claim: BatchOwned, n: int) -> BatchOwned | None:
    if n:
        return None
    return claim  # OWN004

def f(port: BatchPort, a: Consume[BatchOwned]) -> None:
    b = same(a)
    port.rollback(b)
    port.rollback(a)  # OWN001
""",
    "messages_own_what_they_carry": """\
def f(port: BatchPort, a: Consume[BatchOwned]) -> None:
    parcel = Parcel(a)
    print(parcel.text)
    port.rollback(parcel.claim)
    port.rollback(parcel.claim)  # OWN001

def g(a: Consume[BatchOwned]) -> Parcel:
    return Parcel(a, text="x")

def h(port: BatchPort, message: Parcel) -> None:
    port.grow(message.claim, Need(1))
    port.rollback(message.claim)  # OWN004

def k(message: Consume[Parcel]) -> None:  # OWN003
    print(message.text)

class Holder:
    claim: Owns[BatchOwned]

    def __init__(self, message: Consume[Parcel], later: Consume[BatchOwned]) -> None:
        self.claim = message.claim
        self.other.claim = later  # OWN008

def l(port: BatchPort, holder: Holder, a: Consume[BatchOwned]) -> None:
    port.grow(holder.claim, Need(1))
    holder.claim = a  # OWN003
    print(holder)
    port.grow(holder.claim, Need(1))
    holder.run()
    holder.claim.x.y.z = 1
    print(holder.claim.x.y.z)

@attrs.define
class Value:
    first: BatchOwned
    second: Owns[BatchOwned]
    lease: Lease
    made: int = attrs.field(init=False, default=0)
    kind: ClassVar[int] = 0

def m(a: Consume[BatchOwned], b: Consume[BatchOwned], lease: Consume[Lease], c: BatchOwned) -> None:
    print(Value(a, b, lease))  # OWN008
    print(Value(c, c, lease))  # OWN004
""",
    "forging_and_copying": """\
class Mine:
    def __new__(cls) -> "Mine":
        return object.__new__(cls)

def f(port: BatchPort, a: Consume[BatchOwned], s: object, n: int) -> None:
    BatchOwned()  # OWN007
    object.__new__(Lease)  # OWN007
    object.__new__(Mine)
    cast("BatchOwned", s)  # OWN007
    cast(int, s)
    copy.copy(a)  # OWN007
    copy.deepcopy(n)
    attrs.evolve(n, x=a)  # OWN007
    port.rollback(a)  # type: ignore[arg-type]  # OWN007
    pickle.dumps(a)  # OWN001 OWN007
""",
    "what_comes_later": """\
def spend(port: BatchPort, a: Consume[BatchOwned]) -> None:
    port.rollback(a)

def show(a: BatchOwned) -> None: ...

def f(loop: Any, port: BatchPort, a: Consume[BatchOwned], b: BatchOwned) -> None:
    loop.call_soon(spend, port, a)  # OWN005
    loop.call_soon(show, b)
    functools.partial(show, b)  # OWN005

def g(port: BatchPort, a: Consume[BatchOwned], b: BatchOwned, n: int) -> None:
    later = lambda: port.rollback(b)  # OWN005
    many = [port.rollback(a) for _ in range(n)]  # OWN005
    print(later, many)

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:
    soon = (port.rollback(a) for _ in range(1))  # OWN005
    print(soon)

def k(port: BatchPort, view: LedgerView, a: Consume[BatchOwned]) -> None:
    print(sum(view.position(a) for _ in range(1)), {x: 1 for x in range(3) if x})
    port.rollback(a)

def l(port: BatchPort, claims: Consume[list[BatchOwned]], n: int) -> None:  # OWN003
    kept = [claim for claim in claims if n for _ in range(1)]
    for claim in kept:
        port.rollback(claim)

def m(port: BatchPort, a: Consume[BatchOwned]) -> None:
    def end(*, claim: BatchOwned = a) -> None: ...  # OWN005
    def other(n: int = 1) -> None: ...
    print(end, other)
""",
    "launched_and_landed": """\
def step(port: BatchPort, claims: Sequence[BatchOwned]) -> None:
    port.land(port.launch(claims, step=1), StepFailed(""))

def f(port: BatchPort, claims: Sequence[BatchOwned]) -> Lease:
    return port.launch(claims, step=1)  # OWN004

def g(port: BatchPort, claims: Sequence[BatchOwned]) -> None:
    for claim in port.land(port.launch(claims, step=1), StepFailed("")):  # OWN004
        port.rollback(claim)

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:
    lease = port.launch([a], step=1)
    (b,) = port.land(lease, StepFailed(""))
    port.grow(a, Need(1))
    port.rollback(b)
""",
    "methods_of_the_own_object": """\
class Base:
    port: SessionPort
    state: Owns[SessionOwned | None]
    spare: Owns[SessionOwned | None]

    def drop(self) -> None:
        state, self.state = self.state, None
        if state is not None:
            self.port.close(state)

    def keep(self) -> None:
        print(self.state)

    def swap(self) -> None:
        self.state, self.spare = self.spare, self.state

    def maybe(self, n: int) -> None:
        if n:
            self.drop()

    def again(self, n: int) -> None:
        self.again(n)
        self.state = None

    def never(self) -> NoReturn:
        raise ValueError

class Child(Base):
    def put(self, state: Consume[SessionOwned]) -> None:
        self.drop()
        self.state = state

    def put_after_a_look(self, state: Consume[SessionOwned]) -> None:
        self.keep()
        self.state = state  # OWN003

    def put_after_a_guess(self, state: Consume[SessionOwned], n: int) -> None:
        self.maybe(n)
        self.state = state  # OWN003

    def end_and_keep(self) -> None:
        if self.state is not None:
            self.port.close(self.state)  # OWN004

    def end_and_empty(self) -> None:
        held = self.state
        self.drop()
        print(held)
        if self.spare is not None:
            self.port.close(self.spare)
            self.spare = None

    def store_twice(self, state: Consume[SessionOwned]) -> None:
        self.drop()
        self.state = state
        self.port.close(state)  # OWN001

    def remove(self) -> None:
        del self.state  # OWN003

    def end(self) -> None:
        super().drop()
        self.never()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_judged_as_its_lines_say(name: str) -> None:
    """Nothing is reported elsewhere, and nothing is left out."""
    assert found(PROGRAMS[name]) == expected(PROGRAMS[name])


THIRD_PARTY = """\
class Stream:
    def close(self) -> None: ...
    def wait(self) -> None: ...
    def write(self) -> None: ...

class Child(Stream): ...

def release(first: Stream, second: Stream) -> None: ...
def free(stream: Stream) -> None: ...

def f(a: Stream, b: Child, c: asyncio.Lock) -> None:
    a.close()
    a.wait()
    a.write()  # OWN001
    b.close()
    b.close()  # OWN001
    c.release()
    c.acquire()  # OWN001

class User:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def end(self, n: int) -> None:
        if n:
            self.stream.close()
        self.stream.write()  # OWN002

def g(a: Stream, b: Stream, c: Stream) -> None:
    release(a, b)
    a.write()
    b.write()  # OWN001
    free(c)
    free(stream=c)  # OWN001
    copy.copy(a)
    kept = [a]
"""


def test_a_configuration_declares_what_ends_types_of_others() -> None:
    """By their classes, not by the names of their methods."""
    config = Config(
        consuming=[
            "__source__.Stream.close",
            "__source__.release:second",
            "__source__.free",
            "asyncio.Lock.release",
        ],
        usable_after=["__source__.Stream.wait"],
    )

    assert found(THIRD_PARTY, config) == expected(THIRD_PARTY)


OWN = """\
class Connection: ...
class Ticket: ...

def take() -> Connection: ...
def ticket() -> Ticket: ...
def end(connection: Consume[Connection]) -> None:
    pass

def f() -> None:
    connection = take()
    end(connection)
    end(connection)  # OWN001
    take()  # OWN003
    Connection()  # OWN003
    ticket()  # OWN003
"""


def test_a_configuration_declares_linear_types() -> None:
    """Their own module builds and ends them."""
    config = Config(
        linear=["__source__.Connection", "__source__.Ticket"], named=["__source__.Ticket"]
    )

    assert found(OWN, config) == expected(OWN)
