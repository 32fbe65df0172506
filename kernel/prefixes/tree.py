"""A radix tree over tokens: which kept states begin a sequence, and where it leaves the known ones.

Values only. A node stands at an exact position and may have a state's number; an edge is the tokens
between two nodes, four bytes each, so that two sequences are compared by the machine and not token
by token. Nodes that lead nowhere are pruned, so a tree is as large as what stands in it.

The structure is Morrison's PATRICIA (J. ACM 15, 1968), with token ids for bits.
"""

from array import array
from collections.abc import Sequence

import attrs

__all__ = ["TOKEN_BYTES", "Node", "PrefixTree", "Walk", "key_of"]

TOKEN_BYTES = array("I").itemsize
"""Of one token in a key."""


def key_of(tokens: Sequence[int]) -> bytes:
    """Tokens as the tree compares them."""
    return array("I", tokens).tobytes()


@attrs.define(eq=False)
class Node:
    """A point of the tree."""

    parent: "Node | None"
    edge: bytes
    """The tokens between the parent and here."""
    position: int
    """Tokens from the root to here."""
    state: int | None = None
    """Number of the state that stands here."""
    is_ghost: bool = False
    """A state stood here and was evicted; remembered for a while."""
    children: dict[bytes, "Node"] = attrs.field(factory=dict[bytes, "Node"])
    """By the first token of their edges."""

    @property
    def is_wanted(self) -> bool:
        """Whether it may not be pruned."""
        return self.state is not None or self.is_ghost or len(self.children) > 1


@attrs.frozen
class Walk:
    """How far a sequence leads through the tree."""

    states: tuple[Node, ...]
    """Nodes with a state on the way, the shallowest first."""
    ghosts: tuple[Node, ...]
    shared: int
    """Tokens that it has in common with something in the tree."""


@attrs.define(eq=False)
class PrefixTree:
    """One tree for each salt; what stands under one is never found under another."""

    roots: dict[str, Node] = attrs.field(init=False, factory=dict[str, Node])

    @property
    def is_empty(self) -> bool:
        return not self.roots

    def walk(self, salt: str, key: bytes, limit: int) -> Walk:
        """Follow a sequence for at most ``limit`` tokens. O(tokens shared), compared as bytes."""
        node, end = self.roots.get(salt), min(limit * TOKEN_BYTES, len(key))
        states: list[Node] = []
        ghosts: list[Node] = []
        at = 0
        while node is not None and at < end:
            child = node.children.get(key[at : at + TOKEN_BYTES])
            if child is None:
                break
            common = _common(key, at, end, child.edge)
            at += common
            if common < len(child.edge):
                break
            node = child
            if node.state is not None:
                states.append(node)
            elif node.is_ghost:
                ghosts.append(node)
        return Walk(tuple(states), tuple(ghosts), at // TOKEN_BYTES)

    def place(self, salt: str, key: bytes) -> Node:
        """The node at the end of a sequence, made where there is none; the caller has to mark it.

        O(tokens of the sequence), compared and copied as bytes.
        """
        node = self.roots.get(salt)
        if node is None:
            node = self.roots[salt] = Node(None, b"", 0)
        at, end = 0, len(key)
        while at < end:
            first = key[at : at + TOKEN_BYTES]
            child = node.children.get(first)
            if child is None:
                child = Node(node, key[at:], end // TOKEN_BYTES)
                node.children[first] = child
                return child
            common = _common(key, at, end, child.edge)
            if common < len(child.edge):
                child = _split(child, common)
            at += common
            node = child
        return node

    def prune(self, salt: str, node: Node) -> None:
        """Take out a node that is no longer wanted, and those that only led to it."""
        while not node.is_wanted:
            parent = node.parent
            if parent is None:
                if not node.children:
                    del self.roots[salt]
                return
            if node.children:
                _merge(node, parent)
                return
            del parent.children[node.edge[:TOKEN_BYTES]]
            node = parent


def _common(key: bytes, at: int, end: int, edge: bytes) -> int:
    """Bytes that ``key[at:end]`` and ``edge`` begin with alike, in whole tokens."""
    high = min(len(edge), end - at)
    if key[at : at + high] == edge[:high]:
        return high
    low = 0
    while high - low > TOKEN_BYTES:
        middle = low + (high - low) // (2 * TOKEN_BYTES) * TOKEN_BYTES
        if key[at + low : at + middle] == edge[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _split(child: Node, common: int) -> Node:
    """Put a node into the edge that leads to ``child``, after ``common`` bytes of it."""
    parent, edge = child.parent, child.edge
    middle = Node(parent, edge[:common], child.position - (len(edge) - common) // TOKEN_BYTES)
    middle.children[edge[common : common + TOKEN_BYTES]] = child
    child.parent, child.edge = middle, edge[common:]
    if parent is not None:
        parent.children[edge[:TOKEN_BYTES]] = middle
    return middle


def _merge(node: Node, parent: Node) -> None:
    """Join a node that has one child with it."""
    (child,) = node.children.values()
    child.parent, child.edge = parent, node.edge + child.edge
    parent.children[node.edge[:TOKEN_BYTES]] = child
