"""Makes the tape of a failing run shorter and plainer, and keeps what kind of failure it is.

As hypothesis does: first whole tracks are blanked, then chunks of them are set to 0 or deleted,
from large to small, then single decisions are lowered. A candidate stands when its run still ends
in a failure of the same kind; what that run has really decided is the new tape.
"""

from collections.abc import Callable, Sequence

import attrs

from kernel.testing.simulation.runner import MAX_STEPS, Outcome, Scenario, replay, replay_twice
from kernel.testing.simulation.scenario import kernel_scenario
from kernel.testing.simulation.tape import Tape

__all__ = ["shrink"]

_MOST_RUNS = 500


def shrink(
    outcome: Outcome,
    scenario: Scenario = kernel_scenario,
    *,
    max_steps: int = MAX_STEPS,
    most_runs: int = _MOST_RUNS,
    on_progress: Callable[[Tape], object] = lambda _: None,
) -> Outcome:
    """The plainest run found that fails in the same way; at worst the one that was given.

    Args:
        outcome: of the failing run.
        scenario: what was run.
        max_steps: of a run, as when it failed.
        most_runs: how many candidates to try.
        on_progress: called with each better tape.
    """
    if outcome.failure is None:
        return outcome
    shrinker = _Shrinker(outcome, scenario, max_steps, most_runs, on_progress)
    shrinker.run()
    return shrinker.best


@attrs.define(eq=False)
class _Shrinker:
    best: Outcome
    _scenario: Scenario
    _max_steps: int
    _runs_left: int
    _on_progress: Callable[[Tape], object]

    def run(self) -> None:
        before: Tape | None = None
        while before is not self.best.tape and self._runs_left:
            before = self.best.tape
            for name in list(self.best.tape.tracks):
                self._try(name, [])
            size = max(map(len, self.best.tape.tracks.values()), default=0)
            while size and self._runs_left:
                for name in list(self.best.tape.tracks):
                    self._cut_chunks(name, size)
                size //= 2
            for name in list(self.best.tape.tracks):
                self._lower(name)

    def _track(self, name: str) -> Sequence[int]:
        return self.best.tape.tracks.get(name, ())

    def _cut_chunks(self, name: str, size: int) -> None:
        start = 0
        while start + size <= len(track := self._track(name)):
            head, chunk, tail = track[:start], track[start : start + size], track[start + size :]
            if self._try(name, [*head, *tail]):
                continue
            if any(chunk):
                self._try(name, [*head, *[0] * size, *tail])
            start += size

    def _lower(self, name: str) -> None:
        place = 0
        while place < len(track := self._track(name)):
            value = track[place]
            head, tail = track[:place], track[place + 1 :]
            lower = [] if value < 2 else [value // 2, value - 1]
            if not any(self._try(name, [*head, less, *tail]) for less in lower):
                place += 1

    def _try(self, name: str, track: Sequence[int]) -> bool:
        """Run the best tape with another track; keep it if it is plainer and fails alike."""
        best, failure = self.best, self.best.failure
        if failure is None or not self._runs_left or list(self._track(name)) == list(track):
            return False
        self._runs_left -= 1
        run = replay_twice if failure.kind == "determinism" else replay
        tape = attrs.evolve(best.tape, tracks={**best.tape.tracks, name: track})
        tried = run(tape, self._scenario, max_steps=self._max_steps)
        is_alike = tried.failure is not None and tried.failure.kind == failure.kind
        if not is_alike or _cost(tried.tape) >= _cost(best.tape):
            return False
        self.best = tried
        self._on_progress(tried.tape)
        return True


def _cost(tape: Tape) -> tuple[int, int, int]:
    """Fewer decisions that say anything, then fewer at all, then smaller ones."""
    values = [value for track in tape.tracks.values() for value in track]
    return sum(map(bool, values)), len(values), sum(values)
