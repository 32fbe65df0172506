"""P16, persistence: what was saved goes on as if nothing had been, or leaves nothing behind."""

from pathlib import Path

import pytest

from adapters.fake_device import FakeDevice
from adapters.session_files import session_files
from kernel import Engine, EngineConfig, OpenedDevice, SessionFileError
from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import greedy, prompt

_CONFIG = EngineConfig(
    num_slots=2, num_pages=40, page_size=4, max_num_seqs=2, max_num_batched_tokens=8
)


def _restarted() -> tuple[FakeDevice, OpenedDevice]:
    """A device of a process of its own: nothing is left of the one before but files."""
    device = FakeDevice(eos_token_ids=())
    return device, OpenedDevice(device=device, tokenizer=device.tokenizer)


@exhibit("M130", pattern="P16", guard="position check", bug="export-leaves-the-state-away")
async def test_m130_a_saved_session_holds_all_that_resume_needs(tmp_path: Path) -> None:
    """ggml-org/llama.cpp#25913: restore said success, and the next turn computed all of it again.

    Saved, restarted, restored: the next turn starts at the position at which the session stood, no
    token of the history is computed again, and the answer is that of a session that never stopped.
    """
    path = tmp_path / "session.safetensors"
    _, opened = _restarted()
    async with Engine.open(_CONFIG, device=opened, session_files=session_files) as engine:
        async with engine.session(session_id="s") as session:
            async with session.turn(prompt(14), greedy(5)) as turn:
                await turn.wait()
            position = session.info.position
            await session.save(path)
            async with session.turn(prompt(3, 1), greedy(6)) as turn:
                uninterrupted = (await turn.wait()).token_ids

    device, opened = _restarted()
    async with Engine.open(_CONFIG, device=opened, session_files=session_files) as engine:
        session = await engine.restore(path)
        async with session.turn(prompt(3, 1), greedy(6)) as turn:
            result = await turn.wait()
        assert position == 18
        assert result.usage.cached_tokens == position
        assert engine.stats().recomputed_tokens == 0
        assert result.token_ids == uninterrupted
        await session.close()
    assert not device.poison_reads


@exhibit("M132", pattern="P16", guard="position check", bug="damaged-file-is-taken")
async def test_m132_a_damaged_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """ggml-org/llama.cpp#27068: after a restore that failed, later answers were empty.

    The file is damaged near its end, where the state is, and cut. Each restore is a typed error
    that says what is wrong; nothing was opened, no memory taken, and the next turns are those of an
    engine that never saw the file. The file as it was written still goes on.
    """
    path = tmp_path / "session.safetensors"
    _, opened = _restarted()
    async with Engine.open(_CONFIG, device=opened, session_files=session_files) as engine:
        async with engine.session(session_id="s") as session:
            async with session.turn(prompt(9), greedy(4)) as turn:
                await turn.wait()
            await session.save(path)
        expected = (await engine.complete(prompt(6, 2), greedy(5))).token_ids
    whole = path.read_bytes()
    arrays = 8 + int.from_bytes(whole[:8], "little")
    at_the_end, in_the_state = bytearray(whole), bytearray(whole)
    at_the_end[-3] ^= 0x10
    in_the_state[arrays + 3] ^= 0x10

    device, opened = _restarted()
    async with Engine.open(_CONFIG, device=opened, session_files=session_files) as engine:
        for content in (at_the_end, in_the_state, whole[:-5], whole[:40], b""):
            path.write_bytes(content)
            with pytest.raises(SessionFileError, match="damaged|no session's file"):
                await engine.restore(path)
            assert engine.list_sessions() == []
            assert engine.audit().at_rest
            assert (await engine.complete(prompt(6, 2), greedy(5))).token_ids == expected
        path.write_bytes(whole)
        session = await engine.restore(path)
        assert session.info.num_tokens == 13
        await session.close()
    assert not device.poison_reads
