"""A salt is part of a session: it comes back with it, and a history never loses its own."""

from kernel import SamplingParams, Session
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import open_engine

GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
HISTORY = list(range(1, 40))
CACHED = {"session_store": "anywhere", "enable_prefix_caching": True, "prefix_cache_block": 8}


async def say(session: Session, prompt: list[int], salt: str | None) -> int:
    async with session.turn(prompt, GREEDY, cache_salt=salt) as turn:
        return (await turn.wait()).usage.cached_tokens


async def test_a_session_has_its_last_salt_again_after_a_restart() -> None:
    """The first one, and one that it was given later; a restart must not open it to the rest."""
    files = MemoryFiles(MemoryStore())
    for salt, expected in (("alice", "alice"), (None, "alice"), ("bob", "bob"), (None, "bob")):
        async with open_engine(files, **CACHED) as engine:
            async with engine.session(session_id="s", detached=True, resume=True) as session:
                await say(session, HISTORY[:9], salt)
                assert engine.core.sessions["s"].state.cache_salt == expected  # type: ignore[index]
            for other, found in (("", False), (expected, True)):
                usage = (await engine.complete(HISTORY, GREEDY, cache_salt=other)).usage
                assert (usage.cached_tokens > 0) == (found and salt == "alice")


async def test_what_is_appended_stands_under_its_salt() -> None:
    async with open_engine(MemoryFiles(MemoryStore()), **CACHED) as engine:
        async with engine.session() as session:
            await session.append(HISTORY, cache_salt="alice")
            assert engine.stats().cache_published > 0
            assert await say(session, [1, 2], None) == len(HISTORY) - 1
        for salt, found in (("", 0), ("alice", 32)):
            usage = (await engine.complete(HISTORY[:35], GREEDY, cache_salt=salt)).usage
            assert usage.cached_tokens == found
