"""Causal language models: building, loading, log-probs."""
