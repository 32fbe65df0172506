"""One engine's actors, ledger and device, put together. Synchronous; the shell drives it."""

import itertools
from collections.abc import Callable
from typing import final

from kernel.actors.actor import Address
from kernel.actors.dispatcher import Dispatcher
from kernel.actors.door import Door
from kernel.actors.supervision import Child, RestartIntensity
from kernel.config import EngineConfig, resolve
from kernel.devices.gpu_pool import GpuPool
from kernel.devices.recovery import SUPERVISOR, Recovery
from kernel.engine.core_limits import device_limits, host_capacity, session_limits, window_of
from kernel.environment import Environment
from kernel.errors import (
    EngineClosed,
    TenureError,
    ValidationError,
)
from kernel.flight import Counters
from kernel.ids import SCHEDULER, TurnId
from kernel.memory.device import AskMemory
from kernel.messages import (
    Cancel,
    ClearCache,
    CloseSession,
    SchedulerMessage,
    SessionMessage,
    TurnFailed,
)
from kernel.policies import make_policy
from kernel.prefixes.cache import PrefixCache
from kernel.prefixes.cache_bytes import CacheSizes
from kernel.prefixes.policy import CachePolicy
from kernel.prefixes.turn_prefixes import NO_PREFIXES, Prefixes
from kernel.probe import Probe
from kernel.scheduling.scheduler import Scheduler
from kernel.session_store import SessionRecord, StoreWorker
from kernel.sessions.registry import SessionRegistry
from kernel.sessions.session import SessionActor
from kernel.sessions.store_actor import StoreRules
from kernel.sessions.stored_sessions import StoredSessions
from kernel.sessions.turn_records import SessionCounters
from kernel.sliding import why_not
from kernel.step import Device, WorkerContext
from ownership import AuditReport, Capacity, Ledger

__all__ = ["Core"]


