"""Features of operations at operating points; none needs a measurement."""
