"""Sessions in files: one session as one safetensors file, and stores of many.

``session_files`` is what the entry point ``default`` of the group ``tenure.session_files`` names.
"""

from adapters.session_files.files import LocalSessionFiles
from adapters.session_files.format import FORMAT, FORMAT_VERSION, pack, unpack

__all__ = ["FORMAT", "FORMAT_VERSION", "LocalSessionFiles", "pack", "session_files", "unpack"]

session_files = LocalSessionFiles()
