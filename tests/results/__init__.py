"""Long runs, their results in ``docs/results``, and whether those still speak of this code."""
