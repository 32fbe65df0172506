"""Sessions without an end: which positions are kept is a function of the position alone."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from adapters.fake_device import FakeDevice
from kernel import PromptTooLong, ValidationError
from kernel.actors.reply import Reply
from kernel.engine.streaming_session import check_on_limit
from kernel.ids import SessionId
from kernel.messages import Exported, ExportSession
from kernel.sessions.session import SessionActor
from kernel.sliding import SlidingWindow
from kernel.state_image import StateImage
from ownership import Place
from tests.kernel.loopless import Loopless, error_of, tokens_of
from tests.pressure.worlds import (
    assert_all_free,
    drain,
    greedy,
    move,
    open_world,
    places_of,
    words,
)

PAGES = 12
"""Of an engine: a window has six, and drops three at a time."""
LENGTH = 24


def endless(**config: object) -> Loopless:
    return open_world(**{"num_slots": 3, "num_pages": PAGES, **config})


def slider(world: Loopless, name: str = "endless") -> SessionActor:
    return world.session(name, slides=True)


def cold(context: Sequence[int], count: int, *, pages: int = PAGES, chunk: int = 64) -> list[int]:
    """A run alone over the whole log, with the same window."""
    world = Loopless.open(
        num_slots=2, num_pages=pages, max_num_seqs=1, max_num_batched_tokens=chunk
    )
    request = world.start(slider(world), list(context), greedy(count))
    world.finish(request)
    assert not world.device.poison_reads
    return tokens_of(request)


def go_on(world: Loopless, session: SessionActor, tokens: Sequence[int], count: int) -> None:
    """One more turn; its tokens must be those of a cold run over the whole log."""
    log = session.state.log.tolist()
    request = world.start(session, tokens, greedy(count))
    world.finish(request)
    assert tokens_of(request) == cold([*log, *tokens], count)


@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("pages", [2, 3, 6, 7])
def test_the_schedule_keeps_at_most_a_window_and_drops_whole_pages(size: int, pages: int) -> None:
    """By definition, at every position."""
    window = SlidingWindow.fitting(pages * size, size)
    assert window is not None
    dropped = 0
    for position in range(12 * window.length):
        first = window.first_page(position)
        assert first >= dropped
        assert 0 < position + 1 - first * size <= window.length
        assert position < window.end(position) <= first * size + window.length
        assert window.first_page(window.end(position) - 1) == first
        assert window.first_page(window.end(position)) > first
        dropped = first
    assert SlidingWindow.fitting(2 * size - 1, size) is None


@pytest.mark.parametrize("chunk", [4, 7, 64])
def test_a_session_of_twenty_windows_goes_on(chunk: int) -> None:
    """In turns of every size, beside which it never has more pages than its window."""
    world = endless(max_num_seqs=2, max_num_batched_tokens=chunk)
    session = slider(world)
    number = 0
    while len(session.state.log) < 20 * LENGTH:
        number += 1
        request = world.start(session, words(1 + 11 * number % 37, number), greedy(1 + number % 6))
        while request.output.end is None:
            for step in world.device.waiting:
                assert all(len(row.pages) <= LENGTH // 4 for row in step.rows)
            move(world)
        request.output.delivered = len(request.output.tokens)
    assert world.core.counters.recomputed_tokens == 0
    log = session.state.log.tolist()
    go_on(world, session, words(3, 1), 6)
    assert cold(log[:-1], 1) != cold(log[-LENGTH:-1], 1), "the recurrent state tells them apart"
    world.close(session)
    assert_all_free(world)


def test_a_prompt_many_windows_long_is_absorbed() -> None:
    """Its chunks end where pages are dropped."""
    world = endless(max_num_batched_tokens=64)
    session = slider(world)
    request = world.start(session, words(5 * LENGTH + 3), greedy(4))
    world.finish(request)
    assert tokens_of(request) == cold(words(5 * LENGTH + 3), 4, chunk=5)
    world.close(session)
    assert_all_free(world)


def slid(world: Loopless) -> SessionActor:
    session = slider(world)
    world.finish(world.start(session, words(3 * LENGTH + 5), greedy(3)))
    return session


def test_parked_and_brought_back_it_goes_on_alike() -> None:
    """The host has what the device had, with as many pages dropped."""
    world = endless(num_slots=2)
    session = slid(world)
    for number in range(6):
        other = world.session(f"other {number}")
        world.finish(world.start(other, words(18, number), greedy(3)))
        world.finish(world.start(other, words(8, number), greedy(3)))
        world.close(other)
        assert Place.HOST in places_of(world, session) or number == 0
        go_on(world, session, words(5, number), 7)
    assert world.core.counters.forced_parks
    assert world.core.counters.recomputed_tokens == 0
    world.close(session)
    assert_all_free(world)


def test_given_up_and_computed_again_from_its_log_it_goes_on_alike() -> None:
    """All of its history is computed, window by window."""
    world = endless(num_slots=2, host_memory_bytes=0)
    session = slid(world)
    for number in range(4):
        other = world.session(f"other {number}")
        world.finish(world.start(other, words(40, number), greedy(3)))
        world.close(other)
        go_on(world, session, words(5, number), 7)
    assert world.core.counters.recomputed_tokens > 4 * 3 * LENGTH
    world.close(session)
    assert_all_free(world)


@pytest.mark.parametrize("host", [None, 0])
def test_preempted_at_every_point_it_goes_on_alike(host: int | None) -> None:
    """Before, in and after a slide: what had not been copied yet is as it was."""
    for delay in range(1, 14):
        config: dict[str, Any] = {} if host is None else {"host_memory_bytes": host}
        world = endless(scheduling_policy="priority", max_num_batched_tokens=8, **config)
        session = slid(world)
        log = session.state.log.tolist()
        request = world.start(session, words(9, 2), greedy(16), priority=5)
        move(world, delay)
        urgent = world.start(
            world.session("urgent", is_one_shot=True), words(40), greedy(2), priority=-5
        )
        world.finish(urgent)
        world.finish(request)
        assert request.output.preemptions
        if host is None:
            assert request.output.recomputed_tokens == 0, delay
        assert tokens_of(request) == cold([*log, *words(9, 2)], 16)
        go_on(world, session, words(3), 3)
        world.close(session)
        assert_all_free(world)


@pytest.mark.parametrize("how", ["cancel", "interrupt", "close", "die"])
def test_ended_at_every_point_it_leaves_nothing(how: str) -> None:
    """A turn that slides has two claims for a step."""
    for delay in range(14):
        world = endless(max_num_batched_tokens=8)
        session = slid(world)
        request = world.start(session, words(9, 2), greedy(16))
        move(world, delay)
        request.output.delivered = len(request.output.tokens)
        if how == "cancel":
            world.cancel(session, request)
        elif how == "interrupt":
            world.interrupt(session, None, request)
        elif how == "close":
            world.close(session)
        else:
            world.core.dispatcher.kill(session.name, RuntimeError("planted"))
            world.run()
        drain(world)
        if how in ("cancel", "interrupt"):
            go_on(world, session, words(3), 3)
            world.close(session)
        if how == "die":
            assert world.core.ledger.audit().at_rest
        else:
            assert_all_free(world)


def test_a_fork_goes_on_alike() -> None:
    """It slides as its parent does, from what that has kept."""
    world = endless(num_slots=4, num_pages=2 * PAGES)
    session = slider(world)
    world.finish(world.start(session, words(9 * LENGTH), greedy(3)))
    fork = world.session("fork", parent=session)
    log = session.state.log.tolist()
    for number, one in enumerate((fork, session)):
        request = world.start(one, words(5, number), greedy(30))
        world.finish(request)
        context = [*log, *words(5, number)]
        assert tokens_of(request) == cold(context, 30, pages=2 * PAGES)
    for one in (fork, session):
        world.close(one)
    assert_all_free(world)


def test_an_interrupt_that_cuts_behind_a_slide_is_exact() -> None:
    """The state lies beyond what is kept; the next turn starts from the one before it."""
    world = endless()
    session = slid(world)
    request = world.start(session, words(9, 2), greedy(30))
    move(world, 25)
    request.output.delivered = len(request.output.tokens)
    world.interrupt(session, 2, request)
    drain(world)
    go_on(world, session, words(3), 5)
    world.close(session)
    assert_all_free(world)


def test_two_that_slide_on_a_pool_for_one_take_turns() -> None:
    """Each needs both windows of the pool for a step; the senior goes first."""
    world = endless(num_slots=2, max_num_batched_tokens=8)
    first, second = slider(world, "first"), slider(world, "second")
    requests = [
        world.start(first, words(50), greedy(40)),
        world.start(second, words(50, 1), greedy(40)),
    ]
    for request in requests:
        world.finish(request)
    assert tokens_of(requests[0]) == cold(words(50), 40)
    assert tokens_of(requests[1]) == cold(words(50, 1), 40)
    for session in (first, second):
        world.close(session)
    assert_all_free(world)


@pytest.mark.parametrize("kind", ["recurrent", "attention"])
def test_models_without_slots_or_without_pages_go_on_as_well(kind: str) -> None:
    """A recurrent state has no limit; attention alone forgets what it has dropped."""

    def device() -> FakeDevice:
        return FakeDevice(
            mode="manual",
            eos_token_ids=(),
            uses_slots=kind == "recurrent",
            uses_pages=kind == "attention",
            max_model_len=64,
        )

    config: dict[str, Any] = {"num_slots": 1} if kind == "recurrent" else {"num_pages": PAGES}
    world = Loopless.open(device=device(), host_memory_bytes=0, **config)
    session = slider(world)
    log: list[int] = []
    for number in range(9):
        request = world.start(session, words(20, number), greedy(12))
        world.finish(request)
        log += [*words(20, number), *tokens_of(request)]
    other = Loopless.open(device=device(), host_memory_bytes=0, **config)
    again = other.start(slider(other), log, greedy(5))
    other.finish(again)
    last = world.start(session, [], greedy(5))
    world.finish(last)
    assert tokens_of(last) == tokens_of(again)
    assert len(log) > 4 * 64
    world.close(session)
    assert_all_free(world)


def test_refuse_is_as_before() -> None:
    """The default: a turn that does not fit is told so, and the session is what it was."""
    world = endless()
    session = world.session("a")
    world.finish(world.start(session, words(30), greedy(3)))
    refused = world.start(session, words(12), greedy(10))
    assert refused.output.end is not None
    assert isinstance(refused.output.end.error, PromptTooLong)
    world.close(session)
    assert_all_free(world)


def test_a_long_pending_part_is_absorbed_and_kept_once() -> None:
    """Interrupts in a row don't add up, however long the log is."""
    world = endless()
    session = slid(world)
    for number in range(4):
        request = world.start(session, words(9, number), greedy(8))
        move(world, 2)
        world.interrupt(session, 0, request)
        drain(world)
        assert len(session.state.log) - session.state.position <= 4 + 9 + 1
    go_on(world, session, words(2), 3)
    assert world.core.counters.recomputed_tokens == 0
    world.close(session)
    assert_all_free(world)


