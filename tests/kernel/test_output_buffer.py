"""The output of a turn: merged and never dropped, for a reader as slow as may be."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_device.tokenizer import FakeTokenizer
from kernel.errors import RequestAborted
from kernel.outputs import Delta
from kernel.requests.detokenizer import IncrementalDetokenizer
from kernel.requests.output_buffer import TurnEnd, TurnOutput
from tests.kernel.toys import Clock
from tests.kernel.turns import make_output

TOKENIZER = FakeTokenizer()


def texts(*, stop: str | tuple[str, ...] = (), include_stop: bool = False) -> TurnOutput:
    """An output with a tokenizer of bytes, so that ``push_text`` is one token a byte."""
    stops = (stop,) if isinstance(stop, str) else stop
    detokenizer = IncrementalDetokenizer(TOKENIZER, stop=stops, include_stop=include_stop)
    return make_output(detokenizer=detokenizer, decode_early=bool(stops))


def push_text(output: TurnOutput, text: str) -> None:
    for token in text.encode():
        output.push(token, hidden=False)
        if output.decode_early:
            output.decode()


async def read_now(output: TurnOutput) -> Delta | None:
    """What a reader gets without waiting."""
    with anyio.fail_after(0.5):
        return await output.next_delta()


async def read_all(output: TurnOutput) -> list[Delta]:
    deltas: list[Delta] = []
    while (delta := await read_now(output)) is not None:
        deltas.append(delta)
    return deltas


async def test_what_a_slow_reader_missed_is_merged_into_one_delta() -> None:
    """A consumer never holds a turn up, and loses nothing."""
    output = texts()
    push_text(output, "abc")
    first = await read_now(output)
    push_text(output, "defg")
    second = await read_now(output)

    assert first == Delta("abc", tuple(b"abc"))
    assert second == Delta("defg", tuple(b"defg"))


async def test_the_end_is_a_delta_of_its_own_reading_and_then_there_is_none() -> None:
    """It carries what was still unread, and is never merged away."""
    output = texts()
    push_text(output, "ab")
    output.finish(TurnEnd("length", 2))

    assert await read_now(output) == Delta("ab", tuple(b"ab"), "length")
    assert await read_now(output) is None
    assert await read_now(output) is None


async def test_an_end_without_news_is_a_delta_all_the_same() -> None:
    """The reader is told how it ended, whatever it had read before."""
    output = texts()
    push_text(output, "ab")
    await read_now(output)
    output.finish(TurnEnd("stop", 2))

    assert await read_now(output) == Delta("", (), "stop")


async def test_a_reader_is_woken_by_a_token_and_by_the_end() -> None:
    """It waits for nothing else."""
    output = texts()
    got: list[Delta] = []

    async def read() -> None:
        while (delta := await output.next_delta()) is not None:
            got.append(delta)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        push_text(output, "a")
        await anyio.wait_all_tasks_blocked()
        output.finish(TurnEnd("length", 1))

    assert got == [Delta("a", (97,)), Delta("", (), "length")]


async def test_a_cancelled_read_takes_nothing() -> None:
    """The next read gets all of it."""
    output = texts()
    with anyio.move_on_after(0.01):
        await output.next_delta()
    push_text(output, "abc")

    assert await read_now(output) == Delta("abc", tuple(b"abc"))


async def test_an_error_is_raised_once_instead_of_the_end() -> None:
    """After it the stream is over; tokens that were unread belong to no result."""
    output = texts()
    push_text(output, "abc")
    output.finish(TurnEnd("abort", 0, error=RequestAborted(request_id="r")))

    with pytest.raises(RequestAborted):
        await read_now(output)
    assert await read_now(output) is None


async def test_the_first_end_stands_and_is_told_once() -> None:
    """The session decides once; what buries it may say it again."""
    told: list[int] = []
    output = make_output(on_end=lambda: told.append(1))
    output.finish(TurnEnd("length", 0))
    output.finish(TurnEnd("error", 0, error=RuntimeError("late")))

    assert told == [1]
    assert (await output.wait_ended()).reason == "length"


async def test_waiting_for_the_end_sleeps_through_the_tokens() -> None:
    """``complete`` costs one wake, however long the answer."""
    output = texts()
    got: list[TurnEnd] = []

    async def wait() -> None:
        got.append(await output.wait_ended())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        push_text(output, "abc")
        await anyio.wait_all_tasks_blocked()
        assert got == []
        output.finish(TurnEnd("length", 3))

    assert [end.kept for end in got] == [3]


async def test_one_who_waits_for_the_end_keeps_no_token_from_one_who_reads() -> None:
    """Two tasks may share a turn: one shows it, the other wants the result."""
    output = texts()
    read: list[Delta | None] = []
    before_the_end: list[Delta | None] = []

    async def show() -> None:
        read.append(await output.next_delta())

    with anyio.fail_after(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.wait_ended)
            tasks.start_soon(show)
            await anyio.wait_all_tasks_blocked()
            push_text(output, "a")
            await anyio.wait_all_tasks_blocked()
            before_the_end += read
            output.finish(TurnEnd("length", 1))

    assert before_the_end == [Delta("a", (97,))]


async def test_half_a_character_is_held_back_until_it_is_whole() -> None:
    """Text lags behind the token ids where it may still change."""
    output = texts()
    first, second = "é".encode()
    output.push(first, hidden=False)
    half = await read_now(output)
    output.push(second, hidden=False)
    whole = await read_now(output)

    assert half == Delta("", (first,))
    assert whole == Delta("é", (second,))


async def test_a_stop_tokens_id_is_given_and_its_text_is_not() -> None:
    """It ended the turn; it is no part of the answer."""
    output = texts()
    push_text(output, "ab")
    output.push(99, hidden=True)
    output.finish(TurnEnd("stop", 3))

    assert await read_all(output) == [Delta("ab", (97, 98, 99), "stop")]
    assert output.final_text() == "ab"


async def test_an_interrupt_that_keeps_all_gives_out_what_was_unread() -> None:
    """``interrupt()`` without a number: the caller gets every token that there is."""
    output = texts()
    push_text(output, "abc")
    await read_now(output)
    push_text(output, "def")
    output.finish(TurnEnd("interrupt", 6))

    assert await read_all(output) == [Delta("def", tuple(b"def"), "interrupt")]
    assert output.final_text() == "abcdef"
    assert output.usage.completion_tokens == 6


async def test_an_interrupt_after_delivery_takes_nothing_back() -> None:
    """A delta that was read can't be unread; the last one adds nothing to it."""
    output = texts()
    push_text(output, "abcd")
    await read_now(output)
    push_text(output, "ef")
    output.finish(TurnEnd("interrupt", 2))

    assert await read_all(output) == [Delta("", (), "interrupt")]
    assert output.final_text() == "ab"


