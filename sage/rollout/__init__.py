"""Engines that draw completions, one a file."""
