"""What must hold once a run is over: all is free, nothing was lost, every token is right."""

from collections.abc import Iterator

from kernel.engine.core import Core
from kernel.testing import invariants
from kernel.testing.simulation.reference import wrong_tokens
from kernel.testing.simulation.world import OpenWorld, World

__all__ = ["judge"]

_COUNTED = ("preemptions", "forced_parks", "cached_tokens", "cache_published", "cache_evictions")


def judge(world: World) -> None:
    """Note whatever is wrong with a world whose scenario has ended."""
    for opened in world.opened:
        for kind, message in _judge_engine(opened):
            world.fail(kind, message)
        for name in _COUNTED:
            world.seen[name.replace("_", " ")] += getattr(opened.engine.core.counters, name)
        world.seen["steps"] += opened.engine.core.counters.steps
    _judge_errors(world)


def _judge_engine(opened: OpenWorld) -> Iterator[tuple[str, str]]:
    core = opened.engine.core
    histories = opened.observer.histories
    for message in wrong_tokens(core, histories.turns):
        yield "tokens", message
    for record in histories.open_turns:
        yield "untold", f"nobody was told the end of {record.turn.id}"
    if core.audit is None:
        yield "stop", "the engine was not stopped"
        return
    for broken in invariants.all_free(core):
        yield broken.property, broken.message
    if core.audit.quarantined and not opened.left_running:
        yield "quarantine", f"nothing hangs, and at the end there is {core.audit}"
    yield from _judge_counters(opened, core)


def _judge_counters(opened: OpenWorld, core: Core) -> Iterator[tuple[str, str]]:
    counters, deaths = core.ledger.view.counters, opened.observer.deaths
    if counters.reclaimed and not deaths:
        yield "no reclaim without a fault", f"{counters.reclaimed} claims were taken back"
    lost = [v for v in core.ledger.view.violations if not deaths or v.kind == "lost"]
    if lost:
        yield "no violation", f"{lost[-1].kind}: {lost[-1].message}"
    if core.dispatcher.deaths > deaths:
        yield "nobody dies", f"{core.dispatcher.deaths} have died, {deaths} were made to"
    if reads := opened.device.poison_reads:
        yield "poison", f"{reads[0]!r}"
    left = [actor.name for actor in core.dispatcher.actors()]
    if left or core.sessions or core.door.queued_reqs or core.door.queued_tokens:
        yield "stop", f"left over: {left}, {list(core.sessions)}, {core.door.queued_reqs} turns"


def _judge_errors(world: World) -> None:
    """An error that only a fault explains needs one."""
    deaths = sum(opened.observer.deaths + opened.observer.crashes for opened in world.opened)
    bad_steps = sum(opened.device.faults for opened in world.opened)
    bad_jobs = sum(opened.files.faults for opened in world.opened)
    explained = {
        "SessionLost": deaths,
        "EngineFault": deaths + world.seen.get("a template panics", 0),
        "StepError": deaths + bad_steps,
        "DeviceLost": deaths + bad_steps,
        # Who closes a session after the engine's end can't know it removed.
        "StoreError": deaths + bad_jobs + world.seen.get("native cancel", 0),
        "SamplingError": world.seen.get("step spoils a row", 0),
        "ModelError": world.seen.get("a template refuses", 0),
    }
    for name, faults in explained.items():
        if world.seen.get(name) and not faults:
            world.fail("caller", f"{name} was raised, and no fault explains it")
