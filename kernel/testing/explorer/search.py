"""Breadth first through every state of a world; the first trace to a violation is a shortest one.

To be in a state again, its trace is replayed from the root: opening an engine takes some fifty
microseconds and a handler fifteen, so that a replay costs about what a copy of all objects would,
and can't be wrong about what is shared.
"""

import gc
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import attrs

from kernel.testing.explorer import sightings
from kernel.testing.explorer.canonical import digest
from kernel.testing.explorer.checks import Before, Checker
from kernel.testing.explorer.choices import extras, may_fault, progress
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.held_device import open_inner
from kernel.testing.explorer.reference import Reference
from kernel.testing.explorer.report import Exploration, Failure
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.trace import narrate
from kernel.testing.explorer.world import World
from kernel.testing.invariants import Broken

__all__ = ["Progress", "explore", "replay"]

Progress = Callable[[World, int, int, int], None]
"""Told of the world, states, transitions and depth, now and then."""

_ROOT = -1
_AT_REST = -1
_STAGES_KEPT = 200
_COLLECTED_EVERY = 500
"""Stages are circles of objects, and live long enough to be looked at seldom by themselves."""
_TOLD_EVERY = 2000


def replay(world: World, trace: Sequence[Event]) -> Stage:
    """The state at the end of a trace."""
    stage = Stage(world)
    for event in trace:
        stage.perform(event)
    return stage


@attrs.define(eq=False)
class _Nodes:
    """The states that were reached, how, and how far they are from the root.

    In arrays, so that a million of them are nothing to the garbage collector.
    """

    parents: "array[int]" = attrs.field(factory=lambda: array("i"))
    events: "array[int]" = attrs.field(factory=lambda: array("H"))
    depths: "array[int]" = attrs.field(factory=lambda: array("H"))
    fair: "array[int]" = attrs.field(factory=lambda: array("i"))
    """Where the first thing that happens by itself leads; ``_AT_REST`` when there is none."""
    _numbers: dict[Event, int] = attrs.field(factory=dict[Event, int])
    _by_number: list[Event] = attrs.field(factory=list[Event])

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, parent: int, event: Event | None) -> int:
        """Add a state; returns its number."""
        number = len(self.parents)
        self.parents.append(parent)
        self.depths.append(0 if parent == _ROOT else self.depths[parent] + 1)
        self.events.append(0 if event is None else self._number(event))
        self.fair.append(_AT_REST)
        return number

    def trace(self, number: int) -> list[Event]:
        """How a state was reached."""
        events: list[Event] = []
        while self.parents[number] != _ROOT:
            events.append(self._by_number[self.events[number]])
            number = self.parents[number]
        return events[::-1]

    def _number(self, event: Event) -> int:
        number = self._numbers.get(event)
        if number is None:
            number = self._numbers[event] = len(self._by_number)
            self._by_number.append(event)
        return number


