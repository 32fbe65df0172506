"""Random histories: whatever a session is taken through, its log is a plain list's.

Turns, appends, interrupts while a turn runs and after it, cancels, undone turns, checkpoints made,
moved, restored and dropped, forks, and states given up, on all kinds of models and on tight pools.
Every turn has the tokens of a cold run over the list.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.fake_device import FakeDevice
from kernel.actors.reply import Reply
from kernel.errors import CheckpointNotFound, ValidationError
from kernel.messages import DropMark, RestoreMark, Rewind, SetMark
from kernel.params import SamplingParams
from kernel.sessions.kept_states import NO_STATE
from kernel.sessions.session import SessionActor
from kernel.testing.invariants import always
from kernel.turn import TurnRequest
from tests.kernel.loopless import Loopless, outcome, read, tokens_of
from tests.oracle.history import History

KINDS = {"hybrid": (True, True), "recurrent": (True, False), "attention": (False, True)}
NAMES = ("a", "b")


def greedy(length: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


def device(kind: str) -> FakeDevice:
    slots, pages = KINDS[kind]
    return FakeDevice(mode="manual", eos_token_ids=(), uses_slots=slots, uses_pages=pages)


@attrs.define
class Walk:
    """Sessions of one engine, a list beside each of them, and an engine for cold runs."""

    world: Loopless
    cold: Loopless
    sessions: list[tuple[SessionActor, History]] = attrs.field(
        factory=list[tuple[SessionActor, History]]
    )
    _colds: int = 0

    @classmethod
    def open(cls, kind: str, slots: int) -> "Walk":
        limits: dict[str, Any] = {"max_num_seqs": 2, "max_num_batched_tokens": 6}
        if KINDS[kind][0]:
            limits["num_slots"] = slots
        walk = cls(Loopless.open(device=device(kind), **limits), Loopless.open(device=device(kind)))
        walk.sessions.append((walk.world.session("s0"), History()))
        return walk

    def do(self, move: str, who: int, number: int, other: int) -> None:
        """One move; numbers are taken modulo what there is."""
        session, history = self.sessions[who % len(self.sessions)]
        moves: dict[str, Callable[[SessionActor, History, int, int], None]] = {
            "turn": self.turn,
            "append": self.append,
            "barge in": self.barge_in,
            "late": self.late,
            "cancel": self.cancel,
            "rewind": self.rewind,
            "mark": self.mark,
            "restore": self.restore,
            "drop": self.drop,
            "fork": self.fork,
            "give up": self.give_up,
        }
        moves[move](session, history, number, other)
        self.compare()

    # Moves

    def turn(self, session: SessionActor, history: History, number: int, other: int) -> None:
        prompt = [number + 1, *range(other)]
        request = self.world.start(session, prompt, greedy(1 + number))
        self.world.finish(request)
        self.judge([*history.log, *prompt], tokens_of(request))
        history.add_turn(prompt, tokens_of(request))

    def append(self, session: SessionActor, history: History, number: int, other: int) -> None:
        prompt = list(range(1 + number + other))
        self.world.finish(self.world.start(session, prompt, kind="append"))
        history.log += prompt

    def barge_in(self, session: SessionActor, history: History, number: int, other: int) -> None:
        request = self.world.start(session, [number], greedy(9))
        self.step(request, other)
        read(request)
        keep = min(number, request.output.delivered)
        reply = self.world.interrupt(session, keep)
        self.world.finish(request)
        assert outcome(reply) == keep
        self.judge([*history.log, number], request.output.tokens[:keep])
        history.add_turn([number], request.output.tokens[:keep])

    def late(self, session: SessionActor, history: History, number: int, _: int) -> None:
        last = session.state.last
        if last is None:
            return
        keep = min(number, last.kept)
        assert outcome(self.world.interrupt(session, keep)) == keep
        history.cut(last.log_before + last.input_len + keep)

    def cancel(self, session: SessionActor, _: History, number: int, other: int) -> None:
        request = self.world.start(session, [number], greedy(9))
        self.step(request, other)
        if request.output.end is None:
            self.world.cancel(session, request)

    def rewind(self, session: SessionActor, history: History, number: int, _: int) -> None:
        reply = self.ask(session, Rewind, number - 4)
        if -history.turns <= number - 4 <= history.turns:
            keep = number - 4 if number >= 4 else history.turns + number - 4
            assert outcome(reply) == keep
            history.rewind(keep)
        else:
            assert isinstance(outcome(reply), ValidationError)

    def mark(self, session: SessionActor, history: History, number: int, _: int) -> None:
        self.ask(session, SetMark, NAMES[number % 2])
        history.mark(NAMES[number % 2])

    def restore(self, session: SessionActor, history: History, number: int, _: int) -> None:
        reply = self.ask(session, RestoreMark, NAMES[number % 2])
        if (mark := history.marks.get(NAMES[number % 2])) is None:
            assert isinstance(outcome(reply), CheckpointNotFound)
        else:
            assert outcome(reply) == mark[1]
            history.go_back(*mark)

    def drop(self, session: SessionActor, history: History, number: int, _: int) -> None:
        reply = self.ask(session, DropMark, NAMES[number % 2])
        is_there = history.marks.pop(NAMES[number % 2], None) is not None
        assert isinstance(outcome(reply), int) == is_there

    def fork(self, session: SessionActor, history: History, _number: int, _: int) -> None:
        if len(self.sessions) < 3:
            child = self.world.session(f"s{len(self.sessions)}", parent=session)
            self.sessions.append((child, history.fork()))

    def give_up(self, session: SessionActor, _history: History, number: int, _: int) -> None:
        states = session.state.states
        if states.kept:
            version = [*states.kept][number % len(states.kept)]
            assert session.state.give_up(states.name_of(version))

    # Looking

    def ask(self, session: SessionActor, kind: type[Any], what: object) -> Reply[int]:
        reply: Reply[int] = Reply()
        self.world.post(session, kind(what, reply))
        assert reply.is_settled
        return reply

    def step(self, request: TurnRequest, count: int) -> None:
        for _ in range(count):
            if request.output.end is None:
                self.world.step()

    def judge(self, context: Sequence[int], tokens: Sequence[int]) -> None:
        if not tokens:
            return
        self._colds += 1
        session = self.cold.session(f"cold-{self._colds}", is_one_shot=True)
        request = self.cold.start(session, list(context), greedy(len(tokens)))
        self.cold.finish(request)
        assert list(tokens) == tokens_of(request), context

    def compare(self) -> None:
        assert always(self.world.core) == []
        for session, history in self.sessions:
            state = session.state
            assert state.log.tolist() == history.log
            assert state.turn_starts.tolist() == history.starts
            marks = {name: (mark.length, mark.turns) for name, mark in state.states.marks.items()}
            assert marks == history.marks
            assert self.world.held_by(session) == len(state.states.kept)
            named = {state.states.current, state.states.before}
            named |= {mark.version for mark in state.states.marks.values()}
            assert {*state.states.kept} == named - {NO_STATE}

    def close(self) -> None:
        for session, _ in self.sessions:
            self.world.close(session)
        while self.world.core.scheduler is not None and self.world.core.scheduler.flight:
            self.world.step()
        self.world.assert_all_free()


MOVES = st.tuples(
    st.sampled_from(
        [
            *("turn", "turn", "turn", "append", "barge in", "late", "cancel", "rewind", "mark"),
            *("mark", "restore", "restore", "drop", "fork", "give up"),
        ]
    ),
    st.integers(0, 2),
    st.integers(0, 8),
    st.integers(0, 5),
)


@settings(max_examples=60)
@given(st.sampled_from([*KINDS]), st.integers(1, 4), st.lists(MOVES, max_size=14))
def test_any_history_is_a_plain_lists(
    kind: str, slots: int, moves: list[tuple[str, int, int, int]]
) -> None:
    """Log, turns and checkpoints after each move, and the tokens of each turn."""
    walk = Walk.open(kind, slots)
    for move, who, number, other in moves:
        walk.do(move, who, number, other)
    walk.close()


def test_the_walk_sees_what_it_is_meant_to() -> None:
    """A history that goes through all of it once, so that no move is empty by accident."""
    walk = Walk.open("hybrid", 3)
    for move, who, number, other in [
        ("turn", 0, 3, 2),
        ("mark", 0, 0, 0),
        ("barge in", 0, 2, 3),
        ("turn", 0, 5, 1),
        ("late", 0, 2, 0),
        ("fork", 0, 0, 0),
        ("turn", 1, 2, 2),
        ("rewind", 1, 1, 0),
        ("restore", 0, 0, 0),
        ("append", 0, 2, 2),
        ("cancel", 0, 2, 2),
        ("give up", 0, 0, 0),
        ("turn", 0, 2, 2),
        ("drop", 0, 0, 0),
        ("rewind", 0, 4, 0),
    ]:
        walk.do(move, who, number, other)
    walk.close()

    assert walk.world.core.session_counters.cancelled == 1
