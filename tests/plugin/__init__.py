"""The pytest plugin, as its users run it."""
