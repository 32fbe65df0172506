"""The scheduler: who gets room, what one step is made of, and where each claim goes after it."""
