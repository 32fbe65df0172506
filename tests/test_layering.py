"""The arrows between the packages, walked over the syntax trees of all of them.

``ownership`` can be used alone, ``kernel`` runs without torch, and what belongs to a vendor lives
under ``adapters``: an import in the wrong direction, even inside a function, undoes that quietly.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("ownership", "kernel", "adapters")

# package -> top-level modules that nothing in it may import, at any depth of nesting.
FORBIDDEN = {
    "ownership": {"kernel", "adapters", "tests", "anyio", "structlog", "torch", "numpy"},
    "kernel": {"adapters", "tests", "torch", "numpy", "safetensors", "tokenizers", "rich", "click"},
    "adapters": {"tests", "pytest", "hypothesis"},
}
# package of the kernel -> those that it may import, beside the values at the kernel's own level.
KERNEL_ARROWS: dict[str, set[str]] = {
    "memory": set(),
    "requests": set(),
    "actors": set(),
    "prefixes": set(),
    "messages": {"actors"},
    "scheduling": {"actors", "messages", "prefixes"},
    "sessions": {"actors", "messages", "prefixes", "requests"},
    "devices": {"actors", "messages", "scheduling"},
    "engine": {
        *("actors", "devices", "memory", "messages", "prefixes"),
        *("requests", "scheduling", "sessions"),
    },
}
ALLOWED_IN_OWNERSHIP = {"attrs", "ownership"}
ONLY_IN_ADAPTERS = {"torch", "safetensors", "tokenizers", "transformers"}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(tree: ast.AST, package_of_file: str) -> Iterator[tuple[int, str]]:
    """Each top-level module that is imported anywhere in the tree, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.level > 0:
                yield node.lineno, package_of_file
            elif node.module is not None:
                yield node.lineno, node.module.partition(".")[0]


def imports_of(package: str) -> Iterator[tuple[str, str]]:
    for path in sources(package):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, name in imported(tree, package):
            yield f"{path.relative_to(ROOT)}:{line}", name


@pytest.mark.parametrize("package", OURS)
def test_a_package_imports_nothing_that_lies_above_it(package: str) -> None:
    """The arrows point down: adapters, kernel, ownership."""
    wrong = [
        f"{where} imports {name}"
        for where, name in imports_of(package)
        if name in FORBIDDEN[package]
    ]

    assert wrong == []


@pytest.mark.parametrize("package", KERNEL_ARROWS)
def test_a_package_of_the_kernel_imports_only_those_below_it(package: str) -> None:
    """The scheduler knows no session and a session no scheduler: they have messages for that."""
    above = KERNEL_ARROWS.keys() - KERNEL_ARROWS[package] - {package} | {"testing"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(f"kernel/{package}")
        for name in kernel_packages(ast.parse(path.read_text(encoding="utf-8")))
        if name in above
    ]

    assert wrong == []


def test_each_package_of_the_kernel_has_its_arrows() -> None:
    """A new one says where it stands."""
    found = {path.parent.name for path in (ROOT / "kernel").glob("*/__init__.py")}

    assert found == KERNEL_ARROWS.keys() | {"testing"}


def kernel_packages(tree: ast.AST) -> Iterator[str]:
    """The part of the kernel that each import in the tree names: a package, or a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            first, *rest = node.module.split(".")
            if first == "kernel":
                yield from rest[:1] or (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            parts = (alias.name.split(".") for alias in node.names)
            yield from (names[1] for names in parts if names[0] == "kernel" and len(names) > 1)


def test_ownership_needs_attrs_and_the_standard_library_only() -> None:
    """An engine developer takes the ownership layer alone; each new dependency is theirs too."""
    import sys

    allowed = ALLOWED_IN_OWNERSHIP | sys.stdlib_module_names
    wrong = [
        f"{where} imports {name}" for where, name in imports_of("ownership") if name not in allowed
    ]

    assert wrong == []


def test_tensor_libraries_are_imported_under_adapters_only() -> None:
    """The kernel is proven without a tensor; one import of torch there ends that."""
    wrong = [
        f"{where} imports {name}"
        for package in ("ownership", "kernel")
        for where, name in imports_of(package)
        if name in ONLY_IN_ADAPTERS
    ]

    assert wrong == []


def test_the_trace_audit_shares_nothing_with_the_ledger() -> None:
    """A replay that used the ledger's code would repeat its mistakes and call them right."""
    wrong = [
        f"{where} imports {name}"
        for where, name in imports_of("adapters/trace_audit")
        if name in {"ownership", "kernel"}
    ]

    assert wrong == []


def test_the_walk_sees_imports_inside_functions() -> None:
    """Guards the guard: a lazy import is an import."""
    tree = ast.parse("def f():\n    from torch.nn import Linear\n    import kernel.step as s\n")

    assert {name for _, name in imported(tree, "kernel")} == {"torch", "kernel"}


@pytest.mark.parametrize("package", OURS)
def test_each_package_tells_type_checkers_that_it_is_typed(package: str) -> None:
    """Without the marker a user's type checker ignores every annotation of the package."""
    assert (ROOT / package / "py.typed").is_file()
