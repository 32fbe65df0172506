"""Everything with a vendor's name in it: devices, models, tokenizers, the command line."""
