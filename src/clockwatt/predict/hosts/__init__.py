"""Hosts: cost of the calls of a pass on the machine that issues them, a named host or the hosts seen.

Predictors predict for the median host. A measured host has a profile, a JSON file beside them. It holds host times of a
few operations of every class, the overheads of modules and calls in networks, and the variation of the host's speed.
Comparing these host times with predictions for the same operations gives a factor per class. Without a profile, the
interval of an answer covers the hosts that the predictors were fitted on.
"""
