"""The engine of the move checker, in small programs whose lines say what is wrong with them."""
