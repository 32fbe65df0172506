"""``python -m tests.prefix_cache``: what a hit saves on the bundled model, what looking costs."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import anyio

from kernel import Engine, EngineConfig, SamplingParams
from kernel.prefixes.tree import key_of
from tests.prefix_cache.shelf import Shelf

QUESTION = 20
"""Tokens behind the shared beginning."""
STATES = 64
PARAMS = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, detokenize=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object; milliseconds and microseconds are medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.prefix_cache", description=__doc__)
    parser.add_argument("--lengths", nargs="+", type=int, default=[256, 1024, 4000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    result = {
        "ttft_ms": anyio.run(_first_tokens, options.lengths, options.repeats),
        "admission_us": {str(length): _admission_us(length) for length in options.lengths},
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


async def _first_tokens(lengths: Sequence[int], repeats: int) -> dict[str, dict[str, float]]:
    """Time to first token by length of what is shared: without a cache, missed, hit."""
    table: dict[str, dict[str, float]] = {}
    for length in lengths:
        times: dict[str, list[float]] = {"off": [], "cold": [], "same_prompt": [], "same_text": []}
        for cached in (False, True):
            config = EngineConfig(enable_prefix_caching=cached, max_num_seqs=8)
            async with Engine.open(config) as engine:
                for number in range(repeats):
                    text = [(7 * number + 3 * n) % 2000 + 10 for n in range(length)]
                    asked = [[*text, *[9 + q] * QUESTION] for q in range(3)]
                    if not cached:
                        times["off"].append(await _ttft(engine, asked[0]))
                        continue
                    times["cold"].append(await _ttft(engine, asked[0]))
                    times["same_prompt"].append(await _ttft(engine, asked[0]))
                    await _ttft(engine, asked[1])  # leaves a state where the two part
                    times["same_text"].append(await _ttft(engine, asked[2]))
        table[str(length)] = {
            name: round(1e3 * statistics.median(found), 2) for name, found in times.items()
        }
    return table


async def _ttft(engine: Engine, prompt: list[int]) -> float:
    seconds = (await engine.complete(prompt, PARAMS)).timings.ttft_s
    if seconds is None:
        raise RuntimeError("no token came")
    return seconds


def _admission_us(length: int) -> dict[str, float]:
    """What one admission spends on the cache, beside the reserve that it does anyway."""
    shelf = Shelf(slots=STATES + 1, pages=100_000, budget=1 << 40)
    texts = [[(7 * text + 3 * n) % 2000 for n in range(length)] for text in range(STATES // 8)]
    for text in texts:
        for part in range(1, 9):
            shelf.keep(text[: part * length // 8])
    asked = [[*text, 1, 2, 3] for text in texts]
    keys = [key_of(one) for one in asked]
    return {
        "key": _median_us(lambda n: key_of(asked[n % len(asked)])),
        "hit": _median_us(lambda n: shelf.cache.match("", keys[n % len(keys)], length + 2)),
        "miss": _median_us(lambda n: shelf.cache.match("x", keys[n % len(keys)], length + 2)),
    }


def _median_us(call: Callable[[int], object], rounds: int = 500) -> float:
    times: list[float] = []
    for number in range(rounds):
        begun = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - begun)
    return round(1e6 * statistics.median(times), 2)


if __name__ == "__main__":
    sys.exit(main())
