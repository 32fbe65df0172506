"""Parameters that are unknown, of the wrong type, out of range or contradictory: never ignored.

Each error names the parameter, its value and the way out, and comes before anything has begun.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams, Session, ValidationError
from tests.errors.door import open_engine, says

NAN = math.nan
GREEDY = SamplingParams(temperature=0, max_tokens=2)
Door = Callable[..., Awaitable[object]]


async def _enter(block: Any) -> None:
    async with block:
        pass


def doors(engine: Engine, session: Session) -> dict[str, Door]:
    """Every way to submit something, by name."""

    async def stream(*args: Any, **options: Any) -> None:
        await _enter(engine.stream(*args, **options))

    async def turn(*args: Any, **options: Any) -> None:
        await _enter(session.turn(*args, **options))

    async def generate(*args: Any, **options: Any) -> None:
        await anext(engine.generate(*args, **options))

    return {"stream": stream, "complete": engine.complete, "generate": generate, "turn": turn}


each_door = pytest.mark.parametrize("door", ["stream", "complete", "generate", "turn"])


@pytest.mark.parametrize(
    ("given", "parameter", "way_out"),
    [
        ({"temperature": -0.1}, "temperature", "at least 0"),
        ({"temperature": NAN}, "temperature", "finite"),
        ({"temperature": math.inf}, "temperature", "finite"),
        ({"temperature": "hot"}, "temperature", "a number"),
        ({"temperature": True}, "temperature", "a number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_p": 1.01}, "top_p", "at most 1"),
        ({"top_p": NAN}, "top_p", "finite"),
        ({"top_k": -2}, "top_k", "at least 0"),
        ({"top_k": 1.5}, "top_k", "an int"),
        ({"seed": -1}, "seed", "between 0 and"),
        ({"seed": 2**64}, "seed", "between 0 and"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": -5}, "max_tokens", "at least 1"),
        ({"max_tokens": 2.0}, "max_tokens", "an int"),
        ({"min_tokens": -1}, "min_tokens", "at least 0"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens", "max_tokens=2"),
        ({"stop": ""}, "stop", "not empty"),
        ({"stop": ["a", ""]}, "stop", "not empty"),
        ({"stop": [1]}, "stop", "a str"),
        ({"stop": "x", "detokenize": False}, "stop", "detokenize=True"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "at least 0"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids", "an int"),
        ({"ignore_eos": 1}, "ignore_eos", "True or False"),
        ({"temprature": 1}, "temprature", "did you mean temperature"),
        ({"max_new_tokens": 1}, "max_new_tokens", "did you mean"),
        ({"beam_width": 4}, "beam_width", "known are"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(
    given: dict[str, Any], parameter: str, way_out: str
) -> None:
    """When it is built, so that it can't reach an engine."""
    with pytest.raises(ValidationError) as caught:
        SamplingParams.from_dict(given)
    assert caught.value.parameter == parameter
    says(caught, f"{parameter}=", way_out)


def test_an_unknown_sampling_keyword_is_an_error() -> None:
    """In a call Python itself says it."""
    misspelt: dict[str, Any] = {"temprature": 1}
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(**misspelt)


@pytest.mark.parametrize("params", [{"temperature": 0}, 0, "greedy", [GREEDY], SamplingParams])
@each_door
async def test_params_of_another_type_are_refused(door: str, params: Any) -> None:
    """Also empty and false ones, which would pass as none given."""
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(ValidationError) as caught:
            await doors(engine, session)[door]([1], params)
        says(caught, "params=", "SamplingParams", type(params).__name__)
        assert engine.stats().steps == 0


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ({"time_out_s": 5}, "did you mean timeout_s"),
        ({"prioritty": 5}, "did you mean priority"),
        ({"model": "other"}, "known are"),
    ],
)
@each_door
async def test_an_unknown_option_is_refused(
    door: str, options: dict[str, Any], way_out: str
) -> None:
    """A misspelt deadline would be no deadline."""
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(ValidationError) as caught:
            await doors(engine, session)[door]([1], GREEDY, **options)
        says(caught, f"{next(iter(options))}=", way_out)
        assert engine.stats().steps == 0


