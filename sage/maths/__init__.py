"""Pure functions of the method: torch tensors and floats in, tensors out; no configuration, no IO."""
