"""Costs of operations at operating points: measured, predicted or extrapolated in clock, behind one interface."""
