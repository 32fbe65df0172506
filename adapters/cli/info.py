"""``tenure info``: what is installed, what the bundled model is, and who else claims our names."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version

import click

from adapters.cli.model_facts import BUNDLED, model_facts
from adapters.cli.output import write_json

__all__ = ["info", "intruders"]

OUR_PACKAGES = ("ownership", "kernel", "adapters")
DEPENDENCIES = (
    "tenure",
    "torch",
    "numpy",
    "anyio",
    "attrs",
    "structlog",
    "tokenizers",
    "safetensors",
    "jinja2",
    "gguf",
    "llguidance",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(as_json: bool) -> None:
    """Show versions, the bundled model, and other distributions that own our import names."""
    strangers = intruders(packages_distributions())
    versions = {"python": platform.python_version()}
    versions.update((name, _version(name)) for name in DEPENDENCIES)
    model = model_facts(BUNDLED)
    if as_json:
        write_json({**versions, "model": model, "intruders": strangers})
        return
    for name, value in versions.items():
        click.echo(f"{name}: {value}")
    click.echo("bundled model:")
    for name, fact in model.items():
        click.echo(f"  {name}: {fact}")
    for package, distributions in strangers.items():
        click.echo(
            f"warning: the import package {package!r} is also provided by "
            f"{', '.join(distributions)}; uninstall one of them, or imports of Tenure may fail",
            err=True,
        )


def intruders(provided: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Distributions other than ours that provide one of our import packages.

    Args:
        provided: import package to distributions, as ``packages_distributions()`` returns it.
    """
    found: dict[str, list[str]] = {}
    for package in OUR_PACKAGES:
        others = sorted(set(provided.get(package, ())) - {"tenure"})
        if others:
            found[package] = others
    return found


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
