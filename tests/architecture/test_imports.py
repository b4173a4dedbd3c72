"""Which code may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

OWN_FILE = {
    "vllm": "rollout",
    "ray": "rollout",
    "wandb": "loggers",
    "wandb_workspaces": "loggers",
    "datasets": "benchmarks",
    "math_verify": "rewards",
    "trl": "",
}
"""Third party -> the only package of sage that may import it ("": none)."""


def imported_modules(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("module", ["sage.config", "sage.types", "sage.interfaces"])
def test_reading_a_configuration_loads_nothing_heavy(module: str) -> None:
    heavy = ["torch", "transformers", "vllm", "wandb", "datasets", "peft", "accelerate", "matplotlib"]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr


def test_optional_libraries_are_imported_in_their_own_plugin_only(root: Path) -> None:
    package = root / "sage"
    outside = [
        f"{path.relative_to(root)} imports {name}"
        for path in package.rglob("*.py")
        for name in sorted(imported_modules(path) & OWN_FILE.keys())
        if path.relative_to(package).parts[0] != OWN_FILE[name]
    ]
    assert outside == []


def test_the_import_contracts_hold(root: Path) -> None:
    command = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([str(command), "--no-cache"], cwd=root, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
