"""The zoo: models of every common kind with random weights.

Each module has a table `MODELS` from a model's name to `make(folder, small)`, which exports a
SavedModel and returns `inputs(n)`: the inputs of a batch of n by signature and alias.

Models that other people published are another matter: real.py compares those of real_models.json, with
packages.py (downloads), convert.py and tfjs.py (formats), madeup.py (inputs), answers.py (TensorFlow's
side), verdict.py and speed.py.
"""
