"""What every PyTorch operation costs, in seconds and joules, on every GPU of a cluster at every clock."""

__version__ = "0.1.0"

MEASUREMENT_VERSION = 4
"""Raised by hand when a change makes older measurements incomparable; recorded in every row.

Refactoring leaves it alone: a change of code must not throw away weeks of GPU time.
"""
