"""Groups to the padded tensors of a :class:`~sage.types.Batch`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sage.maths.streams import stream_key
from sage.types import Batch, Completion, Group, Verdict


def pack(
    groups: Sequence[Group],
    *,
    device: torch.device | str = "cpu",
    noise_seed: tuple[int | str, ...] = (),
    max_completion_tokens: int | None = None,
) -> Batch:
    """Pad groups into one batch, row ``p * G + g`` being completion g of group p.

    Args:
        groups: all with the same number of completions; verdicts may be missing (then every token counts, reward 0).
        device: where the tensors go.
        max_completion_tokens: the longest completion that sampling allows; ``None`` takes the longest there is.
        noise_seed: names the stream of the guide's noise, e.g. ``(seed, "guide", step)``.

    Returns:
        A batch whose mask comes from lengths, so that an end token that equals the pad token is still trained (K05, K06),
        and whose rows with an abstained verdict are masked out (K03).
    """
    sizes = {len(group.completions) for group in groups}
    if len(sizes) != 1:
        raise ValueError(f"groups of {sorted(sizes)} completions: expected one size for all groups of a batch")
    rows = [(group, completion, verdict) for group in groups for completion, verdict in _graded(group)]
    prompts = [group.prompt_ids for group, _, _ in rows]
    responses = [completion.token_ids for _, completion, _ in rows]
    longest_response = max(map(len, responses))
    longest = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    mask = torch.arange(longest_response) < torch.tensor([len(r) for r in responses])[:, None]
    rewards = [0.0 if verdict is None else _reward(verdict) for _, _, verdict in rows]
    abstained = torch.tensor([math.isnan(reward) for reward in rewards])
    return Batch(
        input_ids=_pad([p + r for p, r in zip(prompts, responses, strict=True)], longest).to(device),
        prompt_lengths=torch.tensor([len(p) for p in prompts], device=device),
        response_ids=_pad(responses, longest_response).to(device),
        mask=(mask & ~abstained[:, None]).to(device),
        sampler_logprobs=_pad([c.sampler_logprobs for _, c, _ in rows], longest_response).float().to(device),
        rewards=torch.tensor(rewards, device=device),
        noise_keys=torch.tensor([stream_key(*noise_seed, row) for row in range(len(rows))], device=device),
        group_size=sizes.pop(),
        max_completion_tokens=max_completion_tokens or longest_response,
        problem_ids=tuple(group.problem.id for group in groups),
    )


def _graded(group: Group) -> list[tuple[Completion, Verdict | None]]:
    verdicts = group.verdicts or (None,) * len(group.completions)
    return list(zip(group.completions, verdicts, strict=True))


def _reward(verdict: Verdict) -> float:
    return math.nan if verdict.reward is None else verdict.reward


def _pad(rows: Sequence[Sequence[float]], length: int) -> torch.Tensor:
    return torch.tensor([(*row, *(0,) * (length - len(row))) for row in rows])
