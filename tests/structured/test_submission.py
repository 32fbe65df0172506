"""A form is compiled in its caller's task, before the turn exists for anybody else."""

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import pytest

from adapters.fake_device import FakeDevice
from kernel import (
    Engine,
    EngineClosed,
    OpenedDevice,
    RequestAborted,
    SamplingParams,
    StructuredOutputs,
    ValidationError,
)

FORM = StructuredOutputs(regex="[0-9]")


class Unbound:
    """A constraint that allows all."""

    def fill(self, generated: Sequence[int], into: Any, /) -> None:
        """Leave every bit set."""

    def is_complete(self, generated: Sequence[int], /) -> bool:
        return False


class SlowCompiler:
    """Compiles when it is told to, and notes where and for what it was called."""

    def __init__(self, *, is_compiled: bool = False, refuses: bool = False) -> None:
        self.may_go_on = threading.Event()
        self.began = threading.Event()
        self.threads: list[int] = []
        self.asked: list[tuple[frozenset[int], int]] = []
        self._is_compiled, self._refuses = is_compiled, refuses

    def is_compiled(self, wanted: StructuredOutputs, /) -> bool:
        return self._is_compiled

    def constraint(
        self, wanted: StructuredOutputs, /, *, stop_ids: frozenset[int], min_tokens: int
    ) -> Unbound:
        self.threads.append(threading.get_ident())
        self.asked.append((stop_ids, min_tokens))
        self.began.set()
        if not self._is_compiled:
            assert self.may_go_on.wait(10)
        if self._refuses:
            raise ValidationError(parameter="structured_outputs.regex", value="x", why="no")
        return Unbound()


def opened_with(compiler: SlowCompiler) -> OpenedDevice:
    device = FakeDevice(eos_token_ids=(7,))
    return OpenedDevice(device=device, tokenizer=device.tokenizer, constraints=compiler)


def params(**more: Any) -> SamplingParams:
    return SamplingParams.from_dict({"structured_outputs": FORM, "max_tokens": 4, **more})


async def began(compiler: SlowCompiler) -> None:
    assert await anyio.to_thread.run_sync(compiler.began.wait, 10)


async def test_a_form_is_compiled_on_a_thread_and_others_go_on_meanwhile() -> None:
    compiler = SlowCompiler()
    async with Engine.open(device=opened_with(compiler)) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.complete, "one", params())
            await began(compiler)
            await engine.complete("another", SamplingParams(max_tokens=4))
            assert engine.stats().num_requests_waiting == 0
            compiler.may_go_on.set()

    assert compiler.threads[0] != threading.get_ident()


async def test_a_form_that_was_compiled_before_needs_no_thread() -> None:
    compiler = SlowCompiler(is_compiled=True)
    async with Engine.open(device=opened_with(compiler)) as engine:
        await engine.complete("one", params())

    assert compiler.threads == [threading.get_ident()]


async def test_the_compiler_is_told_what_ends_the_turn() -> None:
    compiler = SlowCompiler(is_compiled=True)
    async with Engine.open(device=opened_with(compiler)) as engine:
        await engine.complete("one", params(stop_token_ids=[9], min_tokens=2))
        await engine.complete("one", params(stop_token_ids=[9], ignore_eos=True))

    assert compiler.asked == [(frozenset({7, 9}), 2), (frozenset({9}), 0)]


async def test_who_leaves_while_a_form_is_compiled_leaves_nothing_behind() -> None:
    compiler = SlowCompiler()
    async with Engine.open(device=opened_with(compiler)) as engine, engine.session() as session:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                async with session.turn("one", params()):
                    raise AssertionError("it was left before it was submitted")

            tasks.start_soon(ask)
            await began(compiler)
            tasks.cancel_scope.cancel()
        compiler.may_go_on.set()

        assert (engine.stats().num_requests_waiting, session.info.state) == (0, "idle")
        async with session.turn("two", SamplingParams(max_tokens=2)) as turn:
            await turn.wait()
        assert session.info.num_tokens == 2 + len(engine.tokenizer.encode("two"))


async def test_a_turn_that_is_cancelled_while_its_form_is_compiled_is_never_submitted() -> None:
    compiler = SlowCompiler()
    async with Engine.open(device=opened_with(compiler)) as engine, engine.session() as session:
        turn = session.turn("one", params())
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(RequestAborted, match="before it was submitted"):
                    await turn.__aenter__()

            tasks.start_soon(ask)
            await began(compiler)
            turn.cancel()
            compiler.may_go_on.set()
        assert session.info.num_tokens == 0


async def test_an_engine_that_closes_while_a_form_is_compiled_takes_no_turn() -> None:
    compiler = SlowCompiler()
    async with anyio.create_task_group() as tasks:
        async with Engine.open(device=opened_with(compiler)) as engine:

            async def ask() -> None:
                with pytest.raises(EngineClosed):
                    await engine.complete("one", params())

            tasks.start_soon(ask)
            await began(compiler)
        compiler.may_go_on.set()


async def test_a_turn_whose_form_is_refused_cannot_be_entered_again() -> None:
    compiler = SlowCompiler(refuses=True, is_compiled=True)
    async with Engine.open(device=opened_with(compiler)) as engine:
        turn = engine.stream("one", params())
        with pytest.raises(ValidationError, match="structured_outputs.regex"):
            await turn.__aenter__()

        assert engine.stats().num_requests_waiting == 0
        assert not engine.abort(turn.request_id)
