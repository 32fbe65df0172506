"""``tenure info``: versions, the model, and strangers that claim our import names."""

import json

from click.testing import CliRunner

from adapters.cli import main
from adapters.cli.info import intruders


def test_another_distribution_with_our_import_name_is_named() -> None:
    """Two projects on the package index own ``kernel`` and ``adapters``; the error is baffling."""
    provided = {"kernel": ["tenure", "kernel"], "adapters": ["tenure"], "numpy": ["numpy"]}

    assert intruders(provided) == {"kernel": ["kernel"]}


def test_nobody_is_named_where_nobody_intrudes() -> None:
    """A checkout that isn't installed provides nothing and accuses nobody."""
    assert intruders({}) == {}


def test_the_json_form_is_one_object() -> None:
    """A program reads it."""
    result = CliRunner().invoke(main, ["info", "--json"])

    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts["torch"].startswith("2.")
    assert facts["intruders"] == {}


def test_the_plain_form_names_versions() -> None:
    """A person reads it, and pastes it into a report."""
    result = CliRunner().invoke(main, ["info"])

    assert result.exit_code == 0
    assert "python: 3." in result.stdout
    assert "structlog: " in result.stdout
