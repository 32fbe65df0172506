"""Model families that the torch device can run, and the model that ships in the package."""
