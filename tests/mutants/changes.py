"""Every small change that cosmic-ray can make to a file, as new source text of its module."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from tests.mutants.mutant import ROOT

__all__ = ["Change", "changes_of", "ownership_files", "unchanged"]

# Without those that write a type annotation anew, or nonsense that every test sees at once.
_OPERATORS: Final = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "ZeroIterationForLoop",
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE")
    ),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("GtE_Lt", "Gt_LtE", "LtE_Gt", "Is_IsNot", "IsNot_Is")
    ),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "FloorDiv_Mul", "Mod_FloorDiv", "Add_Mul")
    ),
)


@attrs.frozen
class Change:
    """One small change of one file."""

    path: str
    """Relative to the root."""
    operator: str
    line: int
    was: str
    is_now: str
    source: str = attrs.field(repr=False)
    """The whole file after it."""

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def name(self) -> str:
        """Names it in a list."""
        return (
            f"{self.path}:{self.line} {self.operator}: {self.was.strip()} -> {self.is_now.strip()}"
        )


def ownership_files() -> list[Path]:
    """The files of the ownership package, its move checker left out."""
    return sorted((ROOT / "ownership").glob("*.py"))


def changes_of(path: Path) -> Iterator[Change]:
    """All changes of one file, in order of operator and place.

    Raises:
        ModuleNotFoundError: cosmic-ray is not installed; it is in the extra ``dev``.
    """
    # It has no annotations, and the type checkers of who doesn't run this need not have it.
    plugins: Any = importlib.import_module("cosmic_ray.plugins")
    mutating: Any = importlib.import_module("cosmic_ray.mutating")
    source = path.read_text(encoding="utf-8")
    for operator in _OPERATORS:
        operation = plugins.get_operator(f"core/{operator}")()
        occurrence = 0
        while (changed := mutating.mutate_code(source, operation, occurrence)) is not None:
            occurrence += 1
            change = _change(path, operator, source, changed)
            if change is not None:
                yield change


def unchanged(path: Path) -> Change:
    """A file as it is: if this is killed, no verdict on its changes says anything."""
    name = path.relative_to(ROOT).as_posix()
    return Change(name, "nothing", 1, "", "", path.read_text(encoding="utf-8"))


def _change(path: Path, operator: str, source: str, changed: str) -> Change | None:
    before, after = source.splitlines(), changed.splitlines()
    differs = [n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    if not differs:
        return None
    line = differs[0]
    name = path.relative_to(ROOT).as_posix()
    return Change(name, operator, line + 1, before[line], after[line], changed)