@final
class Core:
    """The synchronous whole of an engine.

    Args:
        config: as given by the caller; checked against the model here.
        device: allocated here, closed by whoever opened it.
        environment: the world.
        probe: where events go.
        memory: asked for what the pools may take; ``None``: they are sized without regard to it.
        store: where sessions are kept, closed with the core; ``None``: they end with it.

    Raises:
        ValidationError: the configuration doesn't fit the model.
        NotEnoughMemory: a turn, or what was asked for, doesn't fit into the memory.
    """

    def __init__(
        self,
        config: EngineConfig,
        device: Device,
        environment: Environment,
        probe: Probe,
        *,
        memory: AskMemory | None = None,
        store: StoreWorker | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.model = device.model
        self.environment = environment
        self.probe = probe
        length = config.max_model_len or self.model.max_model_len
        sizes = (config.max_num_seqs, config.max_num_batched_tokens, length)
        resolved = resolve(config, self.model, memory and memory(*sizes))
        self.limits = device_limits(resolved)
        window = window_of(resolved)
        self.why_no_slides = why_not(self.model, self.limits, resolved.max_model_len, window)
        """Why no session can slide; empty: they can."""
        if config.on_limit == "slide" and self.why_no_slides:
            raise ValidationError(parameter="on_limit", value="slide", why=self.why_no_slides)
        device.allocate(self.limits)
        self.ledger = Ledger(
            Capacity(resolved.num_slots, resolved.num_pages, resolved.page_size),
            host=host_capacity(self.limits),
            observer=probe if probe.enabled else None,
            track_freed=True,
        )
        self.door = Door(
            max_reqs=config.max_num_queued_reqs, max_tokens=config.max_num_queued_tokens
        )
        self.counters = Counters()
        self.session_counters = SessionCounters()
        self.dispatcher = Dispatcher(
            environment,
            self.ledger,
            probe,
            RestartIntensity(config.max_restarts, config.restart_window_s),
        )
        self.recovery = Recovery(self.dispatcher, self.ledger, self.fail)
        self.dispatcher.on_give_up = self.recovery.give_up
        self.audit: AuditReport | None = None
        self.failure: TenureError | None = None
        self._steps = itertools.count(1)
        self._policy = make_policy(config)
        self.session_limits = session_limits(
            config, self.model, resolved, can_slide=not self.why_no_slides
        )
        self.stored = None if store is None else self._stored_sessions(store)
        self.registry = registry = SessionRegistry(
            self.dispatcher,
            self.ledger,
            self.session_limits,
            self.door,
            self.session_counters,
            probe,
            self.stored,
            max_sessions=config.max_sessions,
        )
        self.sessions = registry.actors
        self.open_session, self.bring_back = registry.open, registry.bring_back
        self.session, self.holds, self.knows = registry.get, registry.holds, registry.knows

    # Births

    def start(self) -> None:
        """Let the scheduler and the GPU pool live."""
        self._emit("engine.opened", model=self.model.name, slots=self.limits.num_slots)
        reborn = self.recovery.reborn
        self.dispatcher.spawn(self._new_scheduler(), Child(reborn(self._new_scheduler)))
        self.dispatcher.spawn(
            self._new_pool(), Child(reborn(self._new_pool), self.recovery.bury_pool)
        )
        if self.stored is not None:
            self.dispatcher.spawn(self.stored.new_actor(), Child(reborn(self.stored.new_actor)))

    @property
    def num_sessions(self) -> int:
        """Sessions in memory, without one-shots."""
        return self.registry.count

    @property
    def session_prefix(self) -> str:
        """What names of sessions begin with that nobody has named."""
        return self.registry.prefix

    @property
    def open_turns(self) -> int:
        """Turns whose callers have not been told an end."""
        return self.registry.open_turns

    def holds_turn(self, turn: TurnId) -> bool:
        """Whether a turn of this id is queued or at the scheduler, wanted by anybody or not."""
        scheduler = self.scheduler
        is_there = scheduler is not None and scheduler.roster.get(turn) is not None
        return is_there or self.door.counts(turn)

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that lives now."""
        return self.recovery.scheduler

    def _stored_sessions(self, worker: StoreWorker) -> StoredSessions:
        config = self.config
        rules = StoreRules(
            timeout_s=config.session_store_timeout_s, mail_bound=64 + 8 * config.max_sessions
        )
        return StoredSessions(
            worker,
            self.dispatcher,
            self._bring_back,
            rules,
            # At the bound nobody could come in any more, however many rest.
            max_resident=min(config.max_resident_sessions, max(1, config.max_sessions - 1)),
            max_sessions=config.max_sessions,
            is_stuck=lambda: self.registry.is_stuck,
            random=self.environment.random,
        )

    def _bring_back(self, record: SessionRecord) -> SessionActor:
        """The registry is made after the store's side of it."""
        return self.registry.bring_back(record)

    def _new_scheduler(self) -> Scheduler:
        bound = 64 + 8 * (self.config.max_sessions + self.config.max_num_queued_reqs)
        return Scheduler(
            self.dispatcher,
            self.ledger.batch_port(SCHEDULER),
            self.ledger.view,
            self.limits,
            self._policy,
            self.door,
            self.counters,
            lambda: next(self._steps),
            mail_bound=bound,
            prefixes=self._new_prefixes(),
        )

    def _new_prefixes(self) -> Prefixes:
        """An empty prefix cache, if there shall be one; that of a dead scheduler is reclaimed."""
        config = self.config
        if not config.enable_prefix_caching:
            return NO_PREFIXES
        sizes = CacheSizes.of(self.model, self.limits, config.prefix_cache_bytes)
        port, least = self.ledger.cache_port(SCHEDULER), self.limits.page_size
        cache = PrefixCache(port, self.ledger.view, sizes, self.counters, least=least)
        return Prefixes(cache, CachePolicy(config.prefix_cache_block, least), self.counters)

    def _new_pool(self) -> GpuPool:
        worker = self.device.start_worker(WorkerContext(self._call_later))
        return GpuPool(
            self.dispatcher,
            self.ledger,
            worker,
            self.recovery.quarantine,
            step_timeout_s=self.config.step_timeout_s,
            on_step=self.recovery.step_reported,
            on_unwanted=self.recovery.land_as_failed,
        )

    def _call_later(self, delay_s: float, fire: Callable[[], None]) -> None:
        self.dispatcher.call_at(self.dispatcher.now() + delay_s, fire)

    def clear_cache(self, *, forever: bool = False) -> None:
        """Have all states of the prefix cache evicted; those that are being copied drain."""
        clear = ClearCache(forever=forever)
        self.dispatcher.post(Address[SchedulerMessage](SCHEDULER), clear, SUPERVISOR)

    # Deaths

    def fail(self, error: TenureError) -> None:
        """Fail every open turn and take no more; states at rest stay with their sessions."""
        if self.failure is not None:
            return
        self.failure = error
        self.door.fail(error)
        self.close_door(error)
        self._emit("engine.failed", error=repr(error))
        for actor in list(self.sessions.values()):
            if actor.active is not None:
                turn = actor.active.id
                self.dispatcher.post(Address[SchedulerMessage](SCHEDULER), Cancel(turn), SUPERVISOR)
                self.dispatcher.post(
                    Address[SessionMessage](actor.name), TurnFailed(turn, error), SUPERVISOR
                )

    # The end

    def close_door(self, error: BaseException | None = None) -> None:
        """Take no more work, and turn away whoever waits for a dormant session. Idempotent."""
        self.door.close(error)
        if self.stored is not None and self.door.closed_by is not None:
            self.stored.waking.turn_away(self.door.closed_by)

    def close_sessions(self) -> None:
        """Close the door and every session; their turns end as closed."""
        closed = self.failure or EngineClosed()
        self.close_door(closed)
        for actor in self.sessions.values():
            if not actor.is_close_posted:
                actor.is_close_posted = True
                actor.mailbox.post(CloseSession(closed, stays_kept=True), SUPERVISOR)

    @property
    def device_is_idle(self) -> bool:
        """No step is with the device, whoever launched it; steps in quarantine aside."""
        scheduler, pool = self.scheduler, self.recovery.pool
        return not (scheduler and scheduler.flight) and not (pool and pool.leases)

    @property
    def store_is_idle(self) -> bool:
        """The store has done all that it was asked."""
        return self.stored is None or self.stored.is_idle

    def stop(self, *, join_timeout_s: float) -> AuditReport:
        """Stop everything, synchronously, and audit. Idempotent.

        Order: door, sessions, prefix cache, the device's worker, scheduler, GPU pool, store. A
        lease whose worker has not ended by the deadline stays in quarantine, and the audit says so.

        Args:
            join_timeout_s: how long to block for workers that run, all together.
        """
        if self.audit is not None:
            return self.audit
        deadline = self.dispatcher.now() + join_timeout_s
        self.close_sessions()
        self._run_until_quiet()
        self.clear_cache(forever=True)
        self._run_until_quiet()
        while (pool := self.recovery.pool) is not None:
            # One that dies on the way has a successor, with a worker of its own.
            self._stop_pool(pool, max(0.0, deadline - self.dispatcher.now()))
        self._run_until_quiet()
        self.recovery.quarantine.collect_ended(
            self.recovery.land_ended, seconds_left=lambda: deadline - self.dispatcher.now()
        )
        scheduler = self.scheduler
        if scheduler is not None:
            self.dispatcher.retire(scheduler)
        if self.stored is not None:
            left_s = max(0.0, deadline - self.dispatcher.now())
            self.stored.stop(join_timeout_s=left_s, run_until_quiet=self._run_until_quiet)
        self.audit = self.ledger.audit()
        self._emit("engine.closed", conserved=self.audit.conserved)
        return self.audit

    def _stop_pool(self, pool: GpuPool, join_timeout_s: float) -> None:
        pool.worker.stop()
        has_ended = pool.worker.join(join_timeout_s)
        self._run_until_quiet()
        if self.recovery.pool is not pool:
            return  # It died of its last mail: supervision has seen to its leases.
        if pool.leases or not has_ended:
            self.recovery.quarantine.take(pool.worker, dict(pool.leases))
            pool.leases.clear()
        self.dispatcher.retire(pool)

    def _run_until_quiet(self) -> None:
        while not self.dispatcher.is_quiet:
            self.dispatcher.run(1024)

    def _emit(self, event: str, **fields: object) -> None:
        if self.probe.enabled:
            self.probe.record(event, fields)
