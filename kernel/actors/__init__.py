"""Actors, and what runs them: mailboxes, the dispatcher, supervision, replies, the door."""
