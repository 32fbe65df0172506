"""The store actor: each request is answered exactly once, whatever dies, hangs or is refused."""

import itertools
from array import array
from collections import deque
from typing import Any

import attrs
import pytest

from kernel.actors.reply import Reply
from kernel.actors.supervision import Child
from kernel.errors import StoreError
from kernel.ids import STORE, SessionId, TurnId
from kernel.messages import Down
from kernel.messages.store import (
    FetchState,
    ForgetStored,
    LogStored,
    ReadStored,
    ReleaseImage,
    StateFetched,
    StateStored,
    StoreLog,
    StoreState,
)
from kernel.session_store import (
    CutLog,
    DropState,
    KeepState,
    KeepTurn,
    SessionRecord,
    StoredTurn,
    StoreFault,
)
from kernel.sessions.store_actor import StoreActor, StoreRules
from kernel.state_image import ImageArray, StateImage
from ownership import CustodianId
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import settled
from tests.kernel.toys import Stack, Toy

SESSION = CustodianId("session:a")
A = SessionId("a")


def keep(start: int, *tokens: int, session_id: str = "a") -> KeepTurn:
    turn = StoredTurn(start, len(tokens), array("I", tokens), "append")
    return KeepTurn(session_id, turn)


def image(position: int = 2, nbytes: int = 8) -> StateImage:
    return StateImage(position, {"state": ImageArray("U8", (nbytes,), bytes(nbytes))})


@attrs.define(eq=False)
class World:
    """A store over a worker whose jobs wait for the test, and a session that asks."""

    disk: MemoryStore
    stack: Stack
    session: Toy
    records: list[tuple[str, SessionRecord | StoreFault]]

    @classmethod
    def open(cls, *, manual: bool = True, **rules: Any) -> "World":
        disk = MemoryStore(manual=manual)
        files = MemoryFiles(disk)
        header: Any = None
        worker = files.open_store(header, header, sync="full", max_state_bytes=None)
        stack = Stack()
        records: list[tuple[str, SessionRecord | StoreFault]] = []
        jobs = itertools.count(1)

        def make() -> StoreActor:
            return StoreActor(
                stack.dispatcher,
                worker,
                StoreRules(**rules),
                new_job=lambda: next(jobs),
                asks=deque(),
                on_record=lambda session, found: records.append((session, found)),
            )

        stack.dispatcher.spawn(make(), Child(make))
        return cls(disk, stack, stack.spawn(SESSION), records)

    def ask(self, *messages: Any) -> None:
        for message in messages:
            self.stack.post(STORE, message, SESSION)
        self.stack.run()

    def work(self, count: int = 1000) -> None:
        self.disk.work(count)
        self.stack.run()

    @property
    def answers(self) -> list[Any]:
        return [message for message in self.session.seen if not isinstance(message, Down)]


def fault_of(answer: LogStored | StateStored) -> str | None:
    return None if answer.fault is None else answer.fault.reason


def test_a_change_is_answered_when_all_of_its_jobs_are_done() -> None:
    """Not at the first: half a change is none."""
    world = World.open()
    world.ask(StoreLog(SESSION, 7, (keep(0, 1, 2), keep(2, 3))))
    world.work(1)
    early = list(world.answers)
    world.work()

    assert not early
    assert world.answers == [LogStored(7)]
    assert world.disk.log_of("a") == [1, 2, 3]


def test_one_job_that_fails_fails_the_change() -> None:
    """And it is said once, with the first reason."""
    world = World.open()
    world.disk.fail_next.extend(["full", "failed"])
    world.ask(StoreLog(SESSION, 1, (keep(0, 1), keep(1, 2), CutLog("a", 0))))
    world.work()

    assert [fault_of(answer) for answer in world.answers] == ["full"]


def test_a_long_history_comes_back_as_one_report() -> None:
    """A fork of a thousand turns must not flood the mailbox."""
    world = World.open(manual=False, mail_bound=4)
    world.ask(StoreLog(SESSION, 1, tuple(keep(turn, 1) for turn in range(1000))))

    assert world.answers == [LogStored(1)]
    assert len(world.disk.log_of("a")) == 1000


