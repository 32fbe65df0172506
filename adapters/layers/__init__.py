"""The layers that model families are made of, each over one ragged pass."""
