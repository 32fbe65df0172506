"""One ragged pass: the arenas it reads and writes, how a step is cut and laid out for it."""
