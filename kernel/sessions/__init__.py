"""Sessions: each decides what becomes of its turns, and keeps its log and its states."""
