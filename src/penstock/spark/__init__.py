"""TODO room doc."""
