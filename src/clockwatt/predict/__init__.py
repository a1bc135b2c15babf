"""Predictors of what operations and networks cost, fitted to a dataset.

Rooms, each importing only from those before it: `features`, `samples`, `models`, `composition`, `evaluation`, `hosts`,
`costs`, and on top `answer`, `recommend`, `fit`, `validate`. Nothing here imports torch
before a network has to be traced.
"""
