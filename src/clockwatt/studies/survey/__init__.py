"""Differences between cards of one GPU model, by the reference operations."""
