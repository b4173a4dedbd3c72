"""Final answers: found in a text, written in one way, and compared.

Everything here but :mod:`~sage.rewards.answers.symbolic` and :mod:`~sage.rewards.answers.worker` is plain string and whole
number work of bounded cost. Those two call math-verify on text that a model wrote, so they run in worker processes only.
"""

from sage.rewards.answers.compare import self_check
from sage.rewards.answers.extract import Reading, check_formats, read_answer
from sage.rewards.answers.plain import Judgement, compare_plainly, gold_fault, plain_leaf

__all__ = [
    "Judgement",
    "Reading",
    "check_formats",
    "compare_plainly",
    "gold_fault",
    "plain_leaf",
    "read_answer",
    "self_check",
]
