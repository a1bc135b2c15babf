"""Figures of the study: pure functions from its tables to what is shown, and from that to a figure."""
