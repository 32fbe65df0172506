"""Each sampling parameter through the engine, on the model that ships in the package."""

import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
import torch

from adapters.torch_device import open_torch
from kernel import Engine, EngineConfig, RequestOutput, SamplingParams, ValidationError
from kernel.step import OpenedDevice

pytestmark = pytest.mark.timeout(90)

PROMPT = "In the beginning God created the"
CONFIG = EngineConfig(num_slots=4, num_pages=64, page_size=16, log_events=False)


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The row faults and the log-probabilities run on both; parameters have no event loop."""
    backend = request.param
    assert isinstance(backend, str)
    return backend


@cache
def bundled() -> OpenedDevice:
    with pytest.MonkeyPatch.context() as patch:
        # To measure how many threads are fastest takes longer than these tests.
        patch.setenv("TENURE_TORCH_THREADS", "1")
        return open_torch(model="bundled", device="cpu", dtype="float32")


@asynccontextmanager
async def engine_on_bundled() -> AsyncGenerator[Engine]:
    async with Engine.open(CONFIG, device=bundled()) as engine:
        yield engine


async def complete(**params: Any) -> RequestOutput:
    given = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "seed": 4, **params}
    async with engine_on_bundled() as engine:
        return await engine.complete(PROMPT, SamplingParams.from_dict(given))


def most_frequent(result: RequestOutput) -> int:
    return Counter(result.token_ids).most_common(1)[0][1]


async def test_allowed_token_ids_are_all_that_is_drawn() -> None:
    result = await complete(temperature=1.0, allowed_token_ids=[300, 301, 302, 303])

    assert {*result.token_ids} <= {300, 301, 302, 303}
    assert len({*result.token_ids}) > 1


async def test_logit_bias_forces_and_forbids() -> None:
    free = await complete()
    forced = await complete(logit_bias={"300": 100}, max_tokens=3)
    forbidden = await complete(logit_bias={free.token_ids[0]: -100})

    assert forced.token_ids == (300,) * 3
    assert free.token_ids[0] not in forbidden.token_ids


async def test_a_bad_word_does_not_come_up_wherever_it_would_stand() -> None:
    """As text: written after a space or not, over as many tokens as it takes."""
    free = await complete()
    word = re.findall(r"\w+", free.outputs[0].text)[2]

    without = await complete(bad_words=[word])
    ids = await complete(bad_words=[[token] for token in free.token_ids[:3]])

    assert word not in re.findall(r"\w+", without.outputs[0].text)
    assert not {*free.token_ids[:3]} & {*ids.token_ids}


@pytest.mark.parametrize(
    "penalty",
    [{"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 1.8}],
    ids=str,
)
async def test_a_penalty_makes_the_greedy_text_repeat_itself_less(penalty: dict[str, Any]) -> None:
    free, penalised = await complete(max_tokens=60), await complete(max_tokens=60, **penalty)

    assert most_frequent(penalised) < most_frequent(free)


async def test_a_limit_that_keeps_one_token_is_greedy() -> None:
    greedy = await complete()

    for limit in ({"min_p": 1.0}, {"top_k": 1}, {"top_p": 1e-9}):
        assert (await complete(temperature=1.5, **limit)).token_ids == greedy.token_ids


async def test_limits_change_what_a_seed_draws() -> None:
    """Each of them reaches the draw."""
    free = await complete(temperature=1.5)

    for limit in ({"min_p": 0.2}, {"typical_p": 0.3}, {"top_k": 5}, {"top_p": 0.5}):
        limited = await complete(temperature=1.5, **limit)
        assert limited.token_ids != free.token_ids
        assert limited.token_ids == (await complete(temperature=1.5, **limit)).token_ids


async def test_processors_of_one_request_see_its_tokens_and_steer_it() -> None:
    """Two forms: with the prompt and without."""
    seen: list[tuple[list[int], list[int]]] = []

    def look(prompt: list[int], generated: list[int], logits: torch.Tensor) -> torch.Tensor:
        seen.append((prompt, generated))
        return logits

    def count_up(generated: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[300 + len(generated)] = 1e4
        return logits

    result = await complete(logits_processors=[look, count_up], max_tokens=4)

    assert result.token_ids == (300, 301, 302, 303)
    assert [prompt for prompt, _ in seen] == [[*result.prompt_token_ids]] * 4
    assert [generated for _, generated in seen] == [[], [300], [300, 301], [300, 301, 302]]


async def test_special_tokens_have_a_text_when_they_are_not_skipped() -> None:
    """The end-of-text token, drawn on purpose and drawn past."""
    forced: dict[str, Any] = {"allowed_token_ids": [0], "max_tokens": 2}

    assert (await complete(**forced)).outputs[0].text == ""
    shown = await complete(**forced, skip_special_tokens=False)
    assert shown.outputs[0].text == bundled().tokenizer.decode_with_special([0, 0])  # type: ignore[attr-defined]
    assert shown.outputs[0].text


async def test_min_tokens_holds_the_end_back() -> None:
    early = await complete(ignore_eos=False, logit_bias={0: 100})
    late = await complete(ignore_eos=False, logit_bias={0: 100}, min_tokens=5)

    assert (len(early.token_ids), early.finish_reason) == (1, "stop")
    assert (len(late.token_ids), late.finish_reason) == (6, "stop")


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"allowed_token_ids": [5, 100_000]}, "allowed_token_ids"),
        ({"logit_bias": {100_000: 1.0}}, "logit_bias"),
        ({"bad_words": [[100_000]]}, "bad_words"),
        ({"bad_words": ["\ud800"]}, "bad_words"),
        ({"stop_token_ids": [100_000]}, "stop_token_ids"),
        ({"logprobs": 100_000}, "logprobs"),
        ({"prompt_logprobs": 100_000}, "prompt_logprobs"),
    ],
    ids=str,
)
async def test_what_the_model_has_no_logits_for_is_refused_at_the_door(
    given: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        await complete(**given)
    assert caught.value.parameter == parameter
