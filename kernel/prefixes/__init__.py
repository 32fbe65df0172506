"""The prefix cache: a structure that the scheduler calls, not an actor."""
