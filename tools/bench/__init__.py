"""Benchmarks, each beside something else in the same run."""
