"""Hosts: what the calls of a pass cost the machine that issues them, on a named host or on those that were seen.

Predictors know the median host. A measured host has a profile, plain JSON beside them: what a few operations of every
class cost it, which beside what predictors say of the same operations gives a factor per class, what modules and calls
of networks add there, and by how much its speed varied meanwhile. Without a profile an answer spans the hosts that the
predictors were fitted on.
"""