def test_a_snapshot_is_answered_with_its_position() -> None:
    """A session that has gone on by then can tell which one it was."""
    world = World.open(manual=False)
    world.ask(StoreLog(SESSION, 1, (keep(0, 1, 2, 3),)))
    world.ask(
        StoreState(SESSION, 1, KeepState("a", image(2))), StoreState(SESSION, 2, DropState("a"))
    )

    assert world.answers[1:] == [StateStored(1, 2), StateStored(2, None)]


def test_snapshots_beyond_the_bound_of_bytes_are_refused_and_one_always_goes() -> None:
    """The log is there, so a refusal costs time and nothing else."""
    world = World.open(max_image_bytes=100)
    world.ask(StoreLog(SESSION, 1, (keep(0, 1, 2, 3),)))
    world.work()
    asked = [StoreState(SESSION, size, KeepState("a", image(1, size))) for size in (300, 1)]
    world.ask(*asked)
    refused = list(world.answers[1:])
    world.work()
    world.ask(asked[1])
    world.work()

    assert [fault_of(answer) for answer in refused] == ["refused"]
    assert [fault_of(answer) for answer in world.answers[2:]] == [None, None]


def fetch(turn: str, nbytes: int = 60) -> FetchState:
    return FetchState(SESSION, A, TurnId(turn), nbytes)


def with_snapshot(**rules: Any) -> World:
    world = World.open(**rules)
    world.ask(
        StoreLog(SESSION, 1, (keep(0, 1, 2, 3),)), StoreState(SESSION, 2, KeepState("a", image()))
    )
    world.work()
    world.session.seen.clear()
    return world


def test_images_that_were_read_hold_up_others_until_they_are_released() -> None:
    """A thousand sessions that wake at once must not read all their states into memory."""
    world = with_snapshot(max_image_bytes=100)
    world.ask(fetch("t1"), fetch("t2"), fetch("t3"))
    world.work()
    first = [answer.turn for answer in world.answers]
    world.ask(ReleaseImage(TurnId("t1")))
    world.work()

    assert first == ["t1"]
    assert [answer.turn for answer in world.answers] == ["t1", "t2"]


def test_an_image_that_is_not_wanted_any_more_is_not_read() -> None:
    """Its turn was cancelled while it waited; or its report finds nobody."""
    world = with_snapshot(max_image_bytes=100)
    world.ask(fetch("t1"), fetch("t2"), ReleaseImage(TurnId("t2")), ReleaseImage(TurnId("t1")))
    world.work()
    world.ask(fetch("t3"))
    world.work()

    assert [answer.turn for answer in world.answers] == ["t3"]


def test_an_image_that_is_being_read_takes_up_its_room_until_it_has_been() -> None:
    """Released or not, the worker has it in memory; else the bound is passed by a few cancels."""
    world = with_snapshot(max_image_bytes=100)
    world.disk.jobs.clear()
    world.ask(fetch("t1"), ReleaseImage(TurnId("t1")), fetch("t2"), ReleaseImage(TurnId("t2")))
    world.ask(fetch("t3"), fetch("t4"))
    reading = len(world.disk.waiting)
    world.work()
    world.work()
    first = [answer.turn for answer in world.answers]
    world.ask(ReleaseImage(TurnId("t3")))
    world.work()

    assert (reading, first) == (1, ["t3"])
    assert [answer.turn for answer in world.answers] == ["t3", "t4"]
    assert len(world.disk.jobs) == 3


def test_a_turn_of_the_same_name_does_not_get_the_image_of_the_one_before() -> None:
    """Its own is read for it, and the room of both comes back."""
    world = with_snapshot(max_image_bytes=200)
    world.ask(fetch("t1"), ReleaseImage(TurnId("t1")), fetch("t1"))
    world.work(1)
    early = list(world.answers)
    world.work()
    world.ask(ReleaseImage(TurnId("t1")))
    world.ask(fetch("t2", 1), fetch("t3", 199))
    world.work()

    assert not early
    assert [answer.turn for answer in world.answers] == ["t1", "t2", "t3"]


def test_an_image_that_cannot_be_read_takes_up_no_room() -> None:
    """It is answered with why, and the next one goes."""
    world = with_snapshot(max_image_bytes=100)
    world.disk.damage_snapshot("a")
    world.ask(fetch("t1"), fetch("t2"))
    world.work()
    world.work()

    assert [type(answer.found) for answer in world.answers] == [StoreFault, StoreFault]


