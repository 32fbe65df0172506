"""A session moves to an engine in another process, and a whole engine is killed: the long ways."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.session_files import session_files
from kernel import Engine, EngineConfig, SamplingParams
from tests.durable import kills
from tests.durable.kills import open_model

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)

SCRIPT = """
import json, sys, anyio
from tests.durable.test_migrate import go_on
print(json.dumps(anyio.run(go_on, sys.argv[1], sys.argv[2])))
"""


@asynccontextmanager
async def an_engine(model: str) -> AsyncGenerator[Engine]:
    config = EngineConfig(model=model, page_size=4)
    async with Engine.open(config, device=open_model(model), session_files=session_files) as engine:
        yield engine


async def one(session: Any, *tokens: int) -> tuple[list[int], int]:
    async with session.turn(list(tokens), GREEDY) as turn:
        result = await turn.wait()
        return list(result.token_ids), result.num_cached_tokens


async def go_on(model: str, path: str) -> tuple[list[int], int]:
    """What the other process does."""
    async with an_engine(model) as engine:
        return await one(await engine.restore(path), 3, 1, 4)


async def save_and_go_on(model: str, path: Path) -> tuple[list[int], int]:
    async with an_engine(model) as engine, engine.session(session_id="a") as session:
        await one(session, 2, 7)
        await one(session, 1, 8, 2, 8)
        await session.save(path)
        return await one(session, 3, 1, 4)


@pytest.mark.parametrize(
    "model",
    [
        "fake",
        pytest.param("bundled", marks=[pytest.mark.slow, pytest.mark.timeout(120)]),
    ],
)
def test_a_session_goes_on_in_another_process_with_the_same_tokens(
    model: str, tmp_path: Path
) -> None:
    """From the state in the file: nothing but what is new is computed there."""
    path = tmp_path / "session.safetensors"
    here = anyio.run(save_and_go_on, model, path)
    command = [sys.executable, "-c", SCRIPT, model, str(path)]
    there = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)

    assert json.loads(there.stdout) == list(here)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("model", "count"), [("fake", 60), ("bundled", 6)])
def test_a_killed_engine_loses_nothing_that_was_acknowledged(model: str, count: int) -> None:
    """A sample of ``python -m tests.durable.kills``; forked from a process of its own."""
    command = [sys.executable, "-m", kills.__name__, "--count", str(count), "--model", model]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

    assert found.returncode == 0, found.stdout
