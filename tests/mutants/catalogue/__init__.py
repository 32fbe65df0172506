"""All planted bugs, by the part of the system that they are planted in."""

import importlib
import pkgutil

from tests.mutants.mutant import Mutant

__all__ = ["all_mutants", "system_mutants"]


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by its id, from every module beside this one (each has a list ``MUTANTS``).

    Raises:
        ValueError: two mutants share an id.
    """
    return _mutants_of("")


def system_mutants() -> dict[str, Mutant]:
    """Those that are planted for the protocol's sake, and not to show that an exhibit can fail.

    ``make museum CHECK=1`` plants the others, each against the scenario that names it.
    """
    return _mutants_of("museum")


def _mutants_of(left_out: str) -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        if left_out and module.startswith(left_out):
            continue
        mutants: list[Mutant] = importlib.import_module(f"{__name__}.{module}").MUTANTS
        for mutant in mutants:
            if mutant.id in found:
                raise ValueError(f"two mutants are called {mutant.id}")
            found[mutant.id] = mutant
    return found