@pytest.mark.parametrize("door", ["stream", "complete", "generate"])
async def test_an_option_of_a_session_is_refused_where_there_is_none(door: str) -> None:
    """There is nothing to wait for, and ``keep`` has nowhere to keep."""
    async with open_engine() as engine, engine.session() as session:
        submit = doors(engine, session)[door]
        for options in ({"wait": True}, {"on_exit": "keep"}):
            with pytest.raises(ValidationError) as caught:
                await submit([1], GREEDY, **options)
            says(caught, f"{next(iter(options))}=")


@pytest.mark.parametrize(
    "options",
    [
        {"on_exit": "commit"},
        {"on_exit": None},
        {"wait": "no"},
        {"queue_timeout_s": -1},
        {"timeout_s": NAN},
        {"timeout_s": math.inf},
        {"stall_timeout_s": 0.0},
        {"stall_timeout_s": True},
    ],
    ids=str,
)
async def test_an_option_of_a_turn_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    """And the session takes the next turn as if nothing had been."""
    (name,) = options
    async with open_engine() as engine, engine.session() as session:
        with pytest.raises(ValidationError) as caught:
            await _enter(session.turn([1], GREEDY, **options))
        assert caught.value.parameter == name
        says(caught, f"{name}=")
        assert session.info.num_tokens == 0
        await session.append([1, 2])


@pytest.mark.parametrize(
    "prompt",
    [None, b"bytes", bytearray(b"b"), {1, 2}, {1: 2}, 7, 1.5, object(), iter([1]), ["a", "b"],
     [[1]], [None], [True], [1.0], [-1], [1000], "\ud800 half", "tail \udfff"],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
async def test_what_is_no_prompt_is_refused(prompt: Any, first: bool) -> None:
    """None included: in a session that has a log it would go on as an empty turn does."""
    async with open_engine() as engine, engine.session() as session:
        if not first:
            await session.append([1, 2])
        length = session.info.num_tokens
        for submit in (*doors(engine, session).values(), session.append):
            with pytest.raises(ValidationError) as caught:
                await submit(prompt)
            says(caught, "prompt=", "is refused")
        assert session.info.num_tokens == length


@pytest.mark.parametrize("name", ["", 5, b"name", ["a"]])
async def test_a_session_id_that_is_no_name_is_refused(name: Any) -> None:
    """Empty is not "a fresh one, please"."""
    async with open_engine() as engine:
        with pytest.raises(ValidationError) as caught:
            engine.session(session_id=name)
        says(caught, "session_id=", "str")


@pytest.mark.parametrize("value", [-1, NAN, "soon"])
async def test_a_drain_time_that_is_none_is_refused_and_the_engine_stays_open(value: Any) -> None:
    """A slip in the call that ends everything must not end everything."""
    async with open_engine() as engine:
        with pytest.raises(ValidationError, match="drain_timeout_s="):
            await engine.aclose(drain_timeout_s=value)
        assert len((await engine.complete([1], GREEDY)).token_ids) > 0


@pytest.mark.parametrize("value", [0, -3, 1.5, "all", None])
async def test_a_concurrency_that_is_no_number_is_refused(value: Any) -> None:
    """Before the first request."""
    async with open_engine() as engine:
        with pytest.raises(ValidationError, match="concurrency="):
            await engine.map([[1]], GREEDY, concurrency=value)


@pytest.mark.parametrize(
    ("given", "parameter", "way_out"),
    [
        ({"max_num_seqs": 8, "max_num_batched_tokens": 7}, "max_num_batched_tokens", "seqs=8"),
        ({"max_model_len": 1}, "max_model_len", "at least 2"),
        ({"max_sessions": 0}, "max_sessions", "at least 1"),
        ({"tenant_weights": {"a": 0}}, "tenant_weights['a']", "greater than 0"),
        ({"step_timeout_s": NAN}, "step_timeout_s", "finite"),
        ({"idle_timeout_s": -1}, "idle_timeout_s", "greater than 0"),
        ({"log_events": "yes"}, "log_events", "True or False"),
        ({"max_num_sequences": 4}, "max_num_sequences", "did you mean max_num_seqs"),
    ],
    ids=str,
)
async def test_a_configuration_that_makes_no_sense_opens_nothing(
    given: dict[str, Any], parameter: str, way_out: str
) -> None:
    """By itself, or with this model; as itself and not in a group of errors."""
    with pytest.raises(ValidationError) as caught:
        async with Engine.open(EngineConfig.from_dict(given), device=FakeDevice()):
            raise AssertionError("it opened")
    assert caught.value.parameter == parameter
    says(caught, f"{parameter}=", way_out)
