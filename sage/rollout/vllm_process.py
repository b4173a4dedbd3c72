"""vLLM in a process that is not its own: it starts quietly and leaves threads and environment as they were."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)


def start(folder: Path, **options: Any) -> Any:
    """A ``vllm.LLM`` in this process for the configuration and tokenizer in ``folder``."""
    # In this process: weights are handed over, not copied to another.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Its messages go where the run's own go; in a program without logging, nowhere.
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
    logging.getLogger("vllm").addHandler(logging.NullHandler())
    # At every push it says of modules without weights (rotary tables) that their weights failed to load.
    logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
    with guest():
        return import_module("vllm").LLM(str(folder), distributed_executor_backend="uni", **options)


def clean_up() -> None:
    """Forget the process groups of an engine that has ended, or has failed to start."""
    import_module("vllm.distributed").cleanup_dist_env_and_memory()


def on_cpu() -> bool:
    """Whether the vLLM that is installed runs on the CPU."""
    return import_module("vllm.platforms").current_platform.is_cpu()


@contextmanager
def guest() -> Iterator[None]:
    """Undo what the body does to environment variables and torch's threads, and log what it writes to stderr.

    vLLM's start on a CPU makes child processes load its allocator, holds torch at one thread and replaces
    ``torch.set_num_threads``: the trainer would go on at a fraction of its speed. Its C++ parts write to the file descriptor
    itself, across a progress bar.
    """
    environment, threads, set_threads = dict(os.environ), torch.get_num_threads(), torch.set_num_threads
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            kept.seek(0)
            if text := kept.read().decode(errors="replace").strip():
                log.info("written to stderr:\n%s", text)
            torch.set_num_threads = set_threads
            set_threads(threads)
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)