def test_with_a_prefix_cache_it_says_the_same() -> None:
    """What was cached stands before the first position that drops any."""
    world = endless(
        num_slots=8,
        num_pages=4 * PAGES,
        max_model_len=LENGTH,
        enable_prefix_caching=True,
        prefix_cache_block=4,
    )
    for number in range(3):
        session = slider(world)
        request = world.start(session, words(2 * LENGTH), greedy(9))
        world.finish(request)
        assert tokens_of(request) == cold(words(2 * LENGTH), 9)
        assert request.output.cached_tokens < LENGTH
        go_on(world, session, words(7, number), 5)
        world.close(session)
    assert world.core.counters.cache_hits
    world.core.clear_cache()
    world.run()
    assert_all_free(world)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"num_pages": 3}, "num_pages must hold two windows and is 3"),
        ({"num_slots": 1}, "raise num_slots to 2"),
        ({"max_model_len": 7}, "max_model_len one and is 7"),
    ],
)
def test_pools_that_are_too_small_to_slide_are_refused(config: dict[str, Any], why: str) -> None:
    """At the opening of an engine that is to let sessions slide, with the way out."""
    given: dict[str, Any] = {"num_slots": 3, "num_pages": PAGES, **config}
    with pytest.raises(ValidationError, match=why):
        Loopless.open(on_limit="slide", **given)
    world = Loopless.open(**given)
    with pytest.raises(ValidationError, match=why):
        check_on_limit("on_limit", "slide", world.core)


