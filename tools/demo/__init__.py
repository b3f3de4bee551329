"""The demo models: one module each, with `make(folder)` that exports and returns the README."""
