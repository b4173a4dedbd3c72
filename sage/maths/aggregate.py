"""Token losses of a micro-batch to its share of the loss: shares of all micro-batches add up to the undivided loss.

Denominators are counted over the whole mini-batch before it is cut. What each choice favours: ``grpo`` gives every
response the same weight, so a token of a long wrong response is punished less than one of a short one; ``dapo``,
``dr_grpo`` and ``token_sum`` give every token the same weight, so long responses weigh more; the denominators of
``dr_grpo`` and ``token_sum`` do not depend on the lengths.
"""

from torch import Tensor

from sage.maths.masking import masked_mean, masked_sum


def grpo(token_loss: Tensor, mask: Tensor, sequences: int) -> Tensor:
    """Mean over responses of the mean over their tokens (Shao et al. 2024, arXiv 2402.03300, equation 3).

    Args:
        token_loss: ``[b, T]``.
        mask: ``[b, T]`` bool.
        sequences: rows of the whole mini-batch; a row without trained tokens counts and adds 0.

    Returns:
        Scalar.
    """
    return masked_mean(token_loss, mask, dim=-1).sum() / sequences


def bnpo(token_loss: Tensor, mask: Tensor, sequences: int) -> Tensor:
    """Mean over the micro-batch's own tokens, weighted by its share of the rows.

    The one aggregation that depends on how the mini-batch is cut: rows of 4 tokens with loss 2 and of 1 token with loss
    -1 give 1.4 together and 0.5 apart.

    Args:
        token_loss: ``[b, T]``.
        mask: ``[b, T]`` bool.
        sequences: rows of the whole mini-batch.

    Returns:
        Scalar.

    >>> import torch
    >>> loss, mask = torch.tensor([[2.0] * 4, [-1.0] * 4]), torch.tensor([[True] * 4, [True] + [False] * 3])
    >>> round(bnpo(loss, mask, 2).item(), 6), round(sum(bnpo(loss[i:i+1], mask[i:i+1], 2).item() for i in (0, 1)), 6)
    (1.4, 0.5)
    """
    return masked_mean(token_loss, mask) * (token_loss.shape[0] / sequences)


def dapo(token_loss: Tensor, mask: Tensor, tokens: int) -> Tensor:
    """Mean over all tokens of the mini-batch (DAPO, Yu et al. 2025, arXiv 2503.14476, equation 8).

    Args:
        token_loss: ``[b, T]``.
        mask: ``[b, T]`` bool.
        tokens: trained tokens of the whole mini-batch.

    Returns:
        Scalar; 0 with gradient 0 where nothing is trained.
    """
    return masked_sum(token_loss, mask) / max(tokens, 1)


def dr_grpo(token_loss: Tensor, mask: Tensor, sequences: int, max_completion_tokens: int) -> Tensor:
    """Sum over tokens by a constant (Dr. GRPO, Liu et al. 2025, arXiv 2503.20783, section 3.2).

    Args:
        token_loss: ``[b, T]``.
        mask: ``[b, T]`` bool.
        sequences: rows of the whole mini-batch.
        max_completion_tokens: the longest completion that sampling allows.

    Returns:
        Scalar.
    """
    return masked_sum(token_loss, mask) / (sequences * max_completion_tokens)


def token_sum(token_loss: Tensor, mask: Tensor, sequences: int) -> Tensor:
    """Mean over responses of the **sum** over their tokens: the loss of whole responses, ``log pi(y) = sum_t log pi(y_t)``.

    Args:
        token_loss: ``[b, T]``.
        mask: ``[b, T]`` bool.
        sequences: rows of the whole mini-batch; a row without trained tokens counts and adds 0.

    Returns:
        Scalar.
    """
    return masked_sum(token_loss, mask) / sequences
