"""The blocking door: the same engine for code without an event loop."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import (
    BlockingEngine,
    CheckpointNotFound,
    EngineClosed,
    PromptTooLong,
    SamplingParams,
    TurnNotFound,
    ValidationError,
)
from kernel.engine.core import Core
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
