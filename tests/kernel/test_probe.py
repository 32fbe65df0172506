"""Events: nothing at the price of one attribute test, or one structlog call each."""

from collections.abc import Mapping
from typing import Any

import pytest
import structlog

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineConfig, SamplingParams
from kernel.probe import EventProbe, NullProbe
from kernel.step import OpenedDevice
from tests.kernel.loopless import Loopless

PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


class Logger:
    """As much of a structlog logger as the probe uses."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def of_turn(self, turn: str) -> list[dict[str, Any]]:
        return [fields for _, fields in self.events if fields.get("turn") == turn]


class Forbidden:
    """A probe that is off and minds being called."""

    enabled = False

    def record(self, event: str, fields: Mapping[str, object], /) -> None:
        raise AssertionError(f"{event} was built although nobody reads it")

    def bind_turn(self, turn: str, context: Mapping[str, object], /) -> None:
        raise AssertionError("a context was bound although nobody reads it")

    def forget_turn(self, turn: str, /) -> None:
        """Told of every end; there is nothing to forget."""


def make_probe(logger: Logger) -> EventProbe:
    return EventProbe(logger, engine="engine-1", clock=lambda: 12.3456789)


def opened() -> OpenedDevice:
    device = FakeDevice(eos_token_ids=())
    return OpenedDevice(device=device, tokenizer=device.tokenizer)


def test_a_probe_that_is_off_is_never_called() -> None:
    """Turns, closings, cancels, failures and deaths cost an attribute test and build no dict."""
    world = Loopless.open(probe=Forbidden())
    session = world.session()
    world.finish(world.start(session, [1, 2, 3]))
    world.cancel(session, world.start(session, [4]))
    world.step()
    world.start(session, [5])
    world.device.fail()
    world.run()
    world.core.dispatcher.kill(session.name, RuntimeError("planted"))
    world.run()

    assert world.core.dispatcher.deaths == 1
    assert world.core.stop(join_timeout_s=0).conserved


def test_the_null_probe_takes_everything_and_keeps_nothing() -> None:
    """Whoever calls it all the same gets no error."""
    probe = NullProbe()
    probe.bind_turn("t", {"a": 1})
    probe.record("turn.started", {"turn": "t"})
    probe.forget_turn("t")

    assert not probe.enabled


def test_an_event_says_which_engine_and_when() -> None:
    """Two engines may write to one log."""
    logger = Logger()
    make_probe(logger).record("step.done", {"step": 3})

    ((event, fields),) = logger.events
    assert (event, fields["engine"], fields["at"]) == ("step.done", "engine-1", 12.345679)
    assert fields["step"] == 3


def test_an_event_is_sealed_and_names_the_one_before_it() -> None:
    """Whoever reads the log can tell what is missing from it, although it is not there to read."""
    logger = Logger()
    probe = make_probe(logger)
    probe.record("ledger.opened", {"slots": 3})
    probe.record("claim.grown", {"claim": 7, "turn": "t"})
    probe.record("turn.ended", {"turn": "t"})

    first, second, third = (fields for _, fields in logger.events)
    assert first["after"] is None
    assert second["after"] == (0, "ledger", first["check"])
    assert third["after"] == (1, "claim 7", second["check"])
    assert len({fields["check"] for fields in (first, second, third)}) == 3


def test_an_event_that_the_logger_refused_is_named_by_the_next() -> None:
    """A full disk loses events; the audit should say whose."""
    logger = Logger()
    probe = make_probe(logger)

    def refuse(event: str, **fields: Any) -> None:
        raise OSError("disk full")

    sound, probe._log = probe._log, refuse  # pyright: ignore[reportPrivateUsage]  # a disk that fills
    probe.record("claim.grown", {"claim": 7})
    probe._log = sound  # pyright: ignore[reportPrivateUsage]  # and is emptied
    probe.record("claim.grown", {"claim": 8})

    ((_, fields),) = logger.events
    assert fields["after"][:2] == (0, "claim 7")
    assert probe.lost == 1


def test_the_events_of_a_turn_carry_its_callers_context() -> None:
    """And those of other turns don't."""
    logger = Logger()
    probe = make_probe(logger)
    probe.bind_turn("t", {"http_request": "r-7"})
    probe.record("claim.reserved", {"turn": "t"})
    probe.record("claim.reserved", {"turn": "other"})
    probe.record("step.done", {})

    assert [fields.get("http_request") for _, fields in logger.events] == ["r-7", None, None]


