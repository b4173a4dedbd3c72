"""Where a model's files are, and what to tell a user who cannot have them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "package:"


def located(name: str) -> str:
    """What transformers loads: ``package:NAME`` is the folder of an installed Python package, a path is made absolute.

    Raises:
        ValueError: the package is not installed.
    """
    if name.startswith(_PACKAGE):
        package = name.removeprefix(_PACKAGE)
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise ValueError(
                f"model.name={name}: the Python package {package} is not installed; see the model's yaml for how to get it"
            )
        return next(iter(found.submodule_search_locations))
    folder = Path(name).expanduser()
    return str(folder.resolve()) if folder.is_dir() else name


def check_exists(name: str, option: str) -> None:
    """Refuse a path that is no folder, which transformers would take for the name of a repository.

    Raises:
        ValueError: naming the option.
    """
    if option == "model.name" and (Path(name).expanduser() / "adapter_config.json").is_file():
        raise ValueError(f"model.name={name} is an adapter: type model.name=ITS_BASE model.adapter={name}")
    looks_like_path = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
    if looks_like_path and not Path(name).expanduser().is_dir():
        raise ValueError(
            f"{option}={name}: no such folder; expected a folder, or the id of a model on the Hugging Face hub"
        )


def trouble(name: str, error: BaseException) -> str:
    """Why a model cannot be had, and what to do about it (K52)."""
    kinds = {type(e).__name__ for e in _chain(error)}
    if "GatedRepoError" in kinds:
        return (
            f"model.name={name}: its owner gates it; accept the terms at https://huggingface.co/{name} and log in with "
            "`hf auth login`, or set HF_TOKEN"
        )
    if "RepositoryNotFoundError" in kinds:
        return (
            f"model.name={name}: no folder here and no model on the Hugging Face hub has this name (or it is private: then log "
            "in with `hf auth login`, or set HF_TOKEN)"
        )
    if kinds & {"RevisionNotFoundError"}:
        return f"model.revision: {name} has no such branch, tag or commit on the Hugging Face hub"
    if kinds & {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectError", "ConnectTimeout", "ConnectionError"}:
        return (
            f"model.name={name}: not in the local cache, and the Hugging Face hub cannot be reached; run once with internet, or "
            "type model.name=FOLDER"
        )
    return f"model.name={name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def content_digest(folder: Path) -> str:
    """A hash of all files in a folder."""
    digest = hashlib.blake2b(digest_size=10)
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.suffix not in {".py", ".pyc"}):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
