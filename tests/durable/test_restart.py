"""Sessions behind the public door: an engine goes, another comes, and nobody can tell."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from adapters.session_files import session_files
from kernel import BlockingEngine, Engine, EngineConfig, SamplingParams
from kernel.errors import (
    SessionClosed,
    SessionExists,
    SessionFileError,
    SessionNotFound,
    SessionStoreError,
    TooLate,
    ValidationError,
)
from kernel.session_store import SessionFiles
from kernel.step import ModelSpec
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import open_engine
from tests.known import known

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)

Open = Callable[..., AbstractAsyncContextManager[Engine]]


both = pytest.mark.parametrize("files", ["memory", "disk"], indirect=True)
"""On the store in memory, and on the one that ships."""


@pytest.fixture
def files(request: pytest.FixtureRequest) -> SessionFiles:
    is_real = getattr(request, "param", "memory") == "disk"
    return session_files if is_real else MemoryFiles(MemoryStore())


class Another(FakeDevice):
    """A model whose states mean nothing to the other's."""

    @property
    def model(self) -> ModelSpec:
        return attrs.evolve(super().model, fingerprint="another")


@pytest.fixture
def start(files: SessionFiles, tmp_path: Path) -> Open:
    """Opens an engine on one and the same store."""

    @asynccontextmanager
    async def opened(**config: Any) -> AsyncGenerator[Engine]:
        given = {"session_store": str(tmp_path / "store"), **config}
        async with open_engine(files, **given) as engine:
            yield engine

    return opened


async def one(session: Any, *tokens: int) -> list[int]:
    async with session.turn(list(tokens), GREEDY) as turn:
        return list((await turn.wait()).token_ids)


async def cached(session: Any, *tokens: int) -> tuple[list[int], int]:
    async with session.turn(list(tokens), GREEDY) as turn:
        result = await turn.wait()
        return list(result.token_ids), result.num_cached_tokens


async def unbroken(*turns: int) -> list[list[int]]:
    """The tokens of an engine that is never closed."""
    async with open_engine(MemoryFiles(MemoryStore())) as engine, engine.session() as session:
        return [await one(session, turn) for turn in turns]


@both
async def test_a_session_goes_on_after_a_restart(start: Open) -> None:
    """From its state, which was kept when the engine closed: bit for bit."""
    async with start() as engine, engine.session(session_id="a", detached=True) as session:
        said = [await one(session, 1), await one(session, 2)]
    async with start() as engine:
        before = [info.session_id for info in engine.list_sessions()]
        states = [info.state for info in engine.list_sessions()]
        tokens, reused = await cached(engine.attach("a"), 3)

    assert (before, states) == (["a"], ["dormant"])
    assert [*said, tokens] == await unbroken(1, 2, 3)
    assert reused == 9


@both
async def test_leaving_the_block_removes_a_session_and_detached_ones_stay(start: Open) -> None:
    """What a block opens it closes, on disk too."""
    async with start() as engine:
        async with engine.session(session_id="a") as session:
            await one(session, 1)
        async with engine.session(session_id="b", detached=True) as session:
            await one(session, 1)
        async with engine.session(session_id="a") as session:
            await one(session, 1)
    async with start() as engine:
        left = [info.session_id for info in engine.list_sessions()]

    assert left == ["b"]


async def test_a_session_that_never_had_a_turn_is_not_in_the_store(start: Open) -> None:
    """It is opened there at its first kept turn."""
    async with start() as engine, engine.session(session_id="a", detached=True):
        pass
    async with start() as engine:
        assert engine.list_sessions() == []
        with pytest.raises(SessionNotFound):
            engine.attach("a")


async def test_close_and_forget_remove_a_dormant_session(start: Open) -> None:
    """Without waking it, where that isn't needed."""
    async with start() as engine:
        for name in "ab":
            async with engine.session(session_id=name, detached=True) as session:
                await one(session, 1)
    async with start() as engine:
        await engine.forget("a")
        await engine.attach("b").close()
        with pytest.raises(SessionNotFound):
            await engine.forget("a")
        left = engine.list_sessions()

    assert left == []


async def test_an_open_session_can_be_forgotten(start: Open) -> None:
    """Whatever it does."""
    async with start() as engine:
        async with engine.session(session_id="a", detached=True) as session:
            await one(session, 1)
            await engine.forget("a")
        assert engine.list_sessions() == []


async def test_resume_goes_on_with_a_stored_session_or_opens_a_new_one(start: Open) -> None:
    """The same call before and after a restart; without it the name is taken."""
    said: list[list[int]] = []
    for turn in (1, 2, 3):
        async with start() as engine:
            async with engine.session(session_id="a", detached=True, resume=True) as session:
                said.append(await one(session, turn))
            if turn == 2:
                with pytest.raises(SessionExists):
                    await engine.session(session_id="a").__aenter__()

    assert said == await unbroken(1, 2, 3)


