"""A worker whose every job raises."""

from collections.abc import Sequence

from sage.rewards.serve import serve


def handle(job: Sequence[str]) -> str:
    raise ValueError("broken")


if __name__ == "__main__":
    serve(handle)
