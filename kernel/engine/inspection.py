"""Looking into a running engine: statistics, health, sessions. Reads, never changes."""

from typing import Literal

import attrs

from kernel.engine.core import Core
from kernel.flight import Flight
from kernel.ids import SessionId
from kernel.outputs import CacheMiss, CheckpointInfo, EngineStats, Health, SessionInfo
from kernel.scheduling.parking import TransferFlight
from kernel.sessions.kept_states import NO_STATE
from kernel.sessions.session import SessionActor
from kernel.sessions.state import SessionState
from ownership import BaseName, Place

__all__ = ["dormant_info", "health", "session_info", "stats"]


def stats(core: Core) -> EngineStats:
    """Gauges of this moment and counters since opening. O(claims), and writes no event."""
    view = core.ledger.view
    on_device, in_host = view.columns(Place.DEVICE), view.columns(Place.HOST)
    host_slots_free, host_pages_free = view.free(Place.HOST)
    capacity, host = view.capacity, view.host_capacity
    scheduler = core.scheduler
    cache = None if scheduler is None else scheduler.cache
    counters, ends, ledger_counters = core.counters, core.session_counters, view.counters
    usage = None if core.stored is None else core.stored.worker.usage()
    return EngineStats(
        num_requests_running=0 if scheduler is None else scheduler.roster.num_running,
        num_requests_waiting=0 if scheduler is None else scheduler.roster.num_waiting,
        num_queued_tokens=core.door.queued_tokens,
        num_sessions=core.num_sessions,
        sessions_stored=0 if usage is None else usage.sessions,
        store_bytes=0 if usage is None else usage.log_bytes + usage.state_bytes,
        slots_total=capacity.slots,
        slots_free=view.free_slots,
        slots_batch=on_device.get("batch", 0),
        slots_session=on_device.get("session", 0),
        slots_cache=on_device.get("cache", 0),
        slots_draining=on_device.get("draining", 0),
        slots_quarantined=on_device.get("quarantined", 0),
        host_slots_total=0 if host is None else host.slots,
        host_slots_free=host_slots_free,
        host_pages_total=0 if host is None else host.pages,
        host_pages_free=host_pages_free,
        states_in_host=in_host.get("session", 0),
        pages_total=capacity.pages,
        pages_free=view.free_pages,
        pages_quarantined=view.quarantined_pages,
        steps=counters.steps,
        turns_finished=ends.finished,
        turns_cancelled=ends.cancelled,
        turns_failed=ends.failed,
        prompt_tokens=counters.absorbed_tokens,
        generation_tokens=counters.generated_tokens,
        cached_tokens=counters.cached_tokens,
        cache_hits=counters.cache_hits,
        cache_misses=counters.cache_misses,
        cache_states=0 if cache is None else len(cache.states),
        cache_bytes=0 if cache is None else cache.books.bytes,
        cache_published=counters.cache_published,
        cache_evictions=counters.cache_evictions,
        recomputed_tokens=counters.recomputed_tokens,
        preemptions=counters.preemptions,
        rollbacks=ledger_counters.rollbacks,
        forced_parks=counters.forced_parks,
        reclaimed=ledger_counters.reclaimed,
        restarts=core.recovery.restarts,
    )


def health(core: Core, *, is_running: bool) -> Health:
    """Whether the engine serves, and what it has lost to hanging steps."""
    view = core.ledger.view
    scheduler = core.scheduler
    flights: list[Flight | TransferFlight] = []
    if scheduler is not None:
        flights += scheduler.parking.flights
        flights += [] if scheduler.flight is None else [scheduler.flight]
    oldest = core.dispatcher.now() - core.config.step_timeout_s / 2
    stalled = any(flight.launched_at < oldest for flight in flights)
    return Health(
        live=is_running and core.failure is None,
        ready=is_running and core.door.closed_by is None,
        stalled=stalled,
        quarantined_slots=view.quarantined_slots,
        quarantined_pages=view.quarantined_pages,
        why="" if core.door.closed_by is None else str(core.door.closed_by),
    )


