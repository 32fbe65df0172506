"""The prefix cache: its tree, its policy, its states, and that nobody's answer depends on it."""