async def test_a_stop_string_ends_the_text_before_it() -> None:
    """Nothing of it was ever given out, though it came byte by byte."""
    output = texts(stop="END")
    push_text(output, "so E")
    first = await read_now(output)
    push_text(output, "ND and more")
    hit = output.stop_hit
    assert hit is not None
    output.finish(TurnEnd("stop", hit.kept_tokens, hit.stop))

    assert first == Delta("so ", tuple(b"so "))
    assert await read_all(output) == [Delta("", (), "stop")]
    assert output.final_text() == "so "


async def test_what_looked_like_a_stop_string_is_given_out_at_the_end() -> None:
    """Held back, not lost."""
    output = texts(stop="END")
    push_text(output, "EN")
    output.finish(TurnEnd("length", 2))

    assert await read_all(output) == [Delta("EN", tuple(b"EN"), "length")]


async def test_ids_only_when_there_is_no_tokenizer() -> None:
    """A bare device serves token ids, without any decoding."""
    output = make_output()
    output.push(7, hidden=False)
    output.finish(TurnEnd("length", 1))

    assert await read_all(output) == [Delta("", (7,), "length")]
    assert output.final_text() == ""


def test_unread_output_is_noted_only_for_who_watches() -> None:
    """The stall deadline counts from the first token that nobody took."""
    clock = Clock(5.0)
    watched = make_output(clock=clock, watch_reader=True)
    other = make_output(clock=clock)
    for output in (watched, other):
        output.push(7, hidden=False)
        clock.at += 1
        output.push(8, hidden=False)

    assert watched.unread_since == 5.0
    assert other.unread_since is None


async def test_reading_resets_the_stall_clock() -> None:
    """A slow reader that reads is no stall."""
    output = make_output(watch_reader=True)
    output.push(7, hidden=False)
    await read_now(output)

    assert output.unread_since is None


@given(
    text=st.text(alphabet="abé€😀", max_size=12),
    reads=st.sets(st.integers(0, 40)),
    keep=st.integers(0, 40),
)
def test_all_deltas_together_are_the_result(text: str, reads: set[int], keep: int) -> None:
    """Whenever they are read; except what an interrupt takes back after it was read."""

    async def run() -> None:
        output = texts()
        deltas: list[Delta] = []
        data = text.encode()
        for number, token in enumerate(data):
            output.push(token, hidden=False)
            if number in reads:
                delta = await output.next_delta()
                assert delta is not None
                deltas.append(delta)
        kept = min(keep, len(data))
        output.finish(TurnEnd("interrupt" if kept < len(data) else "length", kept))
        deltas += await read_all(output)
        tokens = tuple(token for delta in deltas for token in delta.token_ids)
        given = "".join(delta.text for delta in deltas)

        assert deltas[-1].finish_reason is not None
        assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
        assert tokens == tuple(data[: len(tokens)])
        assert len(tokens) >= kept
        assert output.final_text() == data[:kept].decode(errors="replace")
        if kept == len(data):
            assert given == text

    anyio.run(run)