def test_a_session_that_comes_to_an_engine_that_cannot_let_it_slide_is_refused() -> None:
    """It would wait for ever for a slot that there isn't; its log is as it was."""
    world = Loopless.open(num_slots=1, num_pages=PAGES)
    session = slider(world)
    refused = world.start(session, words(60), greedy(10))
    assert isinstance(error_of(refused), PromptTooLong)
    world.finish(world.start(session, words(20), greedy(10)))
    world.close(session)
    world.assert_all_free()


def test_the_smallest_pools_that_slide_are_enough() -> None:
    """Two slots and four pages, with and without host memory, for three that take turns."""
    for host in (0, 64, 1024):
        world = endless(num_slots=2, num_pages=4, host_memory_bytes=host)
        sessions = [slider(world, name) for name in "abc"]
        for number in range(3):
            for session in sessions:
                log = session.state.log.tolist()
                tokens = words(1 + 5 * number, number)
                request = world.start(session, tokens, greedy(4 + number))
                world.finish(request)
                assert tokens_of(request) == cold([*log, *tokens], 4 + number, pages=4)
        for session in sessions:
            world.close(session)
        assert_all_free(world)


def image_of(world: Loopless, session: SessionActor) -> StateImage:
    """The session's state, read out of the device."""
    reply: Reply[Exported] = Reply()
    world.post(session, ExportSession(reply))
    world.copy()
    image = anyio.run(reply.wait).image
    assert image is not None
    return image


