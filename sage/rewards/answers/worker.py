"""The process that judges answers with math-verify; started by the pool as ``python -m sage.rewards.answers.worker``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sage.rewards.answers.symbolic import check, judge
from sage.rewards.serve import serve


def handle(job: Sequence[str]) -> str:
    """One job: ``("judge", gold, answer)`` gives a judgement, ``("check", gold)`` a fault or "".

    Raises:
        ValueError: there is no such job.
    """
    match job:
        case ["judge", gold, answer]:
            return judge(gold, answer)
        case ["check", gold]:
            return check(gold) or ""
        case _:
            raise ValueError(f"job {job!r}: expected judge or check")


if __name__ == "__main__":
    logging.disable()  # math-verify warns that its own limits are off; the pool's are on
    judge(
        r"\frac{1}{2}+x", r"x+\frac{1}{2}"
    )  # the parser builds its tables on first use, which no answer should pay for
    serve(handle)
