"""What a user is told who cannot have a model."""

import httpx
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from sage.models.source import trouble


def hub_error(kind):
    response = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co/x"))
    error = OSError("We couldn't connect to the hub\nand more")
    error.__cause__ = kind("refused", response=response)
    return error


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (GatedRepoError, "accept the terms at https://huggingface.co/meta-llama/Llama-3.2-1B and log in"),
        (RepositoryNotFoundError, "no folder here and no model on the Hugging Face hub has this name"),
        (RevisionNotFoundError, "no such branch, tag or commit"),
    ],
)
def test_the_hubs_refusals_say_what_to_accept_or_set(kind, message):
    """K52: a gated model without a token, a mistyped name, a mistyped revision; one line each."""
    text = trouble("meta-llama/Llama-3.2-1B", hub_error(kind))
    assert message in text
    assert "\n" not in text
