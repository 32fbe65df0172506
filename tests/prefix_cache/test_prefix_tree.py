"""The tree finds what stands in it, at exact positions, and nothing else."""

import random
from array import array
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.prefixes.tree import Node, PrefixTree, key_of

SALTS = ("", "a")
Sequences = Sequence[tuple[str, tuple[int, ...]]]

sequences = st.lists(
    st.tuples(st.sampled_from(SALTS), st.lists(st.integers(0, 2), min_size=1, max_size=7)),
    max_size=24,
).map(lambda many: [(salt, tuple(tokens)) for salt, tokens in many])


def put(tree: PrefixTree, salt: str, tokens: Sequence[int], state: int) -> Node:
    node = tree.place(salt, key_of(tokens))
    node.state = state
    return node


def nodes(tree: PrefixTree) -> Iterator[Node]:
    open_nodes = [tree.roots[salt] for salt in SALTS if salt in tree.roots]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        open_nodes += node.children.values()


def common(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


@given(sequences, sequences, st.randoms(use_true_random=False))
def test_a_tree_answers_as_a_list_of_all_sequences_does(
    stored: Sequences, removed: Sequences, rng: random.Random
) -> None:
    """Every state that a sequence begins with, in order, and how far it goes with any of them."""
    tree = PrefixTree()
    model: dict[tuple[str, tuple[int, ...]], int] = {}
    for number, (salt, tokens) in enumerate(stored):
        assert put(tree, salt, tokens, number).position == len(tokens)
        model[salt, tokens] = number
    for salt, tokens in (*removed, *stored[::2]):
        if (salt, tokens) in model:
            del model[salt, tokens]
            node = tree.place(salt, key_of(tokens))
            node.state = None
            tree.prune(salt, node)

    for _ in range(12):
        salt = rng.choice(SALTS)
        asked = [rng.randrange(3) for _ in range(rng.randrange(9))]
        limit = rng.randrange(len(asked) + 1)
        walk = tree.walk(salt, key_of(asked), limit)
        known = {tokens: state for (name, tokens), state in model.items() if name == salt}
        begins = [tuple(asked[:n]) for n in range(1, limit + 1) if tuple(asked[:n]) in known]
        assert [node.state for node in walk.states] == [known[tokens] for tokens in begins]
        assert [node.position for node in walk.states] == [len(tokens) for tokens in begins]
        assert walk.shared == max((common(asked[:limit], tokens) for tokens in known), default=0)


@given(sequences)
def test_a_tree_is_no_larger_than_what_stands_in_it(stored: Sequences) -> None:
    """At most one branch for each state beside its own node, and nothing when all are gone."""
    tree = PrefixTree()
    for number, (salt, tokens) in enumerate(stored):
        put(tree, salt, tokens, number)
    kept = sorted({(salt, tokens) for salt, tokens in stored})
    for salt, tokens in kept:
        assert sum(node.parent is not None for node in nodes(tree)) <= 2 * len(kept)
        for node in nodes(tree):
            assert node.is_wanted or node.parent is None
            for first, child in node.children.items():
                assert child.parent is node
                assert child.edge.startswith(first)
                assert child.position == node.position + len(child.edge) // len(first)
        node = tree.place(salt, key_of(tokens))
        node.state = None
        tree.prune(salt, node)
        kept = kept[1:]
    assert tree.is_empty


def test_what_stands_under_one_salt_is_not_found_under_another() -> None:
    tree = PrefixTree()
    put(tree, "alice", [1, 2, 3], 1)

    assert tree.walk("bob", key_of([1, 2, 3]), 3).shared == 0
    assert tree.walk("", key_of([1, 2, 3]), 3).states == ()
    assert tree.walk("alice", key_of([1, 2, 3]), 3).shared == 3


def test_a_ghost_is_remembered_and_is_no_state() -> None:
    tree = PrefixTree()
    node = put(tree, "", [1, 2, 3, 4], 1)
    node.state, node.is_ghost = None, True
    tree.prune("", node)

    walk = tree.walk("", key_of([1, 2, 3, 4, 5]), 5)
    assert (walk.states, walk.ghosts, walk.shared) == ((), (node,), 4)

    node.is_ghost = False
    tree.prune("", node)
    assert tree.is_empty


@pytest.mark.parametrize("parts_at", [0, 1, 2, 511, 512, 513, 1022, 1023])
def test_the_place_where_two_long_sequences_part_is_found_exactly(parts_at: int) -> None:
    """By halving, not token by token; token ids take all of their four bytes."""
    tree = PrefixTree()
    known = [1 << 24 | number for number in range(1024)]
    put(tree, "", known, 1)
    other = known.copy()
    other[parts_at] += 1 << 16

    assert tree.walk("", key_of(other), 1024).shared == parts_at
    assert tree.walk("", key_of(array("I", known)), 1000).shared == 1000
