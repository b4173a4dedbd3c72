"""Sources of problems, one a file."""