def session_info(core: Core, actor: SessionActor) -> SessionInfo:
    """One session at this moment; of one that has died only its log is left."""
    state = actor.state
    # What a dead session held was taken back from it: asking for that would be a stale handle.
    start = _Start() if actor.is_closed else _start(core, actor)
    return SessionInfo(
        session_id=actor.session_id,
        state=actor.phase,
        num_tokens=len(state.log),
        position=start.position,
        pending_tokens=len(state.log) - start.position,
        first_position=start.first_position,
        version=state.version,
        place=start.place,
        bytes=start.nbytes,
        turns=actor.turns,
        last_used_s=actor.last_used_at,
        detached=actor.identity.is_detached,
        attached=actor.seat.is_held,
        cache_miss=_cache_miss(actor),
        checkpoints=() if actor.is_closed else _checkpoints(state),
    )


@attrs.frozen
class _Start:
    """The state that is nearest to the end of a log; by default there is none."""

    position: int = 0
    place: Literal["device", "host", "disk", "log"] = "log"
    first_position: int | None = 0
    nbytes: int = 0
    """Of the session's own state, in a pool."""


def _start(core: Core, actor: SessionActor) -> _Start:
    """What the session's next turn starts from, in whatever tier that is."""
    state, archive, image = actor.state, actor.archive, actor.state.image
    position = state.base_position
    if image is not None and image.position > position:
        return _Start(image.position, "host", image.first_position)
    if archive is not None:
        snapshots = (archive.snapshots.position, archive.snapshots.inherited)
        furthest = max((at for at in snapshots if at is not None), default=0)
        if position < furthest < len(state.log):
            return _Start(furthest, "disk", None)
    base, view = state.base, core.ledger.view
    found = view.find_base(base) if isinstance(base, BaseName) else None
    if found is None:
        return _Start()
    place: Literal["host", "device"] = "host" if found.place is Place.HOST else "device"
    first_position = found.first_page * core.limits.page_size
    return _Start(position, place, first_position, _bytes_held(core, state))


def _bytes_held(core: Core, state: SessionState) -> int:
    """Bytes of the state that the next turn starts from, if the session holds it itself."""
    version = state.states.start
    held = None if version is NO_STATE else state.states.kept.get(version)
    if held is None:
        return 0
    pages = len(core.ledger.view.describe(held).pages)
    has_pages = core.limits.num_pages > 0
    page_bytes = core.limits.page_size * core.model.page_token_bytes if has_pages else 0
    slot_bytes = core.model.slot_bytes if core.limits.num_slots else 0
    return slot_bytes + pages * page_bytes


def dormant_info(core: Core, session_id: SessionId) -> SessionInfo:
    """A session that is only in the store: what there is to say without reading it."""
    dormant = None if core.stored is None else core.stored.dormant
    entry = None if dormant is None else dormant.entry(session_id)
    attached = dormant is not None and dormant.has_callers(session_id)
    if entry is None:
        return SessionInfo(session_id=session_id, state="dormant", attached=attached)
    # Over its budget the store drops the snapshots of others, and says so to nobody.
    has_budget = core.config.session_store_bytes is not None
    position = None if has_budget and entry.state_position else entry.state_position
    return SessionInfo(
        session_id=session_id,
        state="dormant",
        num_tokens=entry.num_tokens,
        position=position,
        pending_tokens=None if position is None else entry.num_tokens - position,
        place=None if position is None else "disk" if position else "log",
        turns=entry.turns,
        last_used_s=entry.last_used_s,
        detached=entry.is_detached,
        attached=attached,
        checkpoints=entry.marks,
    )


def _checkpoints(state: SessionState) -> tuple[CheckpointInfo, ...]:
    states = state.states
    return tuple(
        CheckpointInfo(
            name=name,
            turns=mark.turns,
            num_tokens=mark.length,
            position=states.position(mark.version),
            has_state=mark.version is not NO_STATE,
            bytes=states.bytes_of(mark),
        )
        for name, mark in states.marks.items()
    )


def _cache_miss(actor: SessionActor) -> CacheMiss | None:
    if actor.active is not None:
        return actor.active.request.output.cache_miss
    return actor.state.cache_miss
