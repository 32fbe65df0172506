"""The move checker: what the types can't say, that a handle is used once, is checked on the source.

``python -m ownership.lint PATH...`` reports; :mod:`ownership.lint.rules` has the rules. It reads
sources and imports none of them.
"""

from ownership.lint.check import check_paths, check_source
from ownership.lint.config import Config, ConfigError
from ownership.lint.findings import Finding, Note, Report

__all__ = ["Config", "ConfigError", "Finding", "Note", "Report", "check_paths", "check_source"]
