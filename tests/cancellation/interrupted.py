"""A program that somebody interrupts with Ctrl-C, again and again; run as a module in a child.

Each round opens an engine, lets clients work on it, says "ready", and goes on until it is
interrupted. Then it says how the engine ended. The last interrupt is let through.
"""

import json
import random
import signal
import sys

import anyio
import anyio.lowlevel

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams

__all__: list[str] = []

MODES = ("inline", "thread")
CONFIG = EngineConfig(
    model="fake",
    num_slots=3,
    num_pages=64,
    page_size=4,
    max_num_seqs=3,
    max_num_batched_tokens=8,
    stop_timeout_s=5.0,
)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _live(engine: Engine, rng: random.Random) -> None:
    while True:
        params = SamplingParams(temperature=0, max_tokens=rng.randint(1, 8), ignore_eos=True)
        prompt = [rng.randrange(900) for _ in range(rng.randint(1, 12))]
        await engine.complete(prompt, params)
        async with engine.session() as session:
            await session.append(prompt)
            for _ in range(rng.randint(1, 4)):
                async with session.turn(prompt, params) as turn:
                    async for _ in turn:
                        if rng.random() < 0.2:
                            break


async def _serve(engines: list[Engine], seed: str, mode: str) -> None:
    device = FakeDevice(eos_token_ids=())
    if mode == "thread":
        device = FakeDevice(eos_token_ids=(), mode="thread", delay=lambda _step: 0.0003)
    async with Engine.open(CONFIG, device=device) as engine:
        engines.append(engine)
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(_live, engine, random.Random(f"{seed} {number}"))
            await anyio.lowlevel.checkpoint()
            _say("ready")
            await anyio.sleep(30)


def _report(engines: list[Engine], how: str) -> None:
    core = engines[0].core
    audit, counters = core.audit, core.ledger.view.counters
    report = {
        "how": how,
        "at_rest": audit is not None and audit.at_rest,
        "free": audit.free_slots if audit is not None else -1,
        "reclaimed": counters.reclaimed,
        "violations": counters.violations,
        "deaths": core.dispatcher.deaths,
        "queued": core.door.queued_reqs,
    }
    _say(json.dumps(report))


def main(backend: str, rounds: int) -> None:
    """Be interrupted so many times; the last time without catching it."""
    for number in range(rounds):
        mode = MODES[number % 2]
        engines: list[Engine] = []
        try:
            anyio.run(_serve, engines, f"{mode} {number}", mode, backend=backend)
        except BaseException as error:
            # A task group of the program's own may wrap the interrupt; its type is what counts.
            _report(engines, type(error).__name__)
            if number == rounds - 1:
                raise KeyboardInterrupt from error


if __name__ == "__main__":
    # A shell starts its background jobs with the interrupt ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(sys.argv[1], int(sys.argv[2]))
