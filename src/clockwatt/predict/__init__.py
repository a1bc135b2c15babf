"""Predictors of what operations and networks cost, fitted to a dataset.

Packages, each importing only from those before it: `features`, `training_rows`, `models`, `composition`, `evaluation`,
`hosts`, `costs`, and on top `answer`, `recommend`, `fit`, `validate`. Nothing here imports torch before a network is
traced.
"""
