"""Text to token ids and back, and messages to token ids by a model's own chat template."""
