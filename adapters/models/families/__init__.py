"""One module for each family of models; ``registry`` finds them all by their ``FAMILY``."""