@pytest.mark.parametrize("detached", [True, False])
async def test_a_resumed_session_outlives_the_block_if_it_was_opened_to(
    start: Open, detached: bool
) -> None:
    """A service that forgets to say so again would remove its user's history from the disk."""
    async with start() as engine:
        first = engine.session(session_id="a", detached=detached)
        await one(await first.__aenter__(), 1)
        async with engine.session(session_id="a", resume=True) as session:
            await one(session, 2)
        open_still = engine.session_ids()
    async with start() as engine:
        if detached:
            async with engine.session(session_id="a", resume=True) as session:
                assert session.info.turns == 2
        kept = engine.session_ids()

    assert open_still == kept == (["a"] if detached else [])


@both
async def test_a_session_object_survives_that_its_session_goes_dormant(start: Open) -> None:
    """Callers hold sessions, and need not know where they are."""
    async with start(max_resident_sessions=1) as engine:
        sessions = [engine.session(session_id=name, detached=True) for name in "abc"]
        said: dict[str, list[list[int]]] = {}
        for session in sessions:
            async with session:
                pass
        for turn in (1, 2, 3):
            for session in sessions:
                said.setdefault(session.session_id, []).append(await one(session, turn))
        await engine.settle()
        resident = len(engine.core.sessions)
        states = {session.info.state for session in sessions}

    expected = await unbroken(1, 2, 3)
    assert all(tokens == expected for tokens in said.values())
    assert resident <= 2
    assert "dormant" in states


async def test_who_is_cancelled_while_a_session_is_woken_leaves_it_to_others(start: Open) -> None:
    """The read goes on; whoever asks next finds it."""
    async with start() as engine, engine.session(session_id="a", detached=True) as session:
        await one(session, 1)
    async with start() as engine:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one(engine.attach("a"), 2)
        said = await one(engine.attach("a"), 2)

    assert said == (await unbroken(1, 2))[1]


async def test_many_wake_one_session_at_once(start: Open) -> None:
    """One turn runs, the others wait for it; nobody reads it twice."""
    async with start() as engine, engine.session(session_id="a", detached=True) as session:
        await one(session, 1)
    async with start() as engine:
        said: list[int] = []

        async def ask() -> None:
            async with engine.attach("a").turn([2], GREEDY, wait=True) as turn:
                said.extend((await turn.wait()).token_ids)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        length = engine.attach("a").info.num_tokens

    assert length == 30
    assert len(said) == 20


async def test_a_late_interrupt_of_a_turn_whose_session_is_dormant_is_too_late(
    start: Open,
) -> None:
    """What its caller had received is forgotten; the turn stays as it ended."""
    async with start(max_resident_sessions=1) as engine:
        first = engine.session(session_id="a", detached=True)
        async with first, first.turn([1], GREEDY) as turn:
            await turn.wait()
        async with engine.session(session_id="b", detached=True) as other:
            await one(other, 1)
        await engine.settle()
        with pytest.raises(TooLate):
            await turn.interrupt(1)


async def test_a_stale_object_is_never_a_namesakes(start: Open) -> None:
    """Another session under the same name is another session."""
    async with start() as engine:
        async with engine.session(session_id="a") as old:
            await one(old, 1)
        async with engine.session(session_id="a", detached=True) as new:
            await one(new, 1)
            with pytest.raises(SessionClosed):
                await one(old, 2)
            await old.close()
            length = new.info.num_tokens

    assert length == 5


@both
async def test_a_saved_session_goes_on_in_another_engine(
    start: Open, files: SessionFiles, tmp_path: Path
) -> None:
    """With its state; under its own name or another, as often as one likes."""
    path = tmp_path / "session.safetensors"
    async with start() as engine, engine.session(session_id="a") as session:
        await one(session, 1)
        await one(session, 2)
        await session.checkpoint("here")
        await session.save(path)
    async with open_engine(files) as engine:
        restored = await engine.restore(path)
        again = await engine.restore(path, session_id="b")
        with pytest.raises(SessionExists):
            await engine.restore(path)
        got = [await cached(session, 3) for session in (restored, again)]
        marks = [mark.name for mark in known(again.info.checkpoints)]
        turns = again.info.turns

    expected = (await unbroken(1, 2, 3))[-1]
    assert got == [(expected, 9), (expected, 9)]
    assert (marks, turns) == (["here"], 3)


async def test_what_is_brought_in_is_kept_before_anyone_is_told(
    start: Open, files: SessionFiles
) -> None:
    """The bytes may be gone a moment later."""
    async with open_engine(files) as engine, engine.session(session_id="a") as session:
        await one(session, 1)
        data = await session.export()
    async with start() as engine:
        brought = await engine.import_session(data, session_id="b")
        assert (await brought.export()) != b""
    async with start() as engine:
        tokens, reused = await cached(engine.attach("b"), 2)

    assert tokens == (await unbroken(1, 2))[-1]
    assert reused == 4


