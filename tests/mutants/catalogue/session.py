"""Bugs in the session: what becomes of its turns, its log and its states."""

from tests.mutants.mutant import Mutant

_ACTOR = "kernel/session.py"
_INTERRUPTS = "kernel/session_interrupts.py"
_STATE = "kernel/session_state.py"
_KEPT = "kernel/kept_states.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "verb-sent-not-called",
        "A verb is a call inside the handler, and never under way.",
        _ACTOR,
        "        self.state.close()\n",
        "        self.system.call_at(self.system.now() + 1, self.state.close)\n",
        rule="4.1 verbs are calls",
    ),
    Mutant(
        "close-gives-nothing-back",
        "Closing a session gives back what it holds.",
        _ACTOR,
        "        self.state.close()\n",
        "",
        rule="close without reclaim",
    ),
    Mutant(
        "late-claim-committed",
        "A claim that comes after its turn was cancelled is no part of the next turn.",
        _ACTOR,
        "        active = self.active\n"
        "        if active is None or active.id != message.turn:\n"
        "            self._roll_back_late(message.claim)",
        "        active = self.active\n"
        "        if active is None:\n"
        "            self._roll_back_late(message.claim)",
        rule="5 late is rolled back",
    ),
    Mutant(
        "late-claim-leaked",
        "A claim that comes after its turn was cancelled is rolled back.",
        _ACTOR,
        "        self.state.roll_back(claim)\n",
        "",
        rule="5 late is rolled back",
    ),
    Mutant(
        "late-claim-wakes-nobody",
        "A late rollback frees room, so it wakes the scheduler.",
        _ACTOR,
        "        self.state.roll_back(claim)\n        self._tell_scheduler(Rested())",
        "        self.state.roll_back(claim)",
        rule="7 wake-up",
    ),
    Mutant(
        "end-wakes-nobody",
        "A session that comes to rest wakes the scheduler: its state can be asked for now.",
        _ACTOR,
        "        self._tell_scheduler(Rested())\n        if self._starts_waiting:",
        "        if self._starts_waiting:",
        rule="7 wake-up",
    ),
    Mutant(
        "close-wakes-nobody",
        "A closed session has freed its memory, so it wakes the scheduler.",
        _ACTOR,
        "        self._home.on_end(self.session_id)\n        self._tell_scheduler(Rested())",
        "        self._home.on_end(self.session_id)",
        rule="7 wake-up",
    ),
    Mutant(
        "down-wakes-nobody",
        "A session that has handled a scheduler's death wakes the new one.",
        _ACTOR,
        '            self._conclude(TurnEnd("error", 0, error=fault))\n'
        "        self._tell_scheduler(Rested())",
        '            self._conclude(TurnEnd("error", 0, error=fault))',
        rule="6 down wakes the scheduler",
    ),
    Mutant(
        "down-ignored",
        "A turn whose scheduler has died fails.",
        _ACTOR,
        "active.scheduler_incarnation == message.incarnation:",
        "active.scheduler_incarnation > message.incarnation:",
        rule="6 death is told",
    ),
    Mutant(
        "interrupt-beats-cancel",
        "A turn that was interrupted and is then cancelled is cancelled.",
        _ACTOR,
        "        if active is not None and active.id == message.turn:\n"
        "            self._tell_scheduler(Cancel",
        "        if active is not None and active.id == message.turn"
        " and not active.is_interrupted:\n"
        "            self._tell_scheduler(Cancel",
        rule="6 cancel beats interrupt",
    ),
    Mutant(
        "larger-keep-wins",
        "Of what a turn says and what an interrupt accepted, the smaller is kept.",
        "kernel/active_turn.py",
        "        if self.keep is not None and self.keep < kept:",
        "        if self.keep is not None and self.keep > kept:",
        rule="5 smaller keep",
    ),
    Mutant(
        "late-interrupt-hits-the-next-turn",
        "A late interrupt cuts the turn that it names, or none.",
        _INTERRUPTS,
        " and active is None and turn in (None, last.id):",
        " and active is None:",
        rule="5 too late",
    ),
    Mutant(
        "state-beyond-the-log-committed",
        "The log always ends with a token that the state has not absorbed.",
        _STATE,
        "        if not 0 < position <= len(self.log) - 1:",
        "        if not 0 < position <= len(self.log):",
        rule="position <= length - 1",
    ),
    Mutant(
        "log-not-extended",
        "A turn's tokens are in the log.",
        _STATE,
        "        self.extend(request.output.tokens[:kept])",
        "        self.extend(request.output.tokens[:0])",
        rule="the log is the truth",
    ),
    Mutant(
        "kept-not-cut",
        "What was not kept is not in the log.",
        _STATE,
        "        self.extend(request.output.tokens[:kept])",
        "        self.extend(request.output.tokens)",
        rule="interrupt(keep=n) is exact",
    ),
    Mutant(
        "checkpoint-kept-for-ever",
        "A checkpoint goes when the next turn begins.",
        _ACTOR,
        "        if self.state.drop_checkpoint():",
        "        if not self.turns and self.state.drop_checkpoint():",
        rule="a checkpoint costs one turn, not two slots",
    ),
    Mutant(
        "given-up-and-kept",
        "A state that was given up is closed.",
        _KEPT,
        "version=NO_STATE)\n        self._port.close(self.kept.pop(version))\n",
        "version=NO_STATE)\n        del self.kept[version]\n",
        rule="idle sessions never pin the engine",
    ),
    Mutant(
        "ask-not-answered",
        "A session answers every ask, also when there is nothing to give.",
        _ACTOR,
        "                moved = self.state.give_up(message.base)\n"
        "                self._tell_scheduler(GaveUp(message.base, moved))",
        "                if moved := self.state.give_up(message.base):\n"
        "                    self._tell_scheduler(GaveUp(message.base, moved))",
        rule="7 asks are answered once",
    ),
    Mutant(
        "ask-of-the-closed-not-answered",
        "An ask that a closed session can't read any more is answered for it.",
        _ACTOR,
        "        elif isinstance(message, GiveUp):\n"
        "            self._tell_scheduler(GaveUp(message.base, moved=False))",
        "        elif isinstance(message, GiveUp):\n            return",
        rule="7 asks are answered once",
    ),
    Mutant(
        "cancel-not-passed-on",
        "The scheduler is told of each cancel.",
        _ACTOR,
        "            self._tell_scheduler(Cancel(message.turn))\n"
        "            self._conclude(cancelled_end",
        "            self._conclude(cancelled_end",
        rule="a cancelled turn gives its memory back",
    ),
    Mutant(
        "close-leaves-the-turn-running",
        "Closing a session forgets the turn that runs.",
        _ACTOR,
        "            self._tell_scheduler(Cancel(active.id))\n",
        "",
        rule="5 late is rolled back",
    ),
    Mutant(
        "two-turns-at-once",
        "A session runs one turn, and a second one disturbs nothing.",
        _ACTOR,
        "            self.waiting.turn_away(request, busy)",
        "            self._start(request)",
        rule="one active turn per session",
    ),
    Mutant(
        "interrupt-reply-dropped",
        "An interrupt is answered when its turn ends.",
        "kernel/active_turn.py",
        "                reply.answer(end.kept)",
        "                reply.answer",
        rule="reply dropped",
    ),
    Mutant(
        "turn-deadline-never-armed",
        "A turn ends at its deadline.",
        "kernel/deadlines.py",
        '            self._arm(request.id, "timeout", submitted + request.timeout_s)',
        "            return",
        rule="deadline never armed",
    ),
    Mutant(
        "idle-alarm-of-an-earlier-rest",
        "A session is forgotten when it has been idle for so long, and not before.",
        "kernel/deadlines.py",
        "        return rest == self._rests",
        "        return rest <= self._rests",
        rule="the idle clock runs only while no turn is live",
    ),
    Mutant(
        "dead-session-tells-nobody",
        "The callers of a session that died are told that it is lost.",
        _ACTOR,
        '            active.settle(TurnEnd("error", 0, error=lost))',
        "            active.interrupts.clear()",
        rule="6 whoever waits is answered",
    ),
    Mutant(
        "queued-turn-dies-unheard",
        "A session that dies while it starts a queued turn tells the caller of that turn.",
        "kernel/active_turn.py",
        "            self.request.accepted.fail(end.error)\n",
        "            pass\n",
        rule="6 whoever waits is answered",
    ),
    Mutant(
        "fork-starts-from-nothing",
        "A fork's first turn names its parent's state as its base.",
        _STATE,
        "            return self.inherited\n        return ZEROS",
        "            return ZEROS\n        return ZEROS",
        rule="6 whoever waits is answered",
    ),
    Mutant(
        "fork-writes-its-parents-log",
        "A fork has a log of its own.",
        _STATE,
        "        self.log = parent.log[:]",
        "        self.log = parent.log",
        rule="a fork and its parent go their own ways",
    ),
]
