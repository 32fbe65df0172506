"""A planted bug: one line of the real code, changed in a copy of the tree."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import attrs

__all__ = ["ROOT", "Mutant", "mutated_copy"]

ROOT = Path(__file__).parent.parent.parent
COPIED = ("ownership", "kernel", "adapters", "tests", "pyproject.toml")
_CACHES = (".mypy_cache",)


@attrs.frozen
class Mutant:
    """One bug.

    Attributes:
        id: short name in kebab case, unique.
        breaks: the promise that it breaks, in a sentence.
        path: the file, relative to the root.
        old: text that stands exactly once in the file.
        new: what stands there instead.
        rule: the ◆ rule of the design that it undoes, or what else it stands for.
        near: tests that know the promise best; they are asked before any layer, for their own.
    """

    id: str
    breaks: str
    path: str
    old: str
    new: str
    rule: str = ""
    near: tuple[str, ...] = ()

    def apply(self, root: Path) -> None:
        """Change the file under ``root``.

        Raises:
            ValueError: the code has moved on: ``old`` is not there exactly once.
        """
        file = root / self.path
        text = file.read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"mutant {self.id}: {self.old!r} stands {count} times in {self.path}")
        file.write_text(text.replace(self.old, self.new), encoding="utf-8")


@contextmanager
def mutated_copy(*mutants: Mutant, source: Path = ROOT) -> Generator[Path]:
    """A copy of the tree with the bugs in it; run with it as the first entry of ``PYTHONPATH``.

    Args:
        mutants: the bugs.
        source: another copy, in which the checks have run already: what they cached comes along.
    """
    with tempfile.TemporaryDirectory(prefix="tenure-mutant-") as name:
        root = Path(name)
        for part in COPIED if source == ROOT else (*COPIED, *_CACHES):
            if (source / part).is_dir():
                shutil.copytree(source / part, root / part, copy_function=_copy, symlinks=True)
            elif (source / part).exists():
                shutil.copy2(source / part, root / part)
        for mutant in mutants:
            mutant.apply(root)
        yield root


def _copy(source: str, target: str) -> None:
    """Times are kept, so that compiled files stay good; weights are too large to copy."""
    if source.endswith(".safetensors"):
        os.symlink(source, target)
    else:
        shutil.copy2(source, target)