@attrs.define(eq=False)
class _Search:
    world: World
    checker: Checker
    stop_early: bool
    max_states: int
    progress: Progress | None = None
    nodes: _Nodes = attrs.field(factory=_Nodes)
    known: dict[bytes, int] = attrs.field(factory=dict[bytes, int])
    stages: dict[int, Stage] = attrs.field(factory=dict[int, Stage])
    """Stages of states that have yet to be looked at: each saves the replay of its trace."""
    broken: set[int] = attrs.field(factory=set[int])
    """States in which something does not hold; what comes after them says nothing more."""
    transitions: int = 0
    seen: Counter[str] = attrs.field(factory=Counter[str])
    failures: list[Failure] = attrs.field(factory=list[Failure])
    failed: set[str] = attrs.field(factory=set[str])

    @property
    def is_over(self) -> bool:
        return self.stop_early and bool(self.failures)

    def run(self) -> None:
        root = Stage(self.world)
        self._add(root, digest(root), _ROOT, None)
        root.close()
        for number in count():
            if number == len(self.nodes) or self.is_over:
                break
            self._expand(number)
            if not number % _COLLECTED_EVERY:
                gc.collect()
            if self.progress is not None and not number % _TOLD_EVERY:
                depth = self.nodes.depths[number]
                self.progress(self.world, len(self.nodes), self.transitions, depth)
        if not self.is_over and self.is_complete:
            self._find_livelocks()

    @property
    def is_complete(self) -> bool:
        return len(self.nodes) < self.max_states

    def _expand(self, number: int) -> None:
        if number in self.broken:
            return
        trace = self.nodes.trace(number)
        here = self.stages.pop(number, None) or replay(self.world, trace)
        goes_on = progress(here)
        beside = list(extras(here))
        may_crash = "crash" in self.world.faults and may_fault(here)
        is_stopped = here.core.audit is not None
        if not goes_on:
            self._fail(trace, self.checker.rest(here))
        stage: Stage | None = here  # The first event may happen to it, and saves one replay.
        for event in [*goes_on, *beside]:
            child, moments = self._step(number, trace, event, stage)
            stage = None
            if goes_on and event is goes_on[0]:
                self.nodes.fair[number] = child
            if may_crash and event.kind == "deliver" and self._is_victim(event):
                for moment in range(moments):
                    self._step(number, trace, Event("crash", event.who, moment))
            if self.is_over:
                return
        if (self.world.stops or not goes_on) and not is_stopped:
            self._stop(trace, stage)

    def _is_victim(self, event: Event) -> bool:
        return event.who.partition(":")[0] in self.world.victims

    def _step(
        self, parent: int, trace: list[Event], event: Event, stage: Stage | None = None
    ) -> tuple[int, int]:
        """Take one transition; returns the state it leads to, and the moments of its handler."""
        if stage is None:
            stage = replay(self.world, trace)
        self.transitions += 1
        stage.watches = "crash" in self.world.faults
        try:
            judged = Before.of(stage, event)
            sight = sightings.before(stage, event)
            stage.perform(event)
            self.seen.update(set(sightings.after(stage, event, sight)))
            self._fail([*trace, event], self.checker.transition(stage, event, judged))
            child = self._add(stage, digest(stage), parent, event)
        except Exception as error:
            # Out of the kernel, or out of a look at it: its state makes no sense any more.
            self._fail([*trace, event], [Broken("the kernel raises nothing", repr(error))])
            return parent, 0
        moments = len(stage.planter.moments)
        if self.stages.get(child) is not stage:
            stage.close()
        return child, moments

    def _stop(self, trace: list[Event], stage: Stage | None) -> None:
        """Stop the engine in this state, and let the device end what it still has."""
        event = Event("stop")
        if stage is None:
            stage = replay(self.world, trace)
        sight = sightings.before(stage, event)
        self.transitions += 1
        try:
            stage.perform(event)
            broken = list(self.checker.end(stage))
            while stage.device.held:
                stage.device.end(stage.device.held[0], "done")
            broken += self.checker.state(stage)
        except Exception as error:
            broken = [Broken("the kernel raises nothing", repr(error))]
        self.seen.update(set(sightings.after(stage, event, sight)))
        self._fail([*trace, event], broken)
        stage.close()

    def _add(self, stage: Stage, key: bytes, parent: int, event: Event | None) -> int:
        known = self.known.get(key)
        if known is not None:
            return known
        if len(self.nodes) >= self.max_states:
            return parent
        number = self.known[key] = self.nodes.add(parent, event)
        broken = list(self.checker.state(stage))
        if broken:
            self.broken.add(number)
            self._fail(self.nodes.trace(number), broken)
        elif parent != _ROOT and len(self.stages) < _STAGES_KEPT:
            self.stages[number] = stage
        return number

    def _fail(self, trace: list[Event], broken: Iterator[Broken] | list[Broken]) -> None:
        """Keep the shortest trace to each property; breadth first, that is the first one."""
        for one in broken:
            if one.property in self.failed:
                continue
            self.failed.add(one.property)
            told = narrate(self.world, trace)
            self.failures.append(
                Failure(self.world.name, one.property, one.message, tuple(trace), told)
            )

    def _find_livelocks(self) -> None:
        """From each state what happens by itself must come to an end."""
        fair = self.nodes.fair
        ends = [after == _AT_REST for after in fair]
        for start in range(len(self.nodes)):
            path: list[int] = []
            on_path: set[int] = set()
            at = start
            while not ends[at]:
                if at in on_path:
                    message = "what happens by itself goes round in a circle"
                    self._fail(self.nodes.trace(at), [Broken("everything comes to rest", message)])
                    break
                on_path.add(at)
                path.append(at)
                at = fair[at]
            for place in path:
                ends[place] = True


def explore(
    world: World,
    *,
    max_states: int | None = None,
    stop_early: bool = False,
    progress: Progress | None = None,
) -> Exploration:
    """Walk every order of everything in a world.

    Args:
        world: what to explore.
        max_states: end as incomplete beyond so many; the world's own bound by default.
        stop_early: end at the first property that is broken.
        progress: told how far it is, now and then.
    """
    begun = time.perf_counter()
    checker = Checker(Reference(open_inner(world.model), world.config.page_size))
    search = _Search(world, checker, stop_early, max_states or world.max_states, progress)
    thresholds = gc.get_threshold()
    gc.set_threshold(5000, 20, 1000)
    try:
        search.run()
    finally:
        gc.set_threshold(*thresholds)
    for stage in search.stages.values():
        stage.close()
    return Exploration(
        world=world.name,
        states=len(search.nodes),
        transitions=search.transitions,
        depth=max(search.nodes.depths),
        seconds=time.perf_counter() - begun,
        is_complete=search.is_complete,
        failures=tuple(search.failures),
        sometimes=dict(search.seen),
        unmet=tuple(name for name in world.expects if not search.seen[name]),
    )
