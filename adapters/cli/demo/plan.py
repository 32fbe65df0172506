"""What the demo's clients are going to do: a pure function of the seed."""

import random
from enum import Enum

import attrs

__all__ = ["DemoSize", "Fate", "OneShotPlan", "Plan", "SessionPlan", "TurnPlan", "make_plan"]

OPENINGS = (
    "In the beginning",
    "And it came to pass in those days, that",
    "It is a truth universally acknowledged, that",
    "My dear Mr. Bennet,",
    "And the king said unto",
    "Elizabeth was surprised to",
    "The word of the LORD came unto me, saying,",
    "Emma could not help",
    "Blessed is the man that",
    "Mrs. Weston was",
    "Now there was a certain man of",
    "Sir Walter Elliot,",
)
FOLLOW_UPS = (
    " And he said,",
    " But the next morning",
    "\n\nThen",
    " She replied that",
    " Therefore",
    " And when they heard it,",
    " In the evening",
    " Nobody knew why, but",
)
"""In the manner of the books that the bundled model was trained on."""


class Fate(Enum):
    """How a turn ends."""

    FINISH = "finish"
    CANCEL = "cancel"
    """The client leaves the block after some tokens."""
    DISCONNECT = "disconnect"
    """The client's task is cancelled at some moment, perhaps before the first token."""
    INTERRUPT = "interrupt"
    """Barge-in while the turn runs: the session keeps what was heard."""
    LATE_INTERRUPT = "late interrupt"
    """Barge-in after the turn has ended, since speech is slower than text."""
    CLOSE = "close"
    """The session is closed under its running turn."""


_SESSION_FATES = {
    Fate.FINISH: 60,
    Fate.CANCEL: 11,
    Fate.DISCONNECT: 9,
    Fate.INTERRUPT: 10,
    Fate.LATE_INTERRUPT: 6,
    Fate.CLOSE: 4,
}
_ONE_SHOT_FATES = {Fate.FINISH: 75, Fate.CANCEL: 12, Fate.DISCONNECT: 13}


@attrs.frozen(kw_only=True)
class DemoSize:
    """How much is asked of the engine."""

    sessions: int
    turns: int
    one_shots: int
    max_tokens: int
    pace: float = 1.0
    """Factor on every pause; 0 lets nobody think."""


@attrs.frozen(kw_only=True)
class TurnPlan:
    """One turn of a client, or its only one."""

    prompt: str
    max_tokens: int
    fate: Fate
    after_tokens: int
    """Tokens that the client has seen when it cancels, interrupts or closes."""
    after_s: float
    """When the client's task is cancelled, from the start of the turn."""
    pause_s: float
    """How long the client thinks before it."""
    seed: int


@attrs.frozen(kw_only=True)
class SessionPlan:
    """A client that keeps a session."""

    name: str
    preface: str | None
    """Text that the session absorbs before its first turn, where it does."""
    turns: tuple[TurnPlan, ...]


@attrs.frozen(kw_only=True)
class OneShotPlan:
    """A client that asks once."""

    name: str
    turn: TurnPlan


@attrs.frozen
class Plan:
    """All clients."""

    sessions: tuple[SessionPlan, ...]
    one_shots: tuple[OneShotPlan, ...]


def make_plan(size: DemoSize, seed: int) -> Plan:
    """Draw what every client does; the same seed gives the same plan on every machine."""
    return Plan(
        sessions=tuple(_session(size, seed, number) for number in range(1, size.sessions + 1)),
        one_shots=tuple(_one_shot(size, seed, number) for number in range(1, size.one_shots + 1)),
    )


def _session(size: DemoSize, seed: int, number: int) -> SessionPlan:
    name = f"s{number:02d}"
    draw = random.Random(f"{seed}/{name}")
    turns = [
        _turn(size, draw, FOLLOW_UPS if turn else OPENINGS, _SESSION_FATES)
        for turn in range(size.turns)
    ]
    preface = f"{draw.choice(OPENINGS)}{draw.choice(FOLLOW_UPS)}" if draw.random() < 0.25 else None
    return SessionPlan(name=name, preface=preface, turns=tuple(turns))


def _one_shot(size: DemoSize, seed: int, number: int) -> OneShotPlan:
    name = f"o{number:02d}"
    draw = random.Random(f"{seed}/{name}")
    turn = _turn(size, draw, OPENINGS, _ONE_SHOT_FATES)
    # One-shots come in all along, beside sessions of which each has turns yet to take.
    return OneShotPlan(
        name=name, turn=attrs.evolve(turn, pause_s=draw.uniform(0.0, 6.0) * size.pace)
    )


def _turn(
    size: DemoSize, draw: random.Random, texts: tuple[str, ...], fates: dict[Fate, int]
) -> TurnPlan:
    (fate,) = draw.choices(list(fates), weights=list(fates.values()))
    return TurnPlan(
        prompt=draw.choice(texts),
        max_tokens=draw.randint(max(1, size.max_tokens // 2), size.max_tokens),
        fate=fate,
        after_tokens=draw.randint(1, max(1, size.max_tokens // 3)),
        after_s=draw.uniform(0.0, 1.0) * size.pace,
        pause_s=draw.uniform(0.1, 1.4) * size.pace,
        seed=draw.getrandbits(32),
    )
