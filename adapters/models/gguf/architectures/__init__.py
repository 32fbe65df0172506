"""One module for each architecture, with a constant ``ARCHITECTURE``: names, sizes, layouts."""
