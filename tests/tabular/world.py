"""A world small enough to enumerate: a table of logits for every prefix, all responses, and exact expectations.

The loss is the one that training uses (plug-in classes, advantages of groups, clipped surrogate, aggregation); only the
sampling is replaced: every group of two responses is in the batch once, weighted by its probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from sage.algorithms.group_relative import GroupRelative
from sage.interfaces import KLMode
from sage.kl_modes.reverse import ReverseKL
from sage.maths.logprobs import entropy
from sage.types import Batch, BatchCounts, KLInputs, TokenStats

CONF = Path(__file__).parents[2] / "conf"
END = 0
"""The end token, where the world has one."""
RLOO: GroupRelative = instantiate(OmegaConf.load(CONF / "algorithm" / "rloo.yaml"))


def mode(estimator: str, beta: float) -> ReverseKL:
    """The reverse KL with one of its estimators; ``reverse_exact`` is k1 in the reward."""
    if estimator == "reverse_exact":
        return ReverseKL(beta=beta, estimator="k1", placement="reward", ratio_max=10.0)
    return ReverseKL(beta=beta, estimator=estimator, placement="loss", ratio_max=10.0)


@dataclass(frozen=True, kw_only=True)
class World:
    """Responses of up to ``length`` tokens out of ``vocabulary``, with rewards, a reference and a guide."""

    tokens: Tensor
    """``[R, T]`` every response, padded with 0."""
    states: Tensor
    """``[R, T]`` row of the table that predicts each token."""
    mask: Tensor
    """``[R, T]`` bool."""
    rewards: Tensor
    """``[R]`` in [0, 1]."""
    reference: Tensor
    """``[S, V]`` log-probs of each token at each prefix."""
    log_q: Tensor
    """``[S, V]`` log of the guide's factor, in [0.6, 1.4]."""

    def table(self, logits: Tensor) -> Tensor:
        """``[R, T]`` log-probs of the responses' tokens, 0 on padding."""
        return self.pick(logits.log_softmax(-1))

    def pick(self, table: Tensor) -> Tensor:
        """``[S, V]`` to the entries of the responses' tokens, ``[R, T]``, 0 on padding."""
        return table[self.states, self.tokens].masked_fill(~self.mask, 0)

    def responses(self, logits: Tensor) -> Tensor:
        """``[R]`` probability of each response."""
        return self.table(logits).sum(-1).exp()


def world(seed: int, *, vocabulary: int, length: int, end_token: bool) -> World:
    """A world with random rewards, reference and guide."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    responses: list[tuple[int, ...]] = []
    for full in product(range(vocabulary), repeat=length):
        stop = full.index(END) + 1 if end_token and END in full else length
        if full[:stop] not in responses:
            responses.append(full[:stop])
    prefixes = sorted({response[:t] for response in responses for t in range(len(response))})
    row = {prefix: i for i, prefix in enumerate(prefixes)}
    shape = (len(responses), length)
    tokens, states = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    for r, response in enumerate(responses):
        for t, token in enumerate(response):
            tokens[r, t], states[r, t], mask[r, t] = token, row[response[:t]], True
    return World(
        tokens=tokens,
        states=states,
        mask=mask,
        rewards=draw(len(responses)).sigmoid(),
        reference=(0.7 * draw(len(prefixes), vocabulary)).log_softmax(-1),
        log_q=(1 + 0.4 * draw(len(prefixes), vocabulary).tanh()).log(),
    )


def _stats(w: World, logprobs: Tensor, rows: Tensor) -> TokenStats:
    full = logprobs[w.states[rows]]
    return TokenStats(
        logprobs=logprobs[w.states[rows], w.tokens[rows]],
        entropy=entropy(full.detach()),
        vocabulary_logprobs=full,
    )


def expected_gradient(w: World, logits: Tensor, kl_mode: KLMode, algorithm: GroupRelative = RLOO) -> Tensor:
    """``[S, V]`` the mean gradient of the training loss over all groups of two responses of the policy."""
    logits = logits.detach().requires_grad_()
    logprobs = logits.log_softmax(-1)
    count = len(w.rewards)
    rows = torch.cartesian_prod(torch.arange(count), torch.arange(count)).flatten()
    chance = w.responses(logits).detach()
    group_chance = chance[rows].view(-1, 2).prod(-1).repeat_interleave(2)
    policy, reference = _stats(w, logprobs, rows), _stats(w, w.reference, rows)
    inputs = KLInputs(
        policy=policy,
        old_logprobs=policy.logprobs.detach(),
        reference=reference,
        response_ids=w.tokens[rows],
        mask=w.mask[rows],
        log_q=w.pick(w.log_q)[rows],
        vocabulary_log_q=w.log_q[w.states[rows]],
    )
    batch = Batch(
        input_ids=w.tokens[rows],
        prompt_lengths=torch.zeros_like(rows),
        response_ids=w.tokens[rows],
        mask=inputs.mask,
        sampler_logprobs=inputs.old_logprobs,
        rewards=w.rewards[rows],
        noise_keys=rows,
        group_size=2,
        max_completion_tokens=w.tokens.shape[1],
    )
    advantages = algorithm.advantages(batch, kl_mode.token_reward(inputs))
    loss = algorithm.surrogate(policy.logprobs, inputs.old_logprobs, advantages, inputs.mask).loss
    divergence = kl_mode.token_loss(inputs)
    if divergence is not None:
        loss = loss + kl_mode.beta * divergence
    # The aggregation gives each row 1 / rows; in the expectation it has the probability of its group.
    weight = (group_chance * len(rows) / 2).unsqueeze(-1)
    counts = BatchCounts(sequences=len(rows), tokens=int(inputs.mask.sum()), max_completion_tokens=w.mask.shape[1])
    total = algorithm.aggregate(loss * weight, inputs.mask, counts)
    return torch.autograd.grad(total, logits)[0]


def train(w: World, kl_mode: KLMode, *, rate: float, steps: int) -> Tensor:
    """``[S, V]`` logits after natural-gradient descent from the uniform policy.

    The gradient with respect to the logits of a prefix is divided by ``P(prefix) * pi(token | prefix)``: the Fisher metric
    of a table. The step changes how fast the loss's fixed point is reached and not where it is.
    """
    logits = torch.zeros_like(w.reference)
    for _ in range(steps):
        gradient = expected_gradient(w, logits, kl_mode)
        reach = torch.zeros(len(logits), dtype=torch.float64)
        chance = w.responses(logits).unsqueeze(-1).expand_as(w.mask)
        reach.index_add_(0, w.states[w.mask], chance[w.mask])
        logits = (logits - rate * gradient / (reach.unsqueeze(-1) * logits.softmax(-1))).log_softmax(-1)
    return logits


def total_variation(first: Tensor, second: Tensor) -> float:
    """Half the L1 distance of two distributions ``[R]``."""
    return 0.5 * (first - second).abs().sum().item()
