"""Structured output through an engine on the bundled model: forms, company, ends, refusals."""

import json
import re
from typing import Any

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import (
    Engine,
    EngineConfig,
    OpenedDevice,
    RequestOutput,
    SamplingError,
    SamplingParams,
    StructuredOutputs,
    ValidationError,
)
from tests.structured.forms import EOS, PERSON, ids

pytestmark = pytest.mark.timeout(90)

SMALL = EngineConfig(max_num_seqs=4, num_slots=6, num_pages=64)
EXACT = attrs.evolve(SMALL, dtype="float64")
"""For turns compared with themselves in other company: float32 rounds by the batch's size."""
PROMPT = "Once upon a time"
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests that compute much, and where the event loop has no part in what they claim."""
FORMS: dict[str, StructuredOutputs] = {
    "json": StructuredOutputs(json=PERSON, disable_any_whitespace=True),
    "regex": StructuredOutputs(regex="[a-z]{2,6}-[0-9]{1,3}"),
    "choice": StructuredOutputs(choice=["red", "green", "a colour"]),
    "grammar": StructuredOutputs(grammar='start: "(" ("a" | "b")+ ")"'),
    "json_object": StructuredOutputs(json_object=True),
}
DIGITS = StructuredOutputs(regex="[0-9]{3}")


def params(form: StructuredOutputs | None, **more: Any) -> SamplingParams:
    return SamplingParams.from_dict(
        {"structured_outputs": form, "temperature": 0, "max_tokens": 40, **more}
    )


def check(name: str, text: str) -> None:
    """What the form of this name asks of a text, by other means than the library's."""
    match name:
        case "json":
            person = json.loads(text)
            assert list(person) == ["name", "age", "tags"]
            assert isinstance(person["name"], str)
            assert len(person["name"]) <= 6
            assert 0 <= person["age"] <= 120
            assert {*person["tags"]} <= {"red", "green"}
            assert len(person["tags"]) <= 1
        case "json_object":
            assert isinstance(json.loads(text), dict)
        case "choice":
            assert text in ("red", "green", "a colour")
        case _:
            expression = {"regex": "[a-z]{2,6}-[0-9]{1,3}", "grammar": r"\([ab]+\)"}[name]
            assert re.fullmatch(expression, text)


@ONE_LOOP
async def test_outputs_have_the_form_that_was_asked_for_greedy_and_drawn() -> None:
    """One that reached ``max_tokens`` first is no more than a beginning, and says so."""
    asked = [
        (name, params(form, **how))
        for name, form in FORMS.items()
        for how in ({}, *({"temperature": 1.0, "seed": seed} for seed in range(2)))
    ]
    async with Engine.open(SMALL) as engine:
        results = await engine.map([PROMPT] * len(asked), [each for _, each in asked])

    ended = dict.fromkeys(FORMS, 0)
    for (name, _), result in zip(asked, results, strict=True):
        if result.finish_reason == "stop":
            check(name, result.text)
            assert result.token_ids[-1] == EOS
            assert result.outputs[0].stop_reason is None
            ended[name] += 1
    # A free object may ramble on in its first key.
    assert all(ended[name] >= 2 for name in FORMS if name != "json_object"), ended


@ONE_LOOP
async def test_company_changes_no_draw_on_either_side() -> None:
    """Constrained rows in a batch with free ones, and both as if they were alone."""
    asked = [
        params(FORMS["json"]),
        params(None, max_tokens=30),
        params(FORMS["regex"], temperature=1.0, seed=5),
        params(None, max_tokens=30, temperature=0.9, top_p=0.8, seed=6),
    ]
    async with Engine.open(EXACT) as engine:
        alone = [await engine.complete(PROMPT, each) for each in asked]
        together = await engine.map([PROMPT] * len(asked), asked)

    assert [each.token_ids for each in together] == [each.token_ids for each in alone]


async def test_two_engines_serve_the_same_form_at_once() -> None:
    async with Engine.open(SMALL) as one, Engine.open(SMALL) as other:
        found: list[RequestOutput] = []

        async def ask(engine: Engine) -> None:
            found.append(await engine.complete(PROMPT, params(FORMS["json"])))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, one)
            tasks.start_soon(ask, other)

    assert found[0].token_ids == found[1].token_ids
    check("json", found[0].text)


# Ends


async def test_a_turn_without_an_end_of_sequence_ends_itself_when_its_output_is_complete() -> None:
    """A model may have none, or its caller may ignore it."""
    async with Engine.open(SMALL) as engine:
        for more in ({}, {"logprobs": 1}, {"min_tokens": 20}):
            free = await engine.complete(PROMPT, params(DIGITS, ignore_eos=True, **more))
            assert re.fullmatch("[0-9]{3}", free.text)
            assert (free.finish_reason, free.outputs[0].stop_reason) == ("stop", None)
            assert EOS not in free.token_ids
            logprobs = free.outputs[0].logprobs
            assert (0 if logprobs is None else len(logprobs)) == more.get("logprobs", 0) * len(
                free.token_ids
            )


