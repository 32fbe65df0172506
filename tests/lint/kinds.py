"""Kinds of move faults: each changes the lines of a file at one site, as a person might."""

import re
from collections.abc import Callable, Mapping

import attrs

from tests.lint.sites import Site

__all__ = ["KINDS", "Kind"]

_CHANCE = "if id(print) % 2:"


@attrs.frozen
class Kind:
    """One way to go wrong."""

    rules: tuple[str, ...]
    """Any of them tells of it."""
    change: Callable[[list[str], Site], list[str] | None]
    """The lines with the fault, or None where it can't be planted."""
    drops: bool = False
    """All that is wrong is that something is dropped: no fault in a test."""


def _with(lines: list[str], site: Site, *new: str) -> list[str]:
    """Put ``new``, which is not indented, in the place of the site's statement."""
    placed = [site.indent + line if line else line for line in new]
    return [*lines[: site.start - 1], *placed, *lines[site.end :]]


def _statement(lines: list[str], site: Site) -> list[str]:
    return [line.removeprefix(site.indent) for line in lines[site.start - 1 : site.end]]


def _twice(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call":
        return None
    own = _statement(lines, site)
    return _with(lines, site, *own, *own)


def _used_after(lines: list[str], site: Site) -> list[str] | None:
    if site.form == "return":
        return None
    return _with(lines, site, *_statement(lines, site), f"print({site.name})")


def _used_by_a_second_name(lines: list[str], site: Site) -> list[str] | None:
    if site.form == "return":
        return None
    own = _statement(lines, site)
    return _with(lines, site, f"same = {site.name}", *own, "print(same)")


def _left_out(lines: list[str], site: Site) -> list[str] | None:
    return _with(lines, site, "pass") if site.form in ("call", "store") else None


def _on_one_path(lines: list[str], site: Site) -> list[str] | None:
    if site.form not in ("call", "store"):
        return None
    return _with(lines, site, _CHANCE, *_indented(_statement(lines, site)))


def _on_one_path_and_used(lines: list[str], site: Site) -> list[str] | None:
    changed = _on_one_path(lines, site)
    return changed and _behind(lines, site, changed, f"print({site.name})")


def _swallowed(lines: list[str], site: Site) -> list[str] | None:
    if site.form not in ("call", "store"):
        return None
    body = ['print("before")', *_statement(lines, site)]
    guarded = ["try:", *_indented(body), "except OSError:", "    pass"]
    return _with(lines, site, *guarded, f"print({site.name})")


def _at_each_round(lines: list[str], site: Site) -> list[str] | None:
    if site.form not in ("call", "store"):
        return None
    return _with(lines, site, "for _ in range(2):", *_indented(_statement(lines, site)))


def _raised_before(lines: list[str], site: Site) -> list[str] | None:
    way_out = [_CHANCE, '    raise RuntimeError("too early")']
    return _with(lines, site, *way_out, *_statement(lines, site))


def _return_removed(lines: list[str], site: Site) -> list[str] | None:
    """Only where the way out stands right behind the move, and the name is used further on."""
    last = lines[site.end].strip() if site.end < len(lines) else ""
    if site.form != "call" or not re.match(r"(return|continue|break|raise)\b", last):
        return None
    rest = _rest_of_the_function(lines, site)
    if not any(re.search(rf"\b{re.escape(site.name)}\b", line) for line in rest[1:]):
        return None
    return [*lines[: site.end], *lines[site.end + 1 :]]


def _lambda(lines: list[str], site: Site) -> list[str] | None:
    return _with(lines, site, f"undo = lambda: {site.call}") if site.form == "call" else None


def _nested_function(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call":
        return None
    return _with(lines, site, "def undo() -> None:", *_indented(_statement(lines, site)))


def _partial(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call":
        return None
    made = f"undo = partial({site.verb}, {site.arguments})"
    return _with(lines, site, "from functools import partial", "", made)


def _callback(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call" or "=" in site.arguments:
        return None
    told = f"asyncio.get_running_loop().call_soon({site.verb}, {site.arguments})"
    return _with(lines, site, "import asyncio", "", told)


def _comprehension(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call":
        return None
    return _with(lines, site, f"[{site.call} for _ in range(2)]")


def _waits(lines: list[str], site: Site) -> list[str] | None:
    header = lines[site.header - 1]
    is_property = site.header > 1 and "property" in lines[site.header - 2]
    if is_property:
        return None
    changed = _with(
        lines, site, "import asyncio", "", "await asyncio.sleep(0)", *_statement(lines, site)
    )
    if not site.is_async:
        changed[site.header - 1] = header.replace("def ", "async def ", 1)
    return changed


def _undeclared_field(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call" or not site.is_method or site.is_lease:
        return None
    return _with(lines, site, f"self.mislaid = {site.name}")


def _module_list(lines: list[str], site: Site) -> list[str] | None:
    if site.form != "call" or site.is_lease:
        return None
    changed = _with(lines, site, f"MISLAID.append({site.name})")
    return [*changed, "", "", "MISLAID: list[object] = []"]


def _overwritten(lines: list[str], site: Site) -> list[str] | None:
    if site.taking is None:
        return None
    taking = lines[site.taking.start - 1 : site.taking.end]
    return [*lines[: site.taking.end], *taking, *lines[site.taking.end :]]


def _forgotten(lines: list[str], site: Site) -> list[str] | None:
    """The same room is asked for once more, and nobody looks at the answer."""
    if site.taking is None or "reserve" not in site.taking.value:
        return None
    start = lines[site.taking.start - 1]
    indent = start[: len(start) - len(start.lstrip())]
    call = " ".join(site.taking.value.split())
    return [*lines[: site.taking.start - 1], indent + call, *lines[site.taking.start - 1 :]]


def _unmarked(lines: list[str], site: Site) -> list[str] | None:
    """The parameter is borrowed all of a sudden, and the body consumes it still."""
    name = site.name.partition(".")[0]
    for number in range(site.header - 1, site.start - 1):
        line = lines[number]
        changed = re.sub(rf"\b{name}: Consume\[(.*?\]?)\](?=[,) ]|$)", rf"{name}: \1", line)
        if changed != line:
            return [*lines[:number], changed, *lines[number + 1 :]]
    return None


def _instead_of(name: str, new: str, *before: str) -> Callable[[list[str], Site], list[str] | None]:
    """Give the consuming call something else in the place of the handle."""

    def change(lines: list[str], site: Site) -> list[str] | None:
        if site.form not in ("call", "assignment"):
            return None
        own = _statement(lines, site)
        found = rf"(?<=[(\[ ]){re.escape(site.name)}(?=[,)\]])"
        other = [re.sub(found, new.format(name=site.name), line) for line in own]
        if other == own or not name:
            return None
        return _with(lines, site, *before, *([""] if before else []), *other)

    return change


def _silenced(lines: list[str], site: Site) -> list[str] | None:
    if site.form == "return":
        return None
    own = _statement(lines, site)
    return _with(lines, site, *own[:-1], own[-1] + "  # type: ignore[arg-type]")


def _subscript(lines: list[str], site: Site) -> list[str] | None:
    """Looked up where it should have been taken out."""
    if site.taking is None or not re.fullmatch(r"[\w.]+\.pop\(.*\)", site.taking.value):
        return None
    number = site.taking.start - 1
    key = re.sub(r", None$", "", site.taking.value.partition(".pop(")[2][:-1])
    owner = site.taking.value.partition(".pop(")[0]
    changed = lines[number].replace(site.taking.value, f"{owner}[{key}]")
    return [*lines[:number], changed, *lines[number + 1 :]]


def _not_emptied(lines: list[str], site: Site) -> list[str] | None:
    """The field keeps naming what has been consumed."""
    if site.taking is None or not re.fullmatch(r"self\.\w+", site.taking.value):
        return None
    number = site.taking.start - 1
    indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    changed = f"{indent}{site.name} = {site.taking.value}"
    return [*lines[:number], changed, *lines[number + 1 :]]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line if line else line for line in lines]


def _behind(lines: list[str], site: Site, changed: list[str], new: str) -> list[str]:
    at = site.end + len(changed) - len(lines)
    return [*changed[:at], site.indent + new, *changed[at:]]


def _rest_of_the_function(lines: list[str], site: Site) -> list[str]:
    rest: list[str] = []
    depth = len(lines[site.header - 1]) - len(lines[site.header - 1].lstrip())
    for line in lines[site.end :]:
        if line.strip() and len(line) - len(line.lstrip()) <= depth:
            break
        rest.append(line)
    return rest


_BUILT = "from ownership import BatchOwned"

KINDS: Mapping[str, Kind] = {
    "a consuming call twice": Kind(("OWN001",), _twice),
    "used after the move": Kind(("OWN001",), _used_after),
    "used under a second name": Kind(("OWN001",), _used_by_a_second_name),
    "consuming call left out": Kind(("OWN003",), _left_out, drops=True),
    "moved on one path": Kind(("OWN003",), _on_one_path, drops=True),
    "moved on one path, then used": Kind(("OWN002",), _on_one_path_and_used),
    "error swallowed, then used": Kind(("OWN002", "OWN001"), _swallowed),
    "moved at each round": Kind(("OWN001", "OWN002"), _at_each_round),
    "error raised before the move": Kind(("OWN003",), _raised_before, drops=True),
    "return removed after the move": Kind(("OWN001", "OWN002"), _return_removed),
    "captured by a lambda": Kind(("OWN005",), _lambda),
    "captured by a function": Kind(("OWN005",), _nested_function),
    "captured by a partial": Kind(("OWN005",), _partial),
    "given to a callback of the loop": Kind(("OWN005",), _callback),
    "captured by a comprehension": Kind(("OWN005",), _comprehension),
    "held across an await": Kind(("OWN006",), _waits),
    "stored in an undeclared field": Kind(("OWN008",), _undeclared_field),
    "stored in a list of the module": Kind(("OWN008",), _module_list),
    "overwritten while live": Kind(("OWN003", "OWN001"), _overwritten, drops=True),
    "result ignored": Kind(("OWN003",), _forgotten, drops=True),
    "mark taken from the parameter": Kind(("OWN004",), _unmarked),
    "looked up, not taken out": Kind(("OWN004",), _subscript),
    "field not emptied": Kind(("OWN004",), _not_emptied),
    "copied": Kind(("OWN007",), _instead_of("copy", "copy.copy({name})", "import copy")),
    "cast": Kind(
        ("OWN007",),
        _instead_of("cast", 'cast("BatchOwned", {name})', "from typing import cast", "", _BUILT),
    ),
    "built by hand": Kind(("OWN007",), _instead_of("built", "BatchOwned(None, None)", _BUILT)),
    "type checker silenced": Kind(("OWN007",), _silenced),
}
