"""Bugs in what makes room: copies into host memory, preempted turns, windows that slide."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_PARKING = "kernel/scheduling/parking.py"
_WORKLOAD = "kernel/scheduling/workload.py"
_ROOM = "kernel/scheduling/room.py"
_ADMISSION = "kernel/scheduling/admission.py"
_SLIDING = "kernel/sliding.py"
_SCHEDULER = "kernel/scheduling/scheduler.py"

_COPIES = "tests/pressure/test_parking.py::test_"
_TURNS = "tests/pressure/test_preempted_turns.py::test_"
_WINDOWS = "tests/pressure/test_sliding.py::test_"

MUTANTS: list[Mutant] = [
    Mutant(
        "refused-copy-waits",
        "A copy that is refused is not waited for: the next tier is asked.",
        _ADMISSION,
        "        if not is_parked:\n            parking.ask(base)\n",
        "",
        rule="7 copies have no rank",
        near=(_COPIES + "without_room_in_host_memory_a_state_gives_way_to_its_log",),
    ),
    Mutant(
        "failed-copy-is-handed-over",
        "A copy that failed is rolled back, and the state goes to the next tier.",
        _PARKING,
        "            if isinstance(errand, ReadState) or why:\n",
        "            if isinstance(errand, ReadState):\n",
        rule="what was not copied is never used",
        near=(_COPIES + "a_copy_that_fails_leaves_the_log",),
    ),
    Mutant(
        "failed-park-asks-nobody",
        "A state whose copy failed has to go all the same: its session is asked.",
        _PARKING,
        "            self.ask(errand.base)\n\n    def ask",
        "            pass\n\n    def ask",
        rule="7 copies have no rank",
        near=(_COPIES + "a_copy_that_fails_leaves_the_log",),
    ),
    Mutant(
        "copy-kept-for-an-ended-turn",
        "A copy of a turn that has ended meanwhile goes back.",
        _PARKING,
        "            elif errand.turn.state is TurnState.PARKING:\n",
        "            elif errand.turn.state is not TurnState.WAITING:\n",
        rule="5 own host claim",
        near=(
            _TURNS + "a_cancelled_turn_gives_back_all_that_it_has",
            _TURNS + "a_dead_session_leaves_nothing_of_its_turn",
        ),
    ),
    Mutant(
        "dead-pools-copy-is-given-up",
        "A state that a hanging copy pins is never asked for.",
        _PARKING,
        "                self._gave_up(errand.base)\n            else:\n",
        "                self.ask(errand.base)\n            else:\n",
        rule="6 quarantine is not asked",
        near=(_COPIES + "a_pool_that_dies_with_a_copy_leaves_the_state_with_its_session",),
    ),
    Mutant(
        "dead-pools-copy-is-unanswered",
        "Every ask is answered exactly once, also when the pool dies.",
        _PARKING,
        "                self._gave_up(errand.base)\n            else:\n",
        "                pass\n            else:\n",
        rule="7 asks are answered once",
        near=(_COPIES + "a_pool_that_dies_with_a_copy_leaves_the_state_with_its_session",),
    ),
    Mutant(
        "waited-for-state-leaves-host-memory",
        "A state that a turn waits to start from stays in host memory.",
        _PARKING,
        "            if is_free and base not in wanted and base not in self.asked:\n",
        "            if is_free and base not in self.asked:\n",
        rule="a state that is wanted stays",
        near=(_COPIES + "a_state_that_a_turn_waits_to_start_from_stays_in_host_memory",),
    ),
    Mutant(
        "host-never-makes-room",
        "Host memory is kept free for what leaves the device next.",
        _SCHEDULER,
        "            self.parking.make_host_room({turn.base for turn in self._work.roster})\n",
        "",
        rule="least recently committed goes first",
        near=(_COPIES + "the_least_recently_committed_state_makes_room_in_host_memory",),
    ),
    Mutant(
        "unlanded-state-parked",
        "A turn whose first step has not landed has no state to park.",
        _PARKING,
        "        if not turn.has_landed or not turn.position:\n",
        "        if not turn.position:\n",
        rule="what was not computed is never copied",
        near=(
            "tests/pressure/test_preempted_turns.py",
            _WINDOWS + "preempted_at_every_point_it_goes_on_alike",
        ),
    ),
    Mutant(
        "cancel-keeps-the-host-claim",
        "A cancelled turn gives back its claim in host memory, too.",
        _WORKLOAD,
        "        self.parking.give_back_parked(turn)\n        if claim is not None:\n",
        "        if claim is not None:\n",
        rule="5 own host claim",
        near=(_TURNS + "a_cancelled_turn_gives_back_all_that_it_has",),
    ),
    Mutant(
        "landing-keeps-the-host-claim",
        "Once a turn's state is on the device again, its claim in host memory goes back.",
        "kernel/scheduling/row_judge.py",
        "        turn.has_landed = True\n        self._parking.give_back_parked(turn)\n",
        "        turn.has_landed = True\n",
        rule="5 own host claim",
        near=(_TURNS + "a_preempted_turn_computes_nothing_again",),
    ),
    Mutant(
        "interrupt-forgets-the-host-claim",
        "An interrupted turn that waits with its state ends with it.",
        "kernel/scheduling/row_judge.py",
        "        elif not self._work.finish_parked(turn, reason, kept):\n",
        "        else:\n",
        rule="5 own host claim",
        near=(_TURNS + "an_interrupted_turn_ends_with_its_state_wherever_that_is",),
    ),
    Mutant(
        "interrupt-leaves-the-unfilled-claim",
        "A turn that was admitted again has two claims, and both leave.",
        _WORKLOAD,
        "        self._roll_back(turn)  # admitted again, but its state has not been copied yet\n",
        "",
        rule="5 own host claim",
        near=(_TURNS + "a_turn_that_was_admitted_again_and_has_no_row_yet_has_two_claims",),
    ),
    Mutant(
        "copies-are-not-counted-on",
        "What is on its way to host memory is coming back: nobody else is asked for it.",
        _ROOM,
        "            gain.claim(claims[leaving.id])\n",
        "            pass\n",
        rule="7 all moves together",
        near=(_TURNS + "what_is_on_its_way_to_host_memory_is_counted_on",),
    ),
    Mutant(
        "parked-turn-starts-over",
        "A preempted turn that waits with its state starts from that.",
        _ADMISSION,
        "        if turn.id in parked:\n            claim = port",
        "        if turn.id in ():\n            claim = port",
        rule="preempted turns keep their state",
        near=(_TURNS + "a_preempted_turn_computes_nothing_again",),
    ),
    Mutant(
        "slide-undone-half",
        "A turn that is preempted while it slides has the state that it slid from.",
        _WORKLOAD,
        "        if turn.is_sliding:\n            self._undo_slide(turn)\n",
        "",
        rule="preempted turns keep their state",
        near=(_WINDOWS + "preempted_before_its_slide_was_copied_it_keeps_nothing_on_the_device",),
    ),
    Mutant(
        "slide-forgets-what-was-dropped",
        "A turn that was admitted again knows which pages it has dropped.",
        _ADMISSION,
        "        turn.first_page = need.first_page\n        turn.is_sliding = False\n",
        "        turn.is_sliding = False\n",
        rule="what was dropped is dropped everywhere",
        near=(_WINDOWS + "preempted_at_every_point_it_goes_on_alike",),
    ),
    Mutant(
        "window-depends-on-the-chunk",
        "Chunks end where pages are dropped.",
        "kernel/turn.py",
        "        return Need(min(known, self.window.end(position)), first)\n",
        "        return Need(min(known, self.window.end(position) + 4), first)\n",
        rule="a window is a function of the position",
        near=(
            _WINDOWS + "the_schedule_keeps_at_most_a_window_and_drops_whole_pages",
            _WINDOWS + "a_session_of_twenty_windows_goes_on",
            _WINDOWS + "a_prompt_many_windows_long_is_absorbed",
        ),
    ),
    Mutant(
        "window-slides-a-page-late",
        "What is dropped is a function of the position, and never more than a window is kept.",
        _SLIDING,
        "        if position < self.length:\n            return 0\n",
        "        if position <= self.length:\n            return 0\n",
        rule="a window is a function of the position",
        near=(_WINDOWS + "the_schedule_keeps_at_most_a_window_and_drops_whole_pages",),
    ),
    Mutant(
        "fork-forgets-to-slide",
        "A fork has its parent's policy.",
        "kernel/sessions/state.py",
        "        self.slides = parent.slides\n",
        "",
        rule="a fork and its parent go their own ways",
        near=(_WINDOWS + "a_fork_goes_on_alike",),
    ),
    Mutant(
        "one-slot-slides",
        "A session slides from one slot into another.",
        _SLIDING,
        "    if limits.num_slots == 1:\n",
        "    if limits.num_slots == 0:\n",
        rule="a turn that can never fit is refused",
        near=(_WINDOWS + "pools_that_are_too_small_to_slide_are_refused",),
    ),
]
