"""Sinks of metrics and the console, one a file."""
