"""Policy objectives: advantages, clipped surrogate, aggregation."""
