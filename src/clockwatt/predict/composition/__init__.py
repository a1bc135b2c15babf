"""Composition of a network's pass from its calls, and its overheads beyond them."""
