"""The op suite: cases with TensorFlow's answers, and what checks that none is missing."""
