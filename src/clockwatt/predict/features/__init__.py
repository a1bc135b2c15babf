"""What a predictor knows about an operation at an operating point, without a measurement of it."""
