"""Fitted models: forests on features, the DVFS (clock) model, and their storage."""
