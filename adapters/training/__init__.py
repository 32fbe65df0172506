"""How the bundled model was made: corpus, tokenizer, training and the figures in its card."""
