"""Planted bugs of the museum's scenarios: in the lives and ends of turns."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "cancelled-turn-keeps-its-row",
        "A turn that has ended has no row in any later step.",
        "kernel/scheduling/roster.py",
        '"""Forget a turn."""\n        self._leave(turn)\n',
        '"""Forget a turn."""\n',
    ),
    Mutant(
        "cancel-lands-the-step-at-once",
        "A cancelled turn's claim stays with the device until its step is over.",
        "kernel/scheduling/scheduler.py",
        "            turn.cancelled = True\n",
        "            turn.cancelled = True\n"
        "            self._land(self.flight.lease, StepDone((None,) * len(self.flight.turns)))\n",
        rule="release waits for the device by construction",
    ),
    Mutant(
        "any-landing-is-the-flights",
        "A landing is judged by its own lease, however late it comes.",
        "kernel/scheduling/scheduler.py",
        "if flight is None or flight.lease is not lease:",
        "if flight is None:",
    ),
    Mutant(
        "closed-session-declines-nothing",
        "A session that closes rolls back a claim that was under way to it.",
        "kernel/sessions/session.py",
        "        if isinstance(message, TurnFinished | PhaseAbsorbed):\n",
        "        if isinstance(message, PhaseAbsorbed):\n",
    ),
    Mutant(
        "landing-by-the-roster",
        "A landing hands out its tokens by the step's own list of rows.",
        "kernel/scheduling/scheduler.py",
        "                flight.turns, flight.absorbs, report.tokens, strict=True\n",
        "                self._work.roster.running, flight.absorbs, report.tokens, strict=False\n",
    ),
    Mutant(
        "drop-takes-any-claim",
        "A dropped turn gives back its own claim.",
        "kernel/scheduling/workload.py",
        "        claim = self.claims.pop(turn.id, None)\n",
        "        claim = self.claims.pop(next(iter(self.claims), turn.id), None)\n",
    ),
    Mutant(
        "tokens-to-the-wrong-rows",
        "A token goes to the turn whose row drew it.",
        "kernel/scheduling/scheduler.py",
        "flight.turns, flight.absorbs, report.tokens, strict=True",
        "flight.turns, flight.absorbs, report.tokens[::-1], strict=True",
    ),
    Mutant(
        "one-turn-object-for-ever",
        "What belongs to one turn lives in an object of that turn.",
        "kernel/sessions/turn_starts.py",
        "        active = ActiveTurn(request)\n",
        "        active = vars(self._home.door).setdefault(self._name, ActiveTurn(request))\n",
    ),
    Mutant(
        "queued-turn-only-marked",
        "A cancel of a turn that waits takes it out of the queue.",
        "kernel/scheduling/scheduler.py",
        "        if turn.in_flight:\n            turn.cancelled = True\n",
        "        if turn.in_flight or turn.position == 0:\n            turn.cancelled = True\n",
    ),
    Mutant(
        "cancel-without-an-address",
        "A cancel ends the turn that it names, and no other.",
        "kernel/sessions/session.py",
        "        if active is not None and active.id == message.turn:\n"
        "            self._ends.cancel(message)",
        "        if active is not None:\n            self._ends.cancel(message)",
    ),
    Mutant(
        "cancel-of-a-waiting-turn-forgotten",
        "A turn that waits in its session can be cancelled there.",
        "kernel/sessions/turn_starts.py",
        "        if request is not None:\n            end = cancelled_end(",
        "        if request is not None and self._ends.active is None:\n"
        "            end = cancelled_end(",
    ),
    Mutant(
        "cancel-reset-by-the-landing",
        "A cancel of a turn in flight is remembered until its step has landed.",
        "kernel/scheduling/workload.py",
        "            turn.in_flight = False\n",
        "            turn.in_flight = turn.cancelled = False\n",
    ),
    Mutant(
        "closed-session-keeps-its-place",
        "A closed session is not counted as an open one.",
        "kernel/sessions/session.py",
        "        self.system.retire(self)\n        self._home.on_end(self.session_id)\n",
        "        self.system.retire(self)\n",
    ),
    Mutant(
        "batch-frozen-by-a-cancel",
        "A cancelled row costs the other rows of its step nothing.",
        "kernel/scheduling/scheduler.py",
        "        if flight is None or flight.lease is not lease:\n",
        "        if flight is None or any(turn.cancelled for turn in flight.turns):\n",
    ),
    Mutant(
        "prefill-outlives-its-client",
        "A cancelled prefill ends with the chunk that is under way.",
        "kernel/scheduling/row_judge.py",
        "        self._parking.give_back_parked(turn)\n        if turn.cancelled:\n",
        "        self._parking.give_back_parked(turn)\n"
        "        if turn.cancelled and token is not None:\n",
    ),
    Mutant(
        "failed-row-fails-nobody",
        "A turn whose step has failed ends with that failure.",
        "kernel/scheduling/row_judge.py",
        "        elif turn.state is not TurnState.ENDED:\n",
        "        elif turn.state is TurnState.WAITING:\n",
    ),
    Mutant(
        "first-token-stops-nothing",
        "A stop token ends a turn, also as its first.",
        "kernel/scheduling/row_judge.py",
        "turn.interrupt_reason is None and (is_stop or is_last or generated >= turn.max_tokens):",
        "turn.interrupt_reason is None and (\n"
        "            (is_stop and generated > 1) or generated >= turn.max_tokens\n"
        "        ):",
    ),
    Mutant(
        "failed-turn-ends-in-peace",
        "A failed turn raises to whoever reads it.",
        "kernel/sessions/turn_ends.py",
        "        if self.is_active(turn):\n"
        '            self.conclude(TurnEnd("error", 0, error=error))\n',
        '        if self.is_active(turn):\n            self.conclude(TurnEnd("stop", 0))\n',
    ),
    Mutant(
        "blocked-head-stops-the-step",
        "What runs goes on while the head of the queue has no room.",
        "kernel/scheduling/scheduler.py",
        "                    self._launch()\n",
        "                    self._work.roster.waiting or self._launch()\n",
    ),
    Mutant(
        "last-release-rides-on-the-next-batch",
        "A dropped turn gives its claim back at once, whoever else runs.",
        "kernel/scheduling/workload.py",
        "        if claim is not None:\n            self.port.rollback(claim)\n",
        "        if claim is not None and self.claims:\n            self.port.rollback(claim)\n",
    ),
    Mutant(
        "append-absorbs-the-last-token",
        "An append holds its last token back.",
        "kernel/turn.py",
        "            return self.known_len - 1\n",
        "            return self.known_len\n",
        rule="position <= length - 1",
    ),
    Mutant(
        "tick-asks-for-a-tick",
        "A tick that finds nothing to do is not followed by another.",
        "kernel/scheduling/scheduler.py",
        "                if not stranded:\n                    return\n",
        "",
    ),
    Mutant(
        "idle-close-acts-late",
        "An idle alarm closes a session only if it still rests when it is handled.",
        "kernel/sessions/session.py",
        "        if not self._deadlines.is_this_rest(message.rest) or self.active is not None:\n",
        "        if message.rest > message.rest:\n",
    ),
]
