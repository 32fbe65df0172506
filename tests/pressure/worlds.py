"""Loopless engines whose sessions find room in host memory, and what is asked of them."""

from collections.abc import Sequence
from typing import Any

from kernel import SamplingParams
from kernel.ids import SessionId, session_custodian
from kernel.sessions.session import SessionActor
from kernel.turn import TurnRequest
from ownership import BaseName, Place
from tests.kernel.loopless import Loopless, tokens_of

__all__ = [
    "PAGE_BYTES",
    "SLOT_BYTES",
    "assert_all_free",
    "assert_cold",
    "drain",
    "greedy",
    "move",
    "name_of",
    "open_world",
    "places_of",
    "rest",
    "talk",
    "words",
]

SLOT_BYTES = 8
PAGE_BYTES = 4 * 8
"""Of the fake device."""


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def words(length: int, salt: int = 0) -> list[int]:
    return [(7 * salt + 3 * number) % 200 + 1 for number in range(length)]


def open_world(**config: Any) -> Loopless:
    """As much host memory as the device has, unless it is said otherwise."""
    like_device = SLOT_BYTES * config["num_slots"] + PAGE_BYTES * config["num_pages"]
    return Loopless.open(**{"host_memory_bytes": like_device, **config})


def move(world: Loopless, count: int = 1) -> None:
    """Complete a step; where none waits, a transfer."""
    for _ in range(count):
        if world.device.waiting:
            world.step()
        else:
            world.copy()


def drain(world: Loopless) -> None:
    """Let all that is under way end."""
    while world.device.waiting or world.device.waiting_transfers:
        move(world)


def rest(world: Loopless, name: str, length: int = 9, count: int = 4) -> SessionActor:
    """A session after its first turn."""
    session = world.session(name)
    world.finish(world.start(session, words(length, ord(name[0])), greedy(count)))
    return session


def talk(world: Loopless, session: SessionActor, tokens: Sequence[int], count: int) -> TurnRequest:
    """One more turn, whose tokens must be those of a cold run over the whole log."""
    log = session.state.log.tolist()
    request = world.start(session, tokens, greedy(count))
    world.finish(request)
    assert_cold(world, [*log, *tokens], tokens_of(request))
    return request


def assert_cold(world: Loopless, context: Sequence[int], tokens: Sequence[int]) -> None:
    """A cold run alone over a context, on an engine of its own, generates these tokens."""
    other = Loopless.open(page_size=world.core.limits.page_size)
    request = other.start(other.session("cold"), context, greedy(max(1, len(tokens))))
    other.finish(request)
    assert tokens_of(request)[: len(tokens)] == list(tokens)


def places_of(world: Loopless, session: SessionActor) -> list[Place]:
    """Where a session's states are, the oldest first."""
    view = world.core.ledger.view
    holder = session_custodian(SessionId(session.session_id))
    return [claim.place for claim in view.held_by(holder)]


def name_of(session: SessionActor) -> BaseName:
    base = session.state.base
    assert isinstance(base, BaseName)
    return base


def assert_all_free(world: Loopless) -> None:
    """As ``Loopless.assert_all_free``, in host memory as well; nothing that was empty was read."""
    world.assert_all_free()
    limits = world.core.limits
    assert world.core.ledger.view.free(Place.HOST) == (limits.host_slots, limits.host_pages)
    scheduler = world.core.scheduler
    assert scheduler is not None
    parking = scheduler.parking
    assert not [*parking.copies, *parking.parked, *parking.flights, *parking.asked]
    assert not world.device.poison_reads
