"""Verifiers: a problem and a completion in, a verdict out."""