def test_a_session_that_dies_gives_back_the_room_of_its_images() -> None:
    """Else the rest would wait for ever."""
    world = with_snapshot(max_image_bytes=100)
    other = world.stack.spawn("session:b")
    world.ask(fetch("t1"))
    world.work()
    world.stack.post(STORE, FetchState(other.name, A, TurnId("t2"), 60))
    world.stack.dispatcher.kill(SESSION, RuntimeError("planted"))
    world.stack.run()
    world.work()

    assert [message.turn for message in other.seen if isinstance(message, StateFetched)] == ["t2"]


def test_who_has_open_business_hears_of_the_death_and_the_successor_goes_on() -> None:
    """A report on business of the former life finds nobody, and hurts nobody."""
    world = World.open()
    world.ask(StoreLog(SESSION, 1, (keep(0, 1),)))
    world.stack.dispatcher.kill(STORE, RuntimeError("planted"))
    world.stack.run()
    world.ask(StoreLog(SESSION, 2, (keep(0, 5),)))
    world.work()

    assert [type(message) for message in world.session.seen] == [Down, LogStored]
    assert world.answers == [LogStored(2)]
    assert world.disk.log_of("a") == [5]


def test_requests_that_were_never_handled_are_answered_by_a_death() -> None:
    """Each, and callers who wait as well as sessions."""
    world = World.open()
    removed: Reply[None] = Reply()
    waiting: Reply[None] = Reply()
    world.ask(ForgetStored(A, waiting), ReadStored(A))
    for message in (
        StoreLog(SESSION, 1, (keep(0, 1),)),
        StoreState(SESSION, 3, DropState("a")),
        fetch("t1"),
        ReadStored(A),
        ForgetStored(A, removed),
    ):
        world.stack.post(STORE, message, SESSION)
    world.stack.dispatcher.kill(STORE, RuntimeError("planted"))
    world.stack.run()

    assert [type(answer) for answer in world.answers] == [LogStored, StateStored, StateFetched]
    assert fault_of(world.answers[0]) == "stopped"
    assert [type(found) for _, found in world.records] == [StoreFault, StoreFault]
    assert isinstance(settled(removed), StoreError)
    assert isinstance(settled(waiting), StoreError)


def test_a_job_past_its_deadline_is_a_death() -> None:
    """A disk that hangs must not hang a caller for ever."""
    world = World.open(timeout_s=10.0)
    world.ask(StoreLog(SESSION, 1, (keep(0, 1),)))
    world.stack.advance(6.0)
    world.ask(StoreLog(SESSION, 2, (keep(0, 1),)))
    before = world.stack.dispatcher.deaths
    world.stack.advance(5.0)

    assert before == 0
    assert world.stack.dispatcher.deaths == 1
    assert isinstance(world.session.seen[-1], Down)


def test_jobs_in_time_keep_the_deadline_off() -> None:
    """One timer watches the oldest; what is done is not waited for."""
    world = World.open(timeout_s=10.0)
    for change in range(5):
        world.ask(StoreLog(SESSION, change, (keep(change, 1),)))
        world.stack.advance(6.0)
        world.work()
    world.stack.advance(100.0)

    assert world.stack.dispatcher.deaths == 0
    assert len(world.answers) == 5


@pytest.mark.parametrize("reason", ["missing", "failed"])
def test_a_session_that_is_not_there_is_as_good_as_removed(reason: Any) -> None:
    """Any other failure is the caller's to know."""
    world = World.open(manual=False)
    world.ask(StoreLog(SESSION, 1, (keep(0, 1),)))
    world.disk.fail_next.append(reason)
    reply: Reply[None] = Reply()
    world.ask(ForgetStored(A, reply))

    assert isinstance(settled(reply), StoreError) == (reason != "missing")


def test_a_worker_that_raises_has_failed_the_job() -> None:
    """It is foreign code; the actor lives on."""
    world = World.open(manual=False)

    def broken(job: object) -> Any:
        raise OSError("planted")

    world.disk.do = broken  # type: ignore[method-assign]  # the worker's own failure
    world.ask(StoreLog(SESSION, 1, (keep(0, 1),)), ReadStored(A))

    assert [fault_of(answer) for answer in world.answers] == ["failed"]
    assert isinstance(world.records[0][1], StoreFault)
    assert world.stack.dispatcher.deaths == 0
