"""Planted bugs of the museum's scenarios: in room, order, limits and time."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    Mutant(
        "closing-door-stays-open",
        "An engine that drains takes no new work.",
        "kernel/engine/engine.py",
        "        core.close_door(core.failure)\n",
        "",
        rule="stop order: the door first",
    ),
    Mutant(
        "pages-for-a-model-without",
        "Pools that the model has no use for are refused when the engine is opened.",
        "kernel/memory/plan.py",
        "    if given and not used:\n",
        "    if False:\n",
    ),
    Mutant(
        "phase-guessed-from-the-output",
        "A turn decodes when one token is left to absorb, not when it has generated some.",
        "kernel/scheduling/batch.py",
        "if turn.position + 1 == known and turn.draws:",
        "if (turn.generated or turn.position + 1 == known) and turn.draws:",
    ),
    Mutant(
        "covered-one-page-too-far",
        "A turn knows exactly which positions its pages cover.",
        "kernel/scheduling/admission.py",
        "-(-need.positions // page) * page if has_pages",
        "(need.positions // page + 1) * page if has_pages",
    ),
    Mutant(
        "first-decode-row-invents-its-token",
        "A decode row absorbs the last known token of its own turn.",
        "kernel/scheduling/batch.py",
        "            tokens = new[-1:] or turn.tokens(known - 1, known)\n",
        "            tokens = new[-1:] or [1]\n",
    ),
    Mutant(
        "missing-base-counts-as-absorbed",
        "A turn's position is that of its claim, whatever it had hoped for.",
        "kernel/scheduling/admission.py",
        "        turn.position = self._view.position(claim)\n",
        "        turn.position = self._view.position(claim) or max(0, turn.history_len - 1)\n",
    ),
    Mutant(
        "juniors-keep-their-pages",
        "A turn that lacks room takes it from its juniors.",
        "kernel/scheduling/room.py",
        "        for junior in self._juniors(turn, claims):\n",
        "        for junior in list(self._juniors(turn, claims))[:0]:\n",
    ),
    Mutant(
        "limit-forgets-the-pool",
        "A turn that an empty pool can't hold is refused when it is submitted.",
        "kernel/engine/core_limits.py",
        "        max_len=pages if by_pages else resolved.max_model_len,\n",
        "        max_len=resolved.max_model_len,\n",
    ),
    Mutant(
        "resting-states-keep-their-room",
        "A state at rest is asked for when a turn lacks its room.",
        "kernel/scheduling/room.py",
        "        for base in () if wanted.has_memory(gain) else self._resting_for(turn):\n",
        "        for base in list(self._resting_for(turn))[:0]:\n",
        rule="idle sessions never pin the engine",
    ),
    Mutant(
        "prompt-reserved-by-the-page",
        "All pages of a prompt are reserved when its turn is admitted.",
        "kernel/scheduling/admission.py",
        "        need = self._need(turn)\n        port, parked",
        "        need = Need(min(turn.known_len, 4 * self._limits.page_size))\n"
        "        port, parked",
    ),
    Mutant(
        "door-never-full",
        "The number of turns that wait is bounded at the door.",
        "kernel/actors/door.py",
        "        if len(self._tokens_by_turn) >= self._max_reqs:\n",
        "        if not self._max_reqs:\n",
    ),
    Mutant(
        "returning-room-not-counted",
        "Room that was asked for and is not back yet is waited for.",
        "kernel/scheduling/room.py",
        "        if (self.asked or self._roster.parking) and wanted.is_met_by(gain, 0):\n",
        "        gain = self._view.simulate()\n        if False:\n",
    ),
    Mutant(
        "chunks-of-whole-pages",
        "A prefill takes what is left of the budget, were it one token.",
        "kernel/scheduling/batch.py",
        "        if size > 0:\n",
        "        whole = budget // limits.page_size * limits.page_size\n"
        "        size = min(size, whole)\n"
        "        if size > 0:\n",
    ),
    Mutant(
        "decode-rows-wait-behind-chunks",
        "Rows of one token come before the chunks of any senior.",
        "kernel/scheduling/batch.py",
        "        if turn.position + 1 == known and turn.draws:\n",
        "        if turn.position + 1 == known and turn.draws and not chunked:\n",
    ),
    Mutant(
        "prefill-counts-as-silence",
        "A stall deadline counts from the first output that lies unread.",
        "kernel/sessions/deadlines.py",
        "since = now if output.unread_since is None else output.unread_since",
        "since = output.submitted_at if output.unread_since is None else output.unread_since",
    ),
    Mutant(
        "dead-loop-tells-nobody",
        "Whatever ends the dispatcher's task, the engine is stopped and its callers are told.",
        "kernel/engine/shell.py",
        "            core.stop(join_timeout_s=self._join_timeout_s)\n",
        "            core.door.close()\n",
    ),
    Mutant(
        "resumed-at-the-former-position",
        "A resumed turn stands where its new claim stands.",
        "kernel/scheduling/admission.py",
        "        turn.position = self._view.position(claim)\n",
        "        turn.position = max(turn.absorbed_before * turn.was_admitted, "
        "self._view.position(claim))\n",
    ),
]
