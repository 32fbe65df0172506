"""What goes wrong in a run, and when: drawn ahead, so many steps from one fault to the next."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kernel.ids import GPU_POOL, SCHEDULER, STORE
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.observer import Crash

if TYPE_CHECKING:
    from kernel.testing.simulation.world import OpenWorld, World

__all__ = ["FaultKind", "Faults"]

FaultKind = Literal["cancel", "end", "clock", "device", "disk", "kill", "crash"]
"""``cancel``: a task that the scenario has started is cancelled natively; ``end``: any task,
those included that hold an engine or are the kernel's own; ``clock``: time jumps; ``device``: steps
are slow, fail, hang, or the device is lost; ``disk``: jobs of the store are slow, fail, hang, and
snapshots rot; ``kill``: an actor dies between two messages;
``crash``: inside a handler, before or after a post."""

_GAPS = (0, 1, 3, 8, 20, 45, 90, 160)
"""Steps to the next fault; 0: there is none any more."""
_JUMPS_S = (0.01, 0.2, 1.1, 7.0)
_VICTIMS = ("scheduler", "gpu-pool", "session", "store")


class Faults:
    """The faults of one run; none until :meth:`begin`."""

    def __init__(self, world: "World", track: Track) -> None:
        self._world = world
        self._track = track
        self._kinds: Sequence[FaultKind] = ()
        self._left = 0
        self.device = False
        """Whether steps may be slow, fail, hang, or lose the device."""
        self.disk = False
        """Whether the store may be slow, full, hang, or damage snapshots."""

    def begin(self, *kinds: FaultKind) -> None:
        """Let such faults happen from now on."""
        self.device, self.disk = "device" in kinds, "disk" in kinds
        self._kinds = [kind for kind in kinds if kind not in ("device", "disk")]
        self._plan_next()

    def stop(self) -> None:
        """No more faults; whatever hangs goes on."""
        self.device = self.disk = False
        self._kinds = ()
        self._left = 0
        for opened in self._world.opened:
            opened.device.hurry()
            opened.files.hurry()
            opened.observer.disarm()

    def on_step(self) -> None:
        """One step goes by."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._strike()
                self._plan_next()

    def _plan_next(self) -> None:
        self._left = _GAPS[self._track.draw(len(_GAPS))] if self._kinds else 0

    def _strike(self) -> None:
        world, track = self._world, self._track
        kind = self._kinds[track.draw(len(self._kinds))]
        if kind in ("cancel", "end"):
            self._cancel(kind)
        elif kind == "clock":
            seconds = track.pick(_JUMPS_S)
            self._note("clock jump", seconds)
            world.timeline.advance(seconds)
        elif living := [opened for opened in world.opened if not opened.is_over]:
            opened = living[track.draw(len(living))]
            if kind == "kill":
                self._kill(opened)
            else:
                what, moment = track.pick(_VICTIMS), track.draw(40)
                self._note("crash planted", f"{what} at moment {moment}")
                opened.observer.arm(what, moment)

    def _cancel(self, kind: FaultKind) -> None:
        world, track = self._world, self._track
        victims = world.timeline.victims()
        if kind == "cancel":
            ours = {job.name for job in world.jobs if job not in world.holders}
            victims = [victim for victim in victims if victim[0] in ours]
        if victims:
            name, kill = victims[track.draw(len(victims))]
            self._note("native cancel", name)
            kill()

    def _kill(self, opened: "OpenWorld") -> None:
        core = opened.engine.core
        sessions = [actor.name for actor in core.sessions.values()]
        names = [SCHEDULER, GPU_POOL, *sessions]
        if core.stored is not None:
            names.append(STORE)
        name = names[self._track.draw(len(names))]
        if core.dispatcher.actor(name) is None:
            return  # It is down already: waiting to be restarted, or given up.
        self._note("kill", name)
        opened.observer.expect_death(name)
        core.dispatcher.kill(name, Crash("killed"))

    def _note(self, what: str, whom: object) -> None:
        world = self._world
        world.seen[what] += 1
        if world.log is not None:
            world.log.append(("fault", what, whom))
