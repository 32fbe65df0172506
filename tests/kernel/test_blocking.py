"""The blocking door: the same engine for code without an event loop."""

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import (
    BlockingEngine,
    BlockingSession,
    BlockingTurn,
    CheckpointNotFound,
    Engine,
    EngineClosed,
    NotFinished,
    PromptTooLong,
    RequestAborted,
    RunningTurn,
    SamplingParams,
    Session,
    TurnNotFound,
    ValidationError,
)
from kernel.engine.blocking_options import (
    AppendOptions,
    ForkOptions,
    MapOptions,
    OpenOptions,
    SessionOptions,
    TurnOptions,
)
from kernel.engine.core import Core
from kernel.requests.options import RequestOptions
from ownership import AuditReport
from tests.kernel.small import GREEDY, LONG, config, opened


def open_engine(**options: object) -> BlockingEngine:
    return BlockingEngine(config(), device=opened(**options))


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> list[AuditReport]:
    """What each engine that was stopped had in its books at the end."""
    found: list[AuditReport] = []
    stop = Core.stop

    def noting(self: Core, *, join_timeout_s: float) -> AuditReport:
        found.append(stop(self, join_timeout_s=join_timeout_s))
        return found[-1]

    monkeypatch.setattr(Core, "stop", noting)
    return found


def test_complete_and_map_block_until_the_end() -> None:
    """Results as from the async door."""
    with open_engine() as engine:
        one = engine.complete("hello", GREEDY)
        many = engine.map(["hello", [1, 2]], GREEDY, concurrency=1)

        assert one.token_ids == many[0].token_ids
        assert len(many[1].token_ids) == 4
        assert engine.stats().turns_finished == 3
        assert engine.health().ready


def test_a_stream_is_an_iterator_in_a_block() -> None:
    """Leaving it early cancels."""
    with open_engine(delay=0.0) as engine:
        with engine.stream([1], GREEDY) as deltas:
            tokens = [token for delta in deltas for token in delta.token_ids]
        with engine.stream([1], LONG) as deltas:
            next(deltas)
        whole = engine.complete([1], GREEDY)

        assert tuple(tokens) == whole.token_ids
        assert engine.stats().turns_cancelled == 1


def test_a_session_keeps_its_state_between_calls() -> None:
    """Append, complete, stream, interrupt, look, close."""
    with open_engine() as engine:
        with engine.session(session_id="a") as session:
            session.append([1, 2, 3])
            first = session.complete([4], GREEDY)
            kept = session.interrupt(2)
            info = session.info
            with session.turn([5], GREEDY) as deltas:
                last = list(deltas)[-1]

            assert (session.session_id, info.num_tokens, kept) == ("a", 6, 2)
            assert first.usage.prompt_tokens == 4
            assert last.finish_reason == "length"
        assert engine.stats().num_sessions == 0
        with engine.session() as session:
            session.close()
            session.close()


def test_a_session_goes_back_between_calls() -> None:
    """Rewind, checkpoint, restore, drop."""
    with open_engine() as engine, engine.session() as session:
        session.complete([1, 2], GREEDY)
        mark = session.checkpoint("here")
        session.complete([3], GREEDY)

        assert (session.rewind(-1), session.restore(mark)) == (1, 1)
        session.drop_checkpoint(mark)
        with pytest.raises(CheckpointNotFound):
            session.restore(mark)


ASYNC_ALONE = {
    "open": "BlockingEngine(...)",
    "aclose": "the end of the block",
    "settle": "for tests of the engine itself",
    "generate": "stream",
    "iter_sessions": "list_sessions",
    "core": "not for callers",
    "has_result": "result, which says why there is none",
    "num_outputs": "params.n",
    "cancel_from_anywhere": "cancel, which any thread may call",
}
"""What blocking code has no use for, and what it has instead."""


