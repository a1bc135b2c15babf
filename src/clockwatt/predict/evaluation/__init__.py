"""How a predictor is judged: what is left out and predicted, intervals from it, errors, regrets."""