def test_context_overwrites_no_field_of_the_schema() -> None:
    """The log alone is to prove conservation; a caller's ``slot`` must not stand for ours."""
    logger = Logger()
    probe = make_probe(logger)
    probe.bind_turn("t", {"slot": "mine", "engine": "mine", "at": "mine", "event": "x", "user": 7})
    probe.record("claim.reserved", {"turn": "t", "slot": 3})

    ((event, fields),) = logger.events
    assert event == "claim.reserved"
    assert (fields["slot"], fields["engine"], fields["at"]) == (3, "engine-1", 12.345679)
    assert fields["user"] == 7


def test_the_context_of_an_ended_turn_stays_a_little() -> None:
    """Its claim may still be on the way; but contexts are bounded."""
    logger = Logger()
    probe = make_probe(logger)
    probe.bind_turn("t", {"user": 7})
    probe.forget_turn("t")
    probe.record("claim.rolled_back", {"turn": "t"})
    for number in range(1024):
        probe.bind_turn(f"later {number}", {"user": 8})
        probe.forget_turn(f"later {number}")
    probe.record("claim.rolled_back", {"turn": "t"})

    assert [fields.get("user") for _, fields in logger.events] == [7, None]


async def test_contextvars_at_the_submit_reach_every_event_of_the_turn() -> None:
    """The events are written by another task, which has none of the caller's context."""
    logger = Logger()
    async with Engine.open(EngineConfig(model="fake"), device=opened(), logger=logger) as engine:
        with structlog.contextvars.bound_contextvars(http_request="r-7"):
            await engine.complete([1, 2, 3], PARAMS, request_id="with")
        await engine.complete([1, 2, 3], PARAMS, request_id="without")

    with_context = logger.of_turn("with")
    assert len(with_context) > 3
    assert {fields["http_request"] for fields in with_context} == {"r-7"}
    assert not [fields for fields in logger.of_turn("without") if "http_request" in fields]


async def test_no_event_carries_text_or_tokens_of_a_prompt_or_an_answer() -> None:
    """Logs are kept and shipped; what a user wrote is not ours to put there."""
    logger = Logger()
    prompt = "my number is 4929"
    async with Engine.open(EngineConfig(model="fake"), device=opened(), logger=logger) as engine:
        result = await engine.complete(prompt, PARAMS)
        async with engine.session() as session:
            await session.append(prompt)

    assert len(logger.events) > 10
    ids = [str(list(tokens)) for tokens in (result.prompt_token_ids, result.token_ids)]
    for event, fields in logger.events:
        for value in fields.values():
            assert prompt not in str(value), event
            assert not (result.text and result.text in str(value)), event
            assert str(value).replace("(", "[").replace(")", "]") not in ids, event


@pytest.mark.parametrize("event", ["turn.started", "turn.ended"])
async def test_a_turn_has_one_event_at_its_start_and_one_at_its_end(event: str) -> None:
    """With counts and times, so that a log answers how a turn went."""
    logger = Logger()
    async with Engine.open(EngineConfig(model="fake"), device=opened(), logger=logger) as engine:
        await engine.complete([1, 2, 3], PARAMS, request_id="r")

    (fields,) = [fields for name, fields in logger.events if name == event]
    assert (fields["turn"], fields["prompt_tokens"]) == ("r", 3)
    if event == "turn.ended":
        assert (fields["reason"], fields["generated"], fields["error"]) == ("length", 3, None)


async def test_an_engine_with_events_off_asks_no_context_of_its_callers() -> None:
    """Without a logger and with ``log_events=False`` there is no probe to bind anything to."""
    async with Engine.open(EngineConfig(model="fake"), device=opened()) as engine:
        assert isinstance(engine.core.probe, NullProbe)
        assert engine.core.ledger.observer is None
