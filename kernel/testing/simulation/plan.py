"""What a run of the kernel's own scenario is: an engine, clients with their operations, faults."""

from typing import Any, Literal

import attrs

from kernel.config import EngineConfig
from kernel.params import SamplingParams
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.faults import FaultKind

__all__ = ["KINDS", "ClientPlan", "Kind", "Operation", "Plan", "draw_plan"]

Kind = Literal[
    "nothing",
    "turn",
    "wait for a turn",
    "leave a turn",
    "interrupt a turn",
    "append",
    "cut the last turn",
    "complete",
    "abandon a generation",
    "map",
    "stop reading",
    "overlap",
    "fork",
    "fork a running session",
    "mark",
    "go back to a mark",
    "rewind",
    "visit another session",
    "time out",
    "abort",
    "close",
    "look",
    "settle",
]
KINDS: tuple[tuple[Kind, int], ...] = (
    ("nothing", 1),
    ("turn", 8),
    ("wait for a turn", 5),
    ("leave a turn", 5),
    ("interrupt a turn", 6),
    ("append", 3),
    ("cut the last turn", 5),
    ("complete", 5),
    ("abandon a generation", 3),
    ("map", 2),
    ("stop reading", 3),
    ("overlap", 4),
    ("fork", 4),
    ("fork a running session", 3),
    ("mark", 3),
    ("go back to a mark", 3),
    ("rewind", 4),
    ("visit another session", 3),
    ("time out", 3),
    ("abort", 2),
    ("close", 3),
    ("look", 1),
    ("settle", 1),
)
_WEIGHTS = [weight for _, weight in KINDS]
_SLOT_BYTES, _PAGE_BYTES = 8, 32
"""Of the fake models, on pages of four positions."""
_MODELS = ("fake", "fake-recurrent", "fake-attention")
_PROFILES: tuple[tuple[FaultKind, ...], ...] = (
    (),
    ("cancel",),
    ("device",),
    ("clock", "cancel", "end"),
    ("kill", "crash"),
    ("disk",),
    ("cancel", "clock", "device", "disk", "kill", "crash"),
    ("cancel", "cancel", "clock", "device", "disk", "kill", "crash", "end"),
)


@attrs.frozen(kw_only=True)
class Operation:
    """One thing that a client does, with the numbers that it may need."""

    kind: Kind
    prompt: int
    """Tokens of the prompt."""
    salt: int
    """Tells prompts apart."""
    params: SamplingParams
    count: int
    """Deltas to read, turns to run, tokens to keep: what the kind makes of it."""
    waits: bool
    pause_s: float
    timeout_s: float
    options: dict[str, Any]


@attrs.frozen
class ClientPlan:
    """What one client does, one operation after the other."""

    operations: tuple[Operation, ...]
    idle_timeout_s: float | None
    speaks: bool
    """Its sessions are of messages, not of token ids."""
    slides: bool
    """Its sessions drop their oldest positions at the limit, where the model can."""


@attrs.frozen(kw_only=True)
class Plan:
    """A whole run."""

    model: str
    config: EngineConfig
    clients: tuple[ClientPlan, ...]
    faults: tuple[FaultKind, ...]
    drains: bool
    """Close by ``aclose`` with time to drain, instead of leaving the block."""


def draw_plan(track: Track) -> Plan:
    """Draw a run; zeros give the plainest one."""
    model = track.pick(_MODELS)
    faults = track.pick(_PROFILES)
    config = _draw_config(track, model)
    clients = tuple(_draw_client(track) for _ in range(1 + track.draw(5)))
    return Plan(model=model, config=config, clients=clients, faults=faults, drains=track.chance(20))


def _draw_config(track: Track, model: str) -> EngineConfig:
    rows = track.pick((1, 2, 4, 4))
    uses_slots, uses_pages = model != "fake-attention", model != "fake-recurrent"
    return EngineConfig(
        model=model,
        device="fake",
        page_size=4,
        num_slots=track.pick((1, 2, 3, 4)) if uses_slots else None,
        num_pages=track.pick((8, 12, 8, 20)) if uses_pages else None,
        max_model_len=64,
        max_num_seqs=rows,
        max_num_batched_tokens=rows + track.pick((0, 2, 9)),
        max_num_queued_reqs=track.pick((100, 100, 3)),
        max_sessions=track.pick((100, 100, 100, 100, 2)),
        scheduling_policy=track.pick(("fcfs", "priority", "fair", "deadline")),
        step_timeout_s=track.pick((60.0, 1.0)),
        stop_timeout_s=track.pick((10.0, 0.5)),
        max_restarts=track.pick((3, 100, 1)),
        host_memory_bytes=_draw_host_bytes(track, uses_slots, uses_pages),
        session_store=track.pick((None, "sessions")),
        session_store_timeout_s=track.pick((60.0, 1.0)),
        max_resident_sessions=track.pick((1000, 2, 1)),
        enable_prefix_caching=track.chance(40),
        prefix_cache_block=track.pick((4, 8)),
    )


def _draw_host_bytes(track: Track, uses_slots: bool, uses_pages: bool) -> int:
    """Host memory for no state, for one or two small ones, or for more than there are."""
    one_state = _SLOT_BYTES * uses_slots + 3 * _PAGE_BYTES * uses_pages
    return one_state * track.pick((0, 50, 1, 2))


def _draw_client(track: Track) -> ClientPlan:
    count = 1 + track.draw(5)
    operations = tuple(_draw_operation(track) for _ in range(count))
    return ClientPlan(
        operations, track.pick((None, None, None, 0.2)), track.chance(30), track.chance(20)
    )


def _draw_operation(track: Track) -> Operation:
    kind = KINDS[track.weighted(_WEIGHTS)][0]
    prompt, salt = track.pick((1, 2, 5, 9, 14)), track.draw(50)
    params = SamplingParams(
        temperature=track.pick((0.0, 0.0, 0.8)),
        max_tokens=track.pick((1, 3, 6, 10)),
        ignore_eos=not track.chance(10),
        stop=track.pick(("a", "ba")) if track.chance(10) else (),
        logprobs=track.pick((0, 2)) if track.chance(15) else None,
        prompt_logprobs=track.pick((0, 2)) if track.chance(15) else None,
        frequency_penalty=0.5 if track.chance(5) else 0.0,
    )
    options: dict[str, Any] = {}
    if track.chance(30):
        options = {
            "priority": track.pick((0, -2, 3)),
            "tenant": track.pick(("", "a", "b")),
            "timeout_s": track.pick((None, 0.02, 0.5, 5.0)),
            "queue_timeout_s": track.pick((None, None, 0.01, 0.5)),
            "stall_timeout_s": track.pick((None, None, 0.05, 1.0)),
            "cache_salt": track.pick((None, None, "salt")),
        }
    if kind == "stop reading":
        options["stall_timeout_s"] = track.pick((None, 0.05, 1.0))
    return Operation(
        kind=kind,
        prompt=prompt,
        salt=salt,
        params=params,
        count=track.draw(4),
        waits=bool(track.draw(2)),
        pause_s=track.pick((0.0, 0.0, 0.003, 0.4)),
        timeout_s=track.pick((0.0, 0.002, 0.02, 0.3)),
        options=options,
    )