@pytest.mark.parametrize("length", [23, 24, 25, 35, 36, 37, 59, 60, 61])
def test_brought_back_from_an_image_it_goes_on_alike(length: int) -> None:
    """Wherever it stood: right before a slide the image still has what is dropped next."""
    world = endless()
    session = slider(world)
    world.finish(world.start(session, words(length), greedy(2)))
    other = endless()
    again = other.core.bring_back(
        session.identity.record(), image=image_of(world, session), session_id=SessionId("again")
    )
    for number in range(3):
        go_on(other, again, words(3, number), 9)
    assert other.core.counters.recomputed_tokens == 0
    for one, where in ((session, world), (again, other)):
        where.close(one)
        assert_all_free(where)


@pytest.mark.parametrize(("pages", "is_kept"), [(8, True), (2 * PAGES, False)])
def test_an_engine_with_another_window_takes_what_it_can_use(pages: int, is_kept: bool) -> None:
    """A smaller one drops more; a larger one wants what is gone, and goes back to the log."""
    world = endless()
    session = slider(world)
    world.finish(world.start(session, words(61), greedy(2)))
    other = endless(num_pages=pages)
    again = other.core.bring_back(
        session.identity.record(), image=image_of(world, session), session_id=SessionId("again")
    )
    log = again.state.log.tolist()
    request = other.start(again, words(3), greedy(9))
    other.finish(request)
    assert (request.output.recomputed_tokens == 0) is is_kept
    assert (request.output.cached_tokens == len(log) - 1) is is_kept
    assert request.output.cache_miss == (None if is_kept else "off")
    assert other.core.counters.cached_tokens == request.output.cached_tokens
    if not is_kept:
        assert tokens_of(request) == cold([*log, *words(3)], 9, pages=pages)
    other.close(again)
    assert_all_free(other)


@pytest.mark.parametrize("host", [None, 0])
def test_preempted_before_its_slide_was_copied_it_keeps_nothing_on_the_device(
    host: int | None,
) -> None:
    """It has two claims there for as long as it has no row; both leave."""
    config: dict[str, Any] = {} if host is None else {"host_memory_bytes": host}
    world = endless(
        num_slots=5,
        num_pages=16,
        max_model_len=LENGTH,
        max_num_seqs=3,
        max_num_batched_tokens=4,
        scheduling_policy="priority",
        **config,
    )
    session = slider(world)
    request = world.start(session, words(40), greedy(4), priority=50)
    world.step(5)
    senior = world.session("senior", is_one_shot=True)
    requests = [world.start(senior, words(12, 1), greedy(1), priority=0)]
    world.step()
    assert world.free == (2, 1), "the senior's claim, and two of the session's turn"
    urgent = world.session("urgent", is_one_shot=True)
    requests.append(world.start(urgent, words(15, 2), greedy(1), priority=-50))
    world.step()
    assert request.output.preemptions == 1
    if host is None:
        world.copy()
    assert world.free == (3, 9), "of the urgent and of the senior turn alone"
    for one in (*requests, request):
        world.finish(one)
    assert (request.output.recomputed_tokens == 0) is (host is None)
    assert tokens_of(request) == cold(words(40), 4)
    world.close(session)
    assert_all_free(world)
