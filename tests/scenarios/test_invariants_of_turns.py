"""The ten invariants, second half: what one turn may do to another, and to its reader."""

import pytest

from kernel import RequestAborted, SessionBusy, SessionClosed, StepError
from tests.known import known
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, cold_tokens, greedy, open_fake, open_stage, prompt


@on_both_models
async def test_6_the_second_of_two_concurrent_turns_is_refused(
    opened_device: DeviceFactory,
) -> None:
    """State and running turn are unharmed."""
    async with (
        open_stage(opened_device, num_slots=3, num_pages=20) as stage,
        stage.engine.session() as session,
    ):
        async with session.turn(prompt(5), greedy(4)) as first:
            await stage.step(2)
            with pytest.raises(SessionBusy):
                await stage.run(session.turn(prompt(3, 1), greedy(2)))
            history = stage.note([], await stage.finish(first))
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(2))))


async def test_7_boundaries_are_never_merged_for_a_slow_consumer() -> None:
    """Two turns have ended before anything was read: each still has its own end, and all of it."""
    async with open_stage(num_slots=3) as stage, stage.engine.session() as session:
        first = session.turn(prompt(3), greedy(5))
        second = session.turn(prompt(2, 1), greedy(4), wait=True)
        async with first, second:
            await stage.drain()
            history: list[int] = []
            for turn, length in ((first, 5), (second, 4)):
                deltas = [delta async for delta in turn]
                # One delta for all that was missed: merged, and nothing dropped.
                assert [delta.finish_reason for delta in deltas] == ["length"]
                assert deltas[0].token_ids == turn.result.token_ids
                assert deltas[0].text == turn.result.text
                assert len(turn.result.token_ids) == length
                history = stage.note(history, turn.result)


@pytest.mark.parametrize("pause", [1, 2, 3])
async def test_7_deltas_are_merged_and_never_dropped(pause: int) -> None:
    """A reader who comes by after every few steps gets each token once, in order."""
    async with open_stage(num_slots=2) as stage:
        async with stage.engine.stream(prompt(3), greedy(10)) as out:
            got: list[int] = []
            ends: list[str] = []
            while not ends:
                for _ in range(pause):
                    if stage.device.waiting:
                        await stage.step()
                delta = await anext(out)
                assert len(delta.token_ids) <= pause
                got += delta.token_ids
                ends += [delta.finish_reason] if delta.finish_reason else []
            with pytest.raises(StopAsyncIteration):
                await anext(out)
        assert ends == ["length"]
        assert tuple(got) == out.result.token_ids
        stage.note([], out.result)


@pytest.mark.parametrize("how", ["abort", "failure"])
async def test_7_an_abort_or_error_is_terminal_and_comes_once(how: str) -> None:
    """After it nothing more is delivered; unread tokens of a rolled-back turn are not either."""
    async with open_stage(num_slots=2) as stage:
        async with stage.engine.stream(prompt(3), greedy(10)) as out:
            await stage.step(3)
            if how == "abort":
                stage.engine.abort(out.request_id)
                await stage.settle()
            else:
                await stage.fail_step()
            with pytest.raises(RequestAborted if how == "abort" else StepError):
                await anext(out)
            for _ in range(2):
                with pytest.raises(StopAsyncIteration):
                    await anext(out)
        await stage.drain()


@on_both_models
async def test_8_parameters_are_those_of_their_own_turn(opened_device: DeviceFactory) -> None:
    """Also when the next turn is queued already: length, stop ids and draws."""
    [(_, stop, *_)] = await cold_tokens(opened_device, [(prompt(4), 6)])
    async with (
        open_stage(opened_device, num_slots=3, num_pages=30) as stage,
        stage.engine.session() as session,
    ):
        turns = [
            session.turn(prompt(4), greedy(6, stop_token_ids=[stop]), wait=True),
            session.turn(prompt(2, 1), greedy(5), wait=True),
            session.turn(prompt(2, 2), greedy(1), wait=True),
        ]
        async with turns[0], turns[1], turns[2]:
            await stage.drain()
            results = [await turn.wait() for turn in turns]
        assert [result.finish_reason for result in results] == ["stop", "length", "length"]
        assert results[0].stop_reason == stop
        assert results[0].token_ids[-1] == stop
        assert [len(result.token_ids) for result in results[1:]] == [5, 1]
        history: list[int] = []
        for result in results:
            history = stage.note(history, result)


@on_both_models
async def test_9_close_in_flight_leaks_nothing_and_frees_nothing_that_is_written(
    opened_device: DeviceFactory,
) -> None:
    """The slot under the device's hands is free when the step has landed, and not before."""
    async with open_stage(opened_device, num_slots=2, num_pages=20) as stage:
        async with stage.engine.session() as session:
            turn = session.turn(prompt(5), greedy(6))
            async with turn:
                await stage.step(2)
                written = {row.slot for row in stage.device.steps[-1].rows}
                await session.close()
                assert set(stage.owners()) == written
                with pytest.raises(SessionClosed):
                    await turn.wait()
        async with stage.engine.stream(prompt(4, 1), greedy(3)) as out:
            assert set(stage.owners()) == written
            stage.note([], await stage.finish(out))
        stage.assert_at_rest()


@pytest.mark.parametrize("at", [2, 6])
@on_both_models
async def test_10_a_stop_string_over_tokens_is_cut_and_the_position_reported(
    opened_device: DeviceFactory, at: int
) -> None:
    """The text excludes it, log and text agree, and the state is never ahead of the log."""
    async with (
        open_stage(opened_device, num_slots=3, num_pages=30) as stage,
        stage.engine.session() as session,
    ):
        whole = await stage.run(stage.engine.stream(prompt(5), greedy(9)))
        decode = stage.engine.tokenizer.decode
        middle = len(decode(whole.token_ids[:at]))
        stop = whole.text[middle - 1 : middle + 1]
        result = await stage.run(session.turn(prompt(5), greedy(9, stop=[stop])))
        assert result.finish_reason == "stop"
        assert result.stop_reason == stop
        assert result.text == whole.text[: whole.text.index(stop)]
        kept = result.token_ids
        assert kept == whole.token_ids[: len(kept)]
        assert decode(kept).startswith(result.text)
        assert len(decode(kept[:-1])) < len(result.text)
        history = stage.note([], result)
        info = session.info
        assert info.num_tokens == len(history)
        assert known(info.pending_tokens) == known(info.num_tokens) - known(info.position) >= 1
        stage.note(history, await stage.run(session.turn(prompt(3, 1), greedy(3))))


async def test_10_without_a_stop_string_all_but_the_pending_token_is_in_the_state() -> None:
    """The neighbour of the case above: nothing is held back for stop strings nobody gave."""
    async with open_stage(open_fake) as stage, stage.engine.session() as session:
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(9))))
        assert session.info.pending_tokens == 1
        assert session.info.position == len(history) - 1
