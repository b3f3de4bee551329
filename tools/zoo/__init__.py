"""The zoo: models of every common kind with random weights.

Each module has a table `MODELS` from a model's name to `make(folder, small)`, which exports a
SavedModel and returns `inputs(n)`: the inputs of a batch of n by signature and alias.
"""
