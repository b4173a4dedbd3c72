"""What identifies the demonstrations of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b

from sage.types import Demonstration


def of_texts(demonstrations: Iterable[Demonstration]) -> str:
    """A hash of the demonstrations, in their order: equal hashes, equal texts.

    >>> shown = Demonstration(prompt="a", completion="bc")
    >>> of_texts([shown]) == of_texts([Demonstration(prompt="ab", completion="c")])
    False
    """
    digest = blake2b(digest_size=16)
    for shown in demonstrations:
        digest.update(json.dumps([shown.prompt, shown.completion]).encode() + b"\n")
    return digest.hexdigest()
