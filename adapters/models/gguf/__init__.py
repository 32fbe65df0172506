"""GGUF files as models: an extra (``tenure[gguf]``), read tensor by tensor, dequantised on load."""
