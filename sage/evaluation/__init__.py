"""samples -> verdicts -> curve -> figure, as a pipeline of files."""
