"""q(x, y): the factors that shape the anchor, one formula a file."""
