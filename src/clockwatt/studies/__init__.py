"""Studies: each a small package with its figures."""
