"""What an engine writes into the application's log: its turn's context, and no text."""

import json
from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest
import structlog

from adapters.fake_device import FakeDevice
from adapters.trace_audit.log import audit_lines
from kernel import Engine, EngineConfig, OpenedDevice, SamplingParams, StepError, TenureError

CONFIG = EngineConfig(num_slots=3, num_pages=24, page_size=4, max_num_seqs=2)
PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
CANARY = "the canary sings"


class Log:
    """A structlog logger over a list."""

    def __init__(self) -> None:
        self._capturing = structlog.testing.CapturingLogger()
        self.logger: Any = structlog.wrap_logger(
            self._capturing, processors=[lambda _logger, _name, event: event]
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        return [call.kwargs for call in self._capturing.calls]


def opened(**options: Any) -> OpenedDevice:
    device = FakeDevice(eos_token_ids=(), **options)
    return OpenedDevice(device=device, tokenizer=device.tokenizer)


async def test_the_callers_contextvars_are_in_the_events_of_its_turn_and_in_no_others() -> None:
    """Three callers at once, and one without any context, on one engine."""
    log = Log()

    async def call(engine: Engine, user: str | None) -> None:
        if user is None:
            await engine.complete([1, 2], PARAMS, request_id="turn of nobody")
            return
        with structlog.contextvars.bound_contextvars(user=user, trace=f"trace-{user}"):
            async with engine.session() as session:
                for number in range(2):
                    name = f"turn of {user} {number}"
                    async with session.turn([1, 2], PARAMS, request_id=name) as turn:
                        await turn.wait()

    async with Engine.open(CONFIG, device=opened(delay=0.0), logger=log.logger) as engine:
        async with anyio.create_task_group() as tasks:
            for user in ("ann", "bob", "eve", None):
                tasks.start_soon(call, engine, user)

    turns = [event for event in log.events if event.get("turn")]
    assert {event["turn"] for event in turns} == {
        "turn of nobody",
        *(f"turn of {user} {number}" for user in ("ann", "bob", "eve") for number in range(2)),
    }
    for event in turns:
        owner = event["turn"].split()[2]
        expected = (None, None) if owner == "nobody" else (owner, f"trace-{owner}")
        assert (event.get("user"), event.get("trace")) == expected, event
    for event in log.events:
        assert "user" not in event or event.get("turn"), event
    for user in ("ann", "bob", "eve"):
        kinds = {event["event"] for event in turns if event.get("user") == user}
        assert kinds >= {"turn.started", "claim.reserved", "claim.committed", "turn.ended"}
    assert structlog.contextvars.get_contextvars() == {}


async def test_a_context_never_overwrites_what_the_event_says() -> None:
    """An audit replays the log; a caller's ``slot`` is not the ledger's."""
    log = Log()
    context = {"slot": "mine", "seq": -1, "engine": "mine", "event": "mine", "turn": "mine"}
    async with Engine.open(CONFIG, device=opened(), logger=log.logger) as engine:
        with structlog.contextvars.bound_contextvars(**context):
            await engine.complete([1, 2], PARAMS, request_id="a")

    reserved = [event for event in log.events if event["event"] == "claim.reserved"]
    assert [(event["slot"], event["turn"]) for event in reserved] == [(0, "a")]
    assert {event.get("turn") for event in log.events} <= {"a", None}
    (audited,) = audit_lines(json.dumps(event) for event in log.events).engines
    assert audited.conserved


async def _busy_life(engine: Engine, device: FakeDevice) -> list[int]:
    """Every kind of end that a turn can have, all about the canary; returns what was generated."""
    generated: list[int] = []
    async with engine.session() as session:
        await session.append(CANARY)
        async with session.turn(CANARY, PARAMS) as turn:
            generated += (await turn.wait()).token_ids
        await session.interrupt(1)
        async with session.turn(CANARY, PARAMS, on_exit="keep") as turn:
            generated += (await anext(turn)).token_ids
        device.fail_next("planted")
        with pytest.raises(StepError):
            async with session.turn(CANARY, PARAMS) as turn:
                await turn.wait()
    for prompt in (CANARY * 20, [ord(letter) for letter in CANARY] * 20):
        with pytest.raises(TenureError):
            await engine.complete(prompt, PARAMS)
    async with engine.stream(CANARY, PARAMS, timeout_s=60) as turn:
        engine.abort(turn.request_id)
    with pytest.raises(TenureError):
        await engine.complete(CANARY, PARAMS, timeout_s=1e-9)
    stop = SamplingParams(temperature=0, max_tokens=5, stop="canary sings", ignore_eos=True)
    await engine.complete(CANARY, stop)
    await engine.map([CANARY] * 6, PARAMS)
    return generated


async def test_the_log_carries_no_prompt_text_and_no_token_ids() -> None:
    """Logs are kept longer, and read by more people, than conversations."""
    log = Log()
    device = opened(delay=0.0)
    fake = device.device
    assert isinstance(fake, FakeDevice)
    async with Engine.open(CONFIG, device=device, logger=log.logger) as engine:
        generated = await _busy_life(engine, fake)

    serialized = [json.dumps(event, default=repr) for event in log.events]
    names = {event["event"] for event in log.events}
    assert names >= {"turn.ended", "claim.rolled_back", "claim.committed", "lease.landed"}
    assert len(generated) >= 6
    for word in CANARY.split()[1:]:
        assert not [line for line in serialized if word in line]
    told = [numbers for event in log.events for numbers in _lists_of_numbers(event)]
    prompt = [ord(letter) for letter in CANARY]
    for secret in (prompt[:4], prompt[4:8], generated[:3]):
        assert not [numbers for numbers in told if _contains(numbers, secret)]
    assert not {"text", "prompt", "tokens", "token_ids"} & {key for e in log.events for key in e}


def _lists_of_numbers(value: object) -> list[list[object]]:
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if not isinstance(value, list | tuple):
        return []
    items = list(cast("Sequence[object]", value))
    return [items] + [found for item in items for found in _lists_of_numbers(item)]


def _contains(numbers: list[object], part: list[int]) -> bool:
    return any(numbers[at : at + len(part)] == part for at in range(len(numbers)))


async def test_errors_carry_no_prompt_text() -> None:
    """They end up in logs too."""
    messages: list[str] = []
    async with Engine.open(CONFIG, device=opened()) as engine, engine.session() as session:
        await session.append(CANARY)
        for prompt in (CANARY * 20, [ord(letter) for letter in CANARY] * 20, CANARY + "\ud800"):
            for call in (engine.complete, session.append):
                with pytest.raises(TenureError) as caught:
                    await call(prompt)
                messages.append(str(caught.value))

    assert len(messages) == 6
    assert not [message for message in messages if "canary" in message or "sings" in message]
