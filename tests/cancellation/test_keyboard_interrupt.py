"""Ctrl-C at a random moment, in a child process: the engine ends whole, the program as asked."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKENDS = ["asyncio", "trio"]


def _interrupt_again_and_again(backend: str, rounds: int, seed: int) -> None:
    rng = random.Random(f"{backend} {seed}")
    command = [sys.executable, "-m", "tests.cancellation.interrupted", backend, str(rounds)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            _interrupt(child, rounds, rng, seed)
        finally:
            # Else leaving the block would wait for a child that ignores its interrupts.
            child.kill()


def _interrupt(child: subprocess.Popen[str], rounds: int, rng: random.Random, seed: int) -> None:
    assert child.stdout is not None
    assert child.stderr is not None
    for number in range(rounds):
        delay_s = rng.random() * 0.02
        where = f"seed {seed}, round {number}, interrupted {delay_s:.4f} s after ready"
        line = child.stdout.readline()
        assert line == "ready\n", (where, line, child.stderr.read())
        time.sleep(delay_s)
        child.send_signal(signal.SIGINT)
        # Python drops an interrupt that strikes inside a weak reference's callback.
        again = threading.Timer(2.0, child.send_signal, [signal.SIGINT])
        again.start()
        line = child.stdout.readline()
        again.cancel()
        assert line, (where, child.stderr.read())
        report = json.loads(line)
        assert report.pop("how") in ("KeyboardInterrupt", "BaseExceptionGroup"), where
        assert report == {
            "at_rest": True,
            "free": 3,
            "reclaimed": 0,
            "violations": 0,
            "deaths": 0,
            "queued": 0,
        }, where
    errors = child.stderr.read()
    assert child.wait(10) == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_at_a_random_moment_loses_nothing(backend: str) -> None:
    """No slot lost, none with two owners, nothing reclaimed; the program ends by the interrupt."""
    _interrupt_again_and_again(backend, rounds=12, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("backend", BACKENDS)
def test_interrupts_by_the_hundred_lose_nothing(backend: str, seed: int) -> None:
    """The same, for longer."""
    _interrupt_again_and_again(backend, rounds=100, seed=seed)