async def test_min_tokens_cannot_hold_an_output_that_is_complete() -> None:
    async with Engine.open(SMALL) as engine:
        result = await engine.complete(PROMPT, params(DIGITS, min_tokens=20))

    assert re.fullmatch("[0-9]{3}", result.text)
    assert result.finish_reason == "stop"


@ONE_LOOP
async def test_min_tokens_draws_on_where_the_form_allows_it() -> None:
    form = StructuredOutputs(regex="[a-z ]*")
    async with Engine.open(SMALL) as engine:
        result = await engine.complete(PROMPT, params(form, min_tokens=30, max_tokens=31))

    assert len(result.token_ids) >= 30
    assert EOS not in result.token_ids[:30]


async def test_a_stop_token_of_the_callers_ends_a_complete_output() -> None:
    """Chat models end a turn with a token that isn't always the model's end of sequence."""
    stop = 1000
    async with Engine.open(SMALL) as engine:
        result = await engine.complete(
            PROMPT, params(DIGITS, stop_token_ids=[stop], logit_bias={stop: 100, EOS: -100})
        )

    assert re.fullmatch("[0-9]{3}", result.text)
    assert result.outputs[0].stop_reason == stop


async def test_a_stop_string_cuts_an_output_wherever_it_is() -> None:
    async with Engine.open(SMALL) as engine:
        whole = await engine.complete(PROMPT, params(FORMS["json"]))
        cut = await engine.complete(PROMPT, params(FORMS["json"], stop='"age"'))

    assert cut.text == whole.text[: whole.text.index('"age"')]
    assert cut.outputs[0].stop_reason == '"age"'


async def test_max_tokens_leaves_a_beginning_and_says_so() -> None:
    async with Engine.open(SMALL) as engine:
        whole = await engine.complete(PROMPT, params(FORMS["json"]))
        part = await engine.complete(PROMPT, params(FORMS["json"], max_tokens=5))

    assert part.finish_reason == "length"
    assert part.token_ids == whole.token_ids[:5]


async def test_parameters_that_leave_no_token_fail_their_own_turn_alone() -> None:
    """Never NaN, never a token that the form doesn't have."""
    no_digit = params(DIGITS, allowed_token_ids=ids("abc"))
    async with Engine.open(EXACT) as engine:
        free = await engine.complete(PROMPT, params(None))
        beside: list[RequestOutput] = []

        async def ask() -> None:
            beside.append(await engine.complete(PROMPT, params(None)))

        async with engine.session() as session, anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            with pytest.raises(SamplingError, match="no token is left"):
                async with session.turn(PROMPT, no_digit) as turn:
                    await turn.wait()
            assert session.info.num_tokens == 0
            async with session.turn(PROMPT, params(DIGITS)) as turn:
                assert re.fullmatch("[0-9]{3}", (await turn.wait()).text)

        assert beside[0].token_ids == free.token_ids


async def test_what_is_not_forbidden_by_the_form_is_forbidden_by_the_other_rules() -> None:
    """Bad words and allowed ids narrow a form, they don't widen it."""
    (four,) = ids("4")
    form = StructuredOutputs(regex="[0-9]")
    async with Engine.open(SMALL) as engine:
        only = await engine.complete(
            PROMPT, params(form, allowed_token_ids=[four, EOS, *ids("abc")])
        )
        without = await engine.complete(
            PROMPT,
            params(form, bad_words=[[token] for digit in "012356789" for token in ids(digit)]),
        )

    assert only.text == without.text == "4"


# Refusals, before anything is queued


@pytest.mark.parametrize(
    ("form", "named"),
    [
        (StructuredOutputs(regex="["), "structured_outputs.regex='\\['"),
        (StructuredOutputs(json="{"), "structured_outputs.json='{'"),
        (StructuredOutputs(grammar="start: x"), "structured_outputs.grammar='start: x'"),
    ],
)
async def test_a_form_that_cannot_be_compiled_is_refused_before_anything_is_queued(
    form: StructuredOutputs, named: str
) -> None:
    async with Engine.open(SMALL) as engine, engine.session() as session:
        with pytest.raises(ValidationError, match=named):
            await engine.complete(PROMPT, params(form))
        with pytest.raises(ValidationError, match=named):
            async with session.turn(PROMPT, params(form)):
                pass
        stats = engine.stats()
        assert (stats.num_requests_running, stats.num_requests_waiting) == (0, 0)
        assert session.info.state == "idle"
        async with session.turn(PROMPT, params(DIGITS)) as turn:
            assert re.fullmatch("[0-9]{3}", (await turn.wait()).text)


async def test_a_device_that_compiles_no_form_refuses_it_at_the_call() -> None:
    device = FakeDevice()
    opened = OpenedDevice(device=device, tokenizer=device.tokenizer)
    async with Engine.open(device=opened) as engine:
        with pytest.raises(ValidationError, match="structured_outputs"):
            engine.stream(PROMPT, params(DIGITS))
