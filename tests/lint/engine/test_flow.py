"""Paths: branches, loops, errors, blocks and cases, each to every end of the function."""

import pytest

from tests.lint.engine.judging import expected, found

PROGRAMS = {
    "handlers_begin_before_the_call": """\
def f(port: BatchPort, session: SessionPort, a: Consume[BatchOwned]) -> SessionOwned | None:
    try:
        state = session.commit(a, replaces=None)
    except BaseChanged as error:
        print(error)
        port.rollback(a)
        return None
    except ValueError:
        port.rollback(a)
        return None
    else:
        print("fine")
    return state

def g(port: BatchPort, a: Consume[BatchOwned]) -> None:
    try:
        raise ValueError
    except:
        port.rollback(a)

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:
    try:
        x = 1
    except ValueError:
        x = 2
    else:
        port.rollback(a)
        return
    print(x)
    port.rollback(a)
""",
    "finally_runs_on_every_way_out": """\
def f(port: BatchPort, a: Consume[BatchOwned], items: list[int]) -> int:
    for item in items:
        try:
            if item == 1:
                break
            if item == 2:
                continue
            if item == 3:
                port.rollback(a)
                return 0
        finally:
            print(item)
    else:
        print("all")
    port.rollback(a)
    return 1

def g(port: BatchPort, a: Consume[BatchOwned]) -> None:
    try:
        print(a)
    finally:
        port.rollback(a)

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    try:
        print("no handlers")
    except ValueError:
        raise
    else:
        print("else")
    finally:
        print("done")
    port.rollback(a)

def k(port: BatchPort, a: Consume[BatchOwned]) -> None:  # OWN003
    try:
        pass
    finally:
        print("done")
        return
    port.rollback(a)

def l(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:  # OWN003
    while True:
        try:
            if n:
                raise ValueError
            return
        except ValueError:
            break

def m(port: BatchPort, a: Consume[BatchOwned]) -> None:
    try:
        print(1)
    except* ValueError:
        print(2)
    port.rollback(a)
""",
    "raise_leaves_the_function": """\
def f(a: Consume[BatchOwned]) -> None:  # OWN003
    raise ValueError

def g(port: BatchPort, a: Consume[BatchOwned]) -> NoReturn:
    port.rollback(a)
    raise

def never() -> NoReturn:
    raise ValueError

def h(port: BatchPort, a: Consume[BatchOwned] | None, n: int) -> None:
    if a is None:
        never()
    if n:
        return never()
    assert a
    port.rollback(a)

def k(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:
    port.rollback(a)
    while n:
        n = never() if n else never()
    x = n or never()

def l(port: BatchPort, a: Consume[BatchOwned]) -> None:
    if pytest.fail("no"):
        print(a)
""",
    "blocks_that_swallow": """\
def f(port: BatchPort, a: Consume[BatchOwned]) -> None:
    with contextlib.suppress(ValueError):
        print(1)
        port.rollback(a)
    port.rollback(a)  # OWN002

def g(port: BatchPort, a: Consume[BatchOwned], items: list[int]) -> None:
    for item in items:
        with contextlib.suppress(ValueError):
            if item == 1:
                break
            if item == 2:
                continue
            if item == 3:
                port.rollback(a)
                return
            raise ValueError
    port.rollback(a)

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:
    with pytest.raises(RuntimeError):
        port.rollback(a)
    port.rollback(a)

def k(port: BatchPort, a: Consume[BatchOwned]) -> None:
    with pytest.raises((StaleHandle, own.WrongOwner)) as refused, open("x") as file:
        port.rollback(a)
        port.rollback(a)
        lost = port.reserve(Need(1), ZEROS, turn="t")
    with pytest.raises(LedgerError):
        raise ValueError
    print(refused, file, lost)
    port.rollback(a)
""",
    "what_a_block_binds": """\
@contextmanager
def lending(port: BatchPort) -> Iterator[BatchOwned]:
    claim = port.reserve(Need(1), ZEROS, turn="t")
    assert not isinstance(claim, Refused)
    yield claim
    port.rollback(claim)

class Room:
    def __enter__(self) -> BatchPort: ...

class Door:
    pass

def f(port: BatchPort) -> None:
    with lending(port) as claim:
        port.grow(claim, Need(1))
    with Room() as inner, Door() as door:
        inner.reserve(Need(1), ZEROS, turn="t")  # OWN003
    with door:
        pass

def each(port: BatchPort) -> Iterator[BatchOwned]:
    claim = port.reserve(Need(1), ZEROS, turn="t")
    if not isinstance(claim, Refused):
        yield claim
    yield from each(port)
    yield
""",
    "cases_narrow": """\
def f(port: BatchPort, a: Consume[BatchOwned | Refused | None], n: int) -> None:
    match a:
        case BatchOwned():
            port.rollback(a)
        case None:
            pass
        case Refused(reason="room") | Refused(reason="base"):
            pass
        case Refused(pages_short=pages):
            print(pages)
        case other:
            print(other)

def g(port: BatchPort, message: Consume[Parcel | Note]) -> None:
    match message:
        case Parcel(claim=claim):
            port.rollback(claim)
        case Note(text=_):
            pass

def h(port: BatchPort, a: Consume[BatchOwned | None], n: int) -> None:
    match a:
        case BatchOwned() as claim if n:
            port.rollback(claim)
        case BatchOwned():
            port.rollback(a)
        case None as nothing:
            print(nothing)
        case [x, y]:
            print(x)

def k(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:
    match n:
        case 1 | 2:
            port.rollback(a)
        case Note("x"):
            port.rollback(a)
        case int() | str():
            port.rollback(a)
        case _:
            port.rollback(a)
    match a:
        case _ if n:
            pass
    match (n, n):
        case _:
            pass
        case 1:
            pass
""",
    "tests_that_narrow": """\
def f(port: BatchPort, need: Need) -> None:
    if not isinstance(claim := port.reserve(need, ZEROS, turn="t"), Refused):
        port.rollback(claim)
    if isinstance(other := port.reserve(need, ZEROS, turn="t"), (BatchOwned, SessionOwned)):
        port.rollback(other)

def g(port: BatchPort, a: Consume[Maybe], b: Consume[Maybe], n: int) -> None:
    if a is not None and b is not None:
        port.rollback(a)
        port.rollback(b)
    elif a or n == 2:
        if a:
            port.rollback(a)
        if b != None:
            port.rollback(b)
    elif b:
        port.rollback(b)

def h(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:
    if False:
        port.rollback(a)
    if not n and True:
        print(n)
    if isinstance(a, n):
        print(1)
    if isinstance(n, str):
        print(2)
    if isinstance(a, Refused):
        port.rollback(1)
    port.rollback(a)

def k(session: SessionPort, a: Consume[Maybe], b: Consume[Maybe]) -> None:  # OWN003
    claim = a or b
    print(1 < 2 < 3, a is b, f"{claim}", -1, [*"ab"])

def l(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned], n: int) -> None:
    port.rollback(a if n else b)

def m(port: BatchPort, a: Consume[BatchOwned], n: int) -> None:
    claim = a if n else None
    if claim is not None:
        port.rollback(claim)
    else:
        port.rollback(a)

def o(port: BatchPort, a: Consume[Optional[BatchOwned]], n: int) -> None:
    found = (a and n) or (n and n)
    pair = (a, 1) if n else (n, 2)
    if a is None:
        return
    port.rollback(a)
""",
    "loops_to_a_fix_point": """\
def f(port: BatchPort, need: Need, n: int) -> None:
    last = port.reserve(need, ZEROS, turn="t")
    while n:
        now = port.reserve(need, ZEROS, turn="t")
        if isinstance(last, BatchOwned):
            port.rollback(last)
        last = now
    else:
        print("no break")
    if isinstance(last, BatchOwned):
        port.rollback(last)

def g(port: BatchPort, a: Consume[BatchOwned]) -> None:
    while True:
        port.rollback(a)
        break

def h(port: BatchPort, need: Need, n: int) -> None:
    kept = None
    while n:
        kept = port.reserve(need, ZEROS, turn="t")  # OWN003
""",
    "names_are_given_another_value": """\
def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    a, b = b, a
    port.rollback(a)
    b = None  # OWN003
    c: int = 1
    d: BatchOwned
    c += 1
    del c, d

def g(a: Consume[BatchOwned]) -> None:
    del a  # OWN003

def h(port: BatchPort, a: Consume[BatchOwned]) -> None:
    hidden: object = a
    also: Sequence[object] = port.land(port, StepFailed(""))
    own: BatchOwned = a
    port.rollback(own)
    a  # OWN001
    global x
    x = a

def k(port: BatchPort, a: Consume[BatchOwned]) -> None:
    same = a
    del same
    port.rollback(a)
""",
    "async_functions": """\
async def spend(port: BatchPort, a: Consume[BatchOwned]) -> None:
    port.rollback(a)

async def show(a: BatchOwned) -> None: ...

async def f(port: BatchPort, a: Consume[BatchOwned], b: Consume[BatchOwned]) -> None:
    await spend(port, a)  # OWN006
    show(b)  # OWN005
    port.rollback(b)

async def g(port: BatchPort, a: Consume[BatchOwned], items: AsyncIterator[int], task: Any) -> None:
    async for item in items:  # OWN006
        print(item)
    async with task as t:  # OWN006
        print(t)
    await task  # OWN006
    x = [item async for item in items]  # OWN006
    port.rollback(a)
""",
    "classes_and_functions_inside": """\
def f(port: BatchPort, a: Consume[BatchOwned]) -> None:
    class Inner:
        def end(self, claim: BatchOwned) -> None:
            port.rollback(claim)  # OWN004

    def end(claim: BatchOwned, *, n: int = 1) -> None:
        port.rollback(claim)  # OWN004

    for _ in range(2):
        def often(claim: Consume[BatchOwned]) -> None:
            port.rollback(claim)

    def again(claim: Consume[BatchOwned]) -> None:
        port.rollback(claim)

    again(a)
    print(lambda x: x, Inner, end)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_judged_as_its_lines_say(name: str) -> None:
    """Nothing is reported elsewhere, and nothing is left out."""
    assert found(PROGRAMS[name]) == expected(PROGRAMS[name])
