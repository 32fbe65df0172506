"""An engine as its caller meets it: the public door, and what stands right behind it."""
