"""Bugs in the prefix cache: what is found, what is kept, and what makes room for others."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CACHE = "kernel/prefixes/cache.py"
_TREE = "kernel/prefixes/tree.py"
_PREFIXES = "kernel/prefixes/turn_prefixes.py"
_PUBLISHING = "kernel/scheduling/publishing.py"
_ROOM = "kernel/scheduling/room.py"

_NEAR = (
    "tests/prefix_cache/test_prefix_tree.py",
    "tests/prefix_cache/test_prefix_cache.py",
    "tests/prefix_cache/test_publishing.py",
    "tests/prefix_cache/test_cache_room.py",
)
_NEAREST = "tests/prefix_cache/test_nearest_states.py::test_"

MUTANTS: list[Mutant] = [
    Mutant(
        "hit-leaves-nothing-to-compute",
        "A hit always leaves a token to compute.",
        _PREFIXES,
        "    last = turn.target - 1\n",
        "    last = turn.target\n",
        near=_NEAR,
    ),
    Mutant(
        "key-one-token-short",
        "A state is found by all of the tokens that it has absorbed.",
        _PREFIXES,
        "use.key(turn.position, turn.tokens), use.shares)",
        "use.key(turn.position - 1, turn.tokens), use.shares)",
        near=_NEAR,
    ),
    Mutant(
        "edges-compared-by-their-first-token",
        "Two sequences share what is equal, and no more.",
        _TREE,
        "    if key[at : at + high] == edge[:high]:\n",
        "    if key[at : at + TOKEN_BYTES] == edge[:TOKEN_BYTES]:\n",
        near=_NEAR,
    ),
    Mutant(
        "salts-share",
        "Nothing that stands under one salt is found under another.",
        "kernel/sessions/active_turn.py",
        "cache=CacheUse(state.cache_salt, request.cache_at)",
        'cache=CacheUse("", request.cache_at)',
        near=_NEAR,
    ),
    Mutant(
        "fork-forgets-the-salt",
        "A fork's history stays under its parent's salt.",
        "kernel/sessions/state.py",
        "        self.cache_salt = parent.cache_salt\n",
        "",
        near=_NEAR,
    ),
    Mutant(
        "session-state-passed-over",
        "A turn starts from its session's own state where there is one.",
        "kernel/scheduling/admission.py",
        "        is_newest = turn.base is not ZEROS and not turn.is_behind\n",
        "        is_newest = False\n",
        near=_NEAR,
    ),
    Mutant(
        "marks-passed-over",
        "A turn whose base is gone starts from the furthest mark's state that is left.",
        "kernel/scheduling/admission.py",
        "        turn.base = left[0] if left else ZEROS\n",
        "        turn.base = ZEROS\n",
        near=(_NEAREST + "the_furthest_mark_that_is_left_is_where_it_starts",),
    ),
    Mutant(
        "nearer-state-preferred",
        "Of a session's state that isn't its newest and a cached one the furthest is the base.",
        "kernel/scheduling/admission.py",
        "match.position > self._start(turn) else None",
        "match.position > 0 else None",
        near=(_NEAREST + "the_cache_is_asked_too_and_the_furthest_wins",),
    ),
    Mutant(
        "going-on-counts-as-landed",
        "The claim that a turn goes on with has no state before its first step.",
        _PUBLISHING,
        "    turn.has_landed = False\n",
        "",
        near=_NEAR,
    ),
    Mutant(
        "going-on-without-its-pages",
        "A turn that leaves a state keeps the pages of its whole prompt.",
        _PUBLISHING,
        "    work.port.grow(following, turn.need(turn.position))\n",
        "",
        near=_NEAR,
    ),
    Mutant(
        "copies-before-turns",
        "While a turn waits for room, nothing is evicted for a copy, which has no rank.",
        "kernel/scheduling/scheduler.py",
        "        may_evict = not self._work.is_short\n",
        "        may_evict = True\n",
        near=_NEAR,
    ),
    Mutant(
        "ends-before-turns",
        "While a turn waits for room, nothing is evicted for the end of another.",
        "kernel/scheduling/workload.py",
        "self.prefixes.wants_end(turn, may_evict=not self.is_short)",
        "self.prefixes.wants_end(turn)",
        near=_NEAR,
    ),
    Mutant(
        "sessions-go-before-the-cache",
        "Cached states go before any session is asked for its own.",
        _ROOM,
        "        asks = self._cached_for(own, wanted, gain)\n",
        "        asks: list[BaseName] = []\n",
        near=_NEAR,
    ),
    Mutant(
        "own-prefix-evicted-first",
        "The state that a turn would start from is the last to go for it.",
        _ROOM,
        "wanted.pages, spare=own)",
        "wanted.pages, spare=ZEROS)",
        near=_NEAR,
    ),
    Mutant(
        "pinned-states-are-chosen",
        "A state that is being copied gives no room: it would only drain.",
        _CACHE,
        "            if found is not None and not found.pinned:\n",
        "            if found is not None:\n",
        near=_NEAR,
    ),
    Mutant(
        "use-is-not-noted",
        "What was used longest ago goes first.",
        _CACHE,
        "                self.states[node.state] = self.states.pop(node.state)\n",
        "                pass\n",
        near=_NEAR,
    ),
    Mutant(
        "budget-not-kept",
        "Cached states take no more than their budget.",
        _CACHE,
        "books.bytes_left(stay) + books.bytes_of(position, shares) > books.sizes.budget:\n",
        "books.sizes.budget < 0:\n",
        near=_NEAR,
    ),
    Mutant(
        "shared-pages-lost-from-the-books",
        "Pages of an evicted state count for those that still share them.",
        "kernel/prefixes/cache_bytes.py",
        "            sharer.bytes = self.sizes.alone(sharer.position, shared)\n",
        "",
        near=_NEAR,
    ),
    Mutant(
        "split-at-the-wrong-position",
        "A node stands where its tokens end.",
        _TREE,
        "child.position - (len(edge) - common) // TOKEN_BYTES)",
        "child.position - common // TOKEN_BYTES)",
        near=_NEAR,
    ),
    Mutant(
        "pruned-branch-lost",
        "A node that is taken out hands on the one that it leads to.",
        _TREE,
        "    child.parent, child.edge = parent, node.edge + child.edge\n",
        "    child.parent = parent\n",
        near=_NEAR,
    ),
    Mutant(
        "slid-states-are-shared",
        "A state that depends on what was dropped serves nobody else.",
        _PREFIXES,
        "    return last if turn.window is None else min(last, turn.window.length - 1)\n",
        "    return last\n",
        near=_NEAR,
    ),
    Mutant(
        "scores-of-cached-tokens-missing",
        "Log-probabilities of a prompt are computed where they were asked for.",
        _PREFIXES,
        "            0, last if turn.prompt_logprobs is None else "
        "min(last, turn.first_scored(0) - 1)\n",
        "            0, last\n",
        near=_NEAR,
    ),
    Mutant(
        "cache-outlives-its-engine",
        "At the end nobody holds anything.",
        "kernel/engine/core.py",
        "        self.clear_cache(forever=True)\n",
        "",
        near=_NEAR,
    ),
    Mutant(
        "rows-run-past-wanted-positions",
        "A row ends where a state is wanted: no other step will be at that position.",
        "kernel/scheduling/batch.py",
        "        size = min(turn.cache.row_end(turn.position, end) - turn.position, budget)\n",
        "        size = min(end - turn.position, budget)\n",
        near=_NEAR,
    ),
    Mutant(
        "kept-end-is-an-interrupt",
        "A one-shot whose state is kept ends for the reason that it ended for.",
        "kernel/sessions/turn_ends.py",
        "            end = self.active.end_of(message.kept, message.reason, message.stop_token)\n"
        "            self.decide(end)\n",
        '            self.decide(self.active.end_of(message.kept, "interrupt", None))\n',
        near=_NEAR,
    ),
    Mutant(
        "salt-lost-in-the-store",
        "A session's history stays under its salt, wherever the session was meanwhile.",
        "kernel/sessions/identity.py",
        "        self._state.cache_salt = facts.cache_salt\n",
        "",
        near=_NEAR,
    ),
]
