"""What operations cost at operating points: looked up, learnt, or by the law of the clock, behind one interface."""