@pytest.mark.parametrize(
    ("door", "blocking"),
    [(Engine, BlockingEngine), (Session, BlockingSession), (RunningTurn, BlockingTurn)],
)
def test_whatever_a_caller_may_do_blocking_code_may_do(door: type, blocking: type) -> None:
    """A method that is added to one door and forgotten at the other is missed by its users."""
    here, there = ({name for name in dir(kind) if name[0] != "_"} for kind in (blocking, door))

    assert there - here - ASYNC_ALONE.keys() == set()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Engine.open, OpenOptions),
        (Engine.session, SessionOptions),
        (Engine.map, MapOptions),
        (Session.fork, ForkOptions),
        (Session.append, AppendOptions),
        (Session.turn, TurnOptions),
    ],
)
def test_what_blocking_code_may_say_is_typed_as_the_method_takes_it(
    method: Callable[..., object], options: type
) -> None:
    """An option that is added to a method and forgotten here would be refused by type checkers."""
    taken = {
        name: parameter.annotation
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    if options is TurnOptions:
        taken |= RequestOptions.__annotations__

    assert options.__annotations__ == taken


def test_a_fork_goes_its_own_way_and_ends_with_its_block() -> None:
    """From the same history, with the same answer."""
    with open_engine() as engine, engine.session() as session:
        session.append([1, 2, 3])
        with session.fork(session_id="child") as child:
            answers = [each.complete([4], GREEDY).token_ids for each in (session, child)]
            assert [info.session_id for info in engine.list_sessions()] == [
                session.session_id,
                "child",
            ]
        assert answers[0] == answers[1]
        assert engine.session_ids() == [session.session_id]


def test_a_turn_has_its_result_once_it_has_ended() -> None:
    """Usage and the reason of the end are nowhere else."""
    with open_engine(delay=0.001) as engine, engine.session() as session:
        with session.turn([1, 2], LONG) as turn, pytest.raises(NotFinished):
            _ = turn.result
        with session.turn([1, 2], GREEDY, request_id="mine") as turn:
            tokens = [token for delta in turn for token in delta.token_ids]
            assert turn.result.token_ids == tuple(tokens)
        assert (turn.request_id, turn.result.usage.prompt_tokens) == ("mine", 2)
        with engine.stream([1, 2], GREEDY) as out:
            assert out.wait().token_ids == tuple(tokens)


def test_a_turn_is_interrupted_or_cancelled_from_where_it_is_read() -> None:
    """As barge-in, by a call of its own, and by its id."""
    with open_engine(delay=0.001) as engine, engine.session() as session:
        with session.turn([1], LONG) as turn:
            next(turn)
            assert turn.interrupt(1) == 1
        assert session.info.num_tokens == 2
        with session.turn([2], LONG) as turn:
            next(turn)
            turn.cancel()
            with pytest.raises(RequestAborted):
                turn.wait()
        with session.turn([2], LONG, request_id="mine") as turn:
            assert engine.abort("mine")
            assert not engine.abort("another")
        assert session.info.num_tokens == 2


def test_what_is_known_of_the_engine_is_known_here() -> None:
    """Its tokenizer, its books, its defaults; and its cache can be emptied."""
    with open_engine() as engine:
        assert engine.tokenizer.decode(engine.tokenizer.encode("hello")) == "hello"
        assert not engine.takes_messages
        assert engine.default_params(temperature=0).temperature == 0
        engine.reset_prefix_cache()
        assert engine.audit().conserved


def test_several_outputs_come_through_one_call() -> None:
    """Whole, and streamed with their indices."""
    params = SamplingParams(n=2, max_tokens=3, ignore_eos=True, seed=1)
    with open_engine() as engine:
        result = engine.complete([1, 2], params)
        with engine.stream([1, 2], params) as deltas:
            found = {delta.index for delta in deltas}

    assert [output.index for output in result.outputs] == [0, 1]
    assert found == {0, 1}


def test_errors_come_out_as_they_are() -> None:
    """Typed, and not as a future's or a group's."""
    with open_engine() as engine:
        with pytest.raises(ValidationError):
            engine.complete([10**6], GREEDY)
        with pytest.raises(PromptTooLong):
            engine.complete([1] * 200_000, GREEDY)
        with engine.session() as session, pytest.raises(TurnNotFound):
            session.interrupt()


def test_the_callers_error_leaves_the_block(audits: list[AuditReport]) -> None:
    """And the engine is stopped."""
    with pytest.raises(KeyError, match="mine"), open_engine() as engine:
        engine.complete([1], GREEDY)
        raise KeyError("mine")

    assert [audit.at_rest for audit in audits] == [True]


def test_outside_of_its_block_it_is_closed() -> None:
    """Before as well as after."""
    engine = open_engine()
    with pytest.raises(EngineClosed):
        engine.stats()
    with engine:
        engine.stats()
    with pytest.raises(EngineClosed):
        engine.complete([1], GREEDY)


def test_a_config_that_is_refused_leaves_no_thread_behind() -> None:
    """The loop's thread is started before the engine, and must end with the failure."""
    before = threading.active_count()
    with (
        pytest.raises(ValidationError),
        BlockingEngine(config(max_model_len=200_000), device=opened()),
    ):
        pass

    assert threading.active_count() == before


def test_many_threads_share_one_engine() -> None:
    """Each call goes to the engine's own thread; their turns are batched there."""
    with open_engine(delay=0.001) as engine:

        def ask(number: int) -> tuple[int, ...]:
            return engine.complete([number % 3], GREEDY).token_ids

        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(ask, range(12)))
        steps = engine.stats().steps

        assert answers[:3] == answers[3:6] == answers[9:]
        assert steps < 12 * 4


def test_a_thread_of_the_callers_own_can_use_a_session() -> None:
    """A session belongs to its engine, not to a thread."""
    with open_engine() as engine, engine.session() as session:
        thread = threading.Thread(target=session.append, args=([1, 2, 3],))
        thread.start()
        thread.join()

        assert session.info.num_tokens == 3


def test_leaving_with_a_stream_open_ends_it(audits: list[AuditReport]) -> None:
    """The blocks close from the inside; nothing is left running."""
    with open_engine(delay=0.0) as engine:
        with engine.session() as session, session.turn([1], LONG) as deltas:
            next(deltas)

    assert [audit.at_rest for audit in audits] == [True]