async def test_a_session_without_a_turn_can_be_exported(files: SessionFiles) -> None:
    """There is nothing in it, and it can be gone on with."""
    async with open_engine(files) as engine, engine.session(session_id="a") as session:
        data = await session.export()
        brought = await engine.import_session(data, session_id="b")
        tokens = await one(brought, 1)

    assert [tokens] == await unbroken(1)


@both
async def test_another_models_file_is_refused_by_name(files: SessionFiles) -> None:
    """And nothing is opened."""
    async with open_engine(files) as engine, engine.session() as session:
        await one(session, 1)
        data = await session.export()
    async with open_engine(files, device=Another(eos_token_ids=())) as engine:
        with pytest.raises(SessionFileError) as refused:
            await engine.import_session(data)
        assert engine.list_sessions() == []

    assert refused.value.reason == "model"


@both
async def test_two_engines_never_share_a_store(start: Open) -> None:
    """The second is refused before anything of it is open, and may come when the first has gone."""
    async with start():
        with pytest.raises(SessionStoreError) as refused:
            async with start():
                pass
    async with start():
        pass

    assert refused.value.reason == "in_use"


async def test_messages_that_are_no_json_are_refused_at_once(start: Open) -> None:
    """They could not be read back."""
    async with start(chat=Lines()) as engine, engine.session() as session:
        with pytest.raises(ValidationError, match="JSON"):
            await one_message(session, {"role": "user", "content": "a", "when": object()})


class Lines:
    """A chat format: each message is its length and a 7, each answer begins with an 8."""

    def compose(self, history: Any, prompt: Any, /, *, answers: bool) -> Any:
        from kernel.chat import Composition

        said = [len(str(message["content"])) for message in prompt.messages]
        tokens = [token for length in said for token in (length, 7)]
        tokens += [len(history) + 10] + [8] * answers
        return Composition(tuple(tokens), "text")


async def one_message(session: Any, *messages: dict[str, object]) -> tuple[int, ...]:
    async with session.turn(list(messages), GREEDY) as turn:
        result = await turn.wait()
        return (*result.prompt_token_ids, *result.token_ids)


@both
async def test_a_conversation_goes_on_after_a_restart(start: Open) -> None:
    """The format is asked with the same history, whoever remembers it."""
    hello: dict[str, object] = {"role": "user", "content": "hello"}
    async with start(chat=Lines()) as engine, engine.session() as session:
        expected = [await one_message(session, hello) for _ in range(3)]
    said: list[tuple[int, ...]] = []
    for _ in range(3):
        async with start(chat=Lines()) as engine:
            async with engine.session(session_id="a", detached=True, resume=True) as session:
                said.append(await one_message(session, hello))

    assert said == expected


async def test_an_engine_that_closes_first_keeps_the_sessions_of_open_blocks(start: Open) -> None:
    """Their blocks end after it, and must neither remove anything nor fail."""
    async with start() as engine, engine.session(session_id="a") as session:
        await one(session, 1)
        await engine.aclose()
    async with start() as engine:
        tokens = await one(engine.attach("a"), 2)

    assert tokens == (await unbroken(1, 2))[-1]


async def test_what_the_store_holds_is_in_the_statistics(start: Open) -> None:
    """Counts, and where a session's state is."""
    async with start(max_resident_sessions=1) as engine:
        for name in "ab":
            async with engine.session(session_id=name, detached=True) as session:
                await one(session, 1)
        await engine.settle()
        stats = engine.stats()
        woken = engine.attach("a")
        async with woken:
            place, length = woken.info.place, woken.info.num_tokens
        names = engine.session_ids()

    assert (stats.num_sessions, stats.sessions_stored) == (1, 2)
    assert stats.store_bytes > 0
    assert (place, length) == ("disk", 5)
    assert sorted(names) == ["a", "b"]


def test_the_blocking_door_saves_and_brings_back_as_well(tmp_path: Path) -> None:
    """For scripts and notebooks: the same sessions, the same files."""
    files = MemoryFiles(MemoryStore())
    options: dict[str, Any] = {
        "device": FakeDevice(eos_token_ids=()),
        "session_files": files,
    }
    config = EngineConfig(model="fake", page_size=4, session_store="anywhere")
    path = tmp_path / "session"
    with BlockingEngine(config, **options) as engine:
        with engine.session(session_id="a", detached=True) as session:
            said = [list(session.complete([1], GREEDY).token_ids)]
            session.save(path)
            data = session.export()
        names = engine.session_ids()
    options["device"] = FakeDevice(eos_token_ids=())
    with BlockingEngine(config, **options) as engine:
        sessions = (
            engine.attach("a"),
            engine.restore(path, session_id="b"),
            engine.import_session(data, session_id="c"),
        )
        said += [list(session.complete([2], GREEDY).token_ids) for session in sessions]
        engine.forget("c")
        left = sorted(engine.session_ids())

    first, second = anyio.run(unbroken, 1, 2)
    assert said == [first, second, second, second]
    assert (names, left) == (["a"], ["a", "b"])
