"""Divergences between the policy and the shaped anchor, one a file."""
