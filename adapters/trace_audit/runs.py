"""Frozen pages by the log: a run node has a parent and one count, recomputed from events."""

import attrs

__all__ = ["Run", "Runs"]


@attrs.define(eq=False)
class Run:
    """A node of full, frozen pages."""

    pages: tuple[int, ...]
    parent: int | None
    length: int
    """Pages from the root of the chain to the end of this node."""
    count: int
    """Claims and child runs that name this node."""
    twin: int | None = None
    """The node in the other place that one of them was copied from."""


@attrs.define(eq=False)
class Runs:
    """All live runs of one engine."""

    _nodes: dict[int, Run] = attrs.field(factory=dict[int, Run])

    def __contains__(self, run: int) -> bool:
        return run in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def length(self, run: int | None) -> int:
        """Pages of the whole chain that ends here."""
        node = None if run is None else self._nodes.get(run)
        return 0 if node is None else node.length

    def add(self, run: int, pages: tuple[int, ...], parent: int | None) -> None:
        """A claim froze pages on top of its tip: its count on the parent becomes the node's."""
        self._nodes[run] = Run(pages, parent, self.length(parent) + len(pages), 1)

    def share(self, run: int) -> None:
        """One more claim names the run."""
        self._nodes[run].count += 1

    def chain(self, run: int | None) -> list[tuple[int, Run]]:
        """The nodes up to this one, the oldest first."""
        found: list[tuple[int, Run]] = []
        while run is not None and run in self._nodes:
            node = self._nodes[run]
            found.insert(0, (run, node))
            run = node.parent
        return found

    def twin_of(self, run: int | None) -> int | None:
        """As far as a history is in the other place too: the tip of it there."""
        twins = [node.twin for _, node in self.chain(run) if node.twin in self._nodes]
        return twins[-1] if twins else None

    def pair(self, run: int, copy: int) -> None:
        """A node was copied to the other place; the first of several copies is its twin."""
        node = self._nodes[run]
        if node.twin not in self._nodes:
            node.twin = copy
            self._nodes[copy].twin = run

    def drop(self, run: int | None) -> list[tuple[int, tuple[int, ...]]]:
        """One claim fewer names the run; returns the nodes that nobody names now, with pages."""
        dropped: list[tuple[int, tuple[int, ...]]] = []
        while run is not None and run in self._nodes:
            node = self._nodes[run]
            node.count -= 1
            if node.count > 0:
                break
            del self._nodes[run]
            dropped.append((run, node.pages))
            run = node.parent
        return dropped
