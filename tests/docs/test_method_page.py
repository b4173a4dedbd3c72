"""docs/method.md names code that exists, and leaves no equation out."""

import ast
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(sage/[\w/]+\.py):([\w.]+)`", PAGE)))
EQUATIONS = ("advantages", "aggregate", "anchor", "kl", "logprobs", "pass_at_k", "reward_shaping", "support")
EQUATIONS = (*EQUATIONS, "surprisal", "surrogate", "bank")
HELPERS = {"pass_at_k.py": {"powers_of_two"}}
"""Public functions that are no equation."""


def definitions(file: str) -> set[str]:
    """``function``, ``Class`` and ``Class.method`` of a source file."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda value: value.rpartition("/")[2])
def test_every_named_function_exists(file: str, name: str) -> None:
    assert name in definitions(file)


@pytest.mark.parametrize("module", EQUATIONS)
def test_every_public_function_of_the_mathematics_is_in_the_table(module: str) -> None:
    file = f"sage/maths/{module}.py"
    public = {name for name in definitions(file) if not name.startswith("_") and name[0].islower()}
    assert public - {name for named, name in NAMED if named == file} - HELPERS.get(f"{module}.py", set()) == set()


@pytest.mark.parametrize("group", ["guide", "kl_mode", "algorithm"])
def test_the_class_of_every_option_is_in_the_table(group: str) -> None:
    targets = {str(OmegaConf.load(file)._target_) for file in (ROOT / "conf" / group).glob("*.yaml")}
    modules = {target.rpartition(".")[0].replace(".", "/") + ".py" for target in targets}
    assert modules - {file for file, _ in NAMED} == set()


@pytest.mark.parametrize("name", ["method.md", "gradients.md"])
def test_links_lead_to_files(name: str) -> None:
    page = ROOT / "docs" / name
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
