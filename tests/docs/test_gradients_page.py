"""docs/gradients.md says what the code computes."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig

from sage.interfaces import KLMode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def gradients() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gradients", ROOT / "docs" / "figures" / "gradients.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_errors_is_the_computed_one(gradients: ModuleType) -> None:
    """K09, K10: exact choices have error 0, k3 has not, k1 in the loss has no gradient."""
    assert gradients.error_table() in PAGE


def test_the_three_token_table_is_the_computed_one(gradients: ModuleType) -> None:
    """K09, K10, K12."""
    table = gradients.three_token_table()
    assert table in PAGE
    reverse, forward = "(-0.1732, -0.0756, 0.2488)", "(-0.1624, -0.0499, 0.2123)"
    assert f"| exact, loss | {reverse} | {reverse} |" in table
    assert f"| k3, loss | {forward} | (-0.2274, -0.0699, 0.2973) |" in table
    assert "| k1, loss | (0.0000, 0.0000, 0.0000) |" in table


def test_the_numbers_quoted_for_a_smaller_spread_are_computed(
    gradients: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "SPREAD", 1.0)
    (row,) = [line for line in gradients.error_table().splitlines() if line.startswith("| k3, loss ")]
    error, median, worst = row.strip("| ").split(" | ")[1:]
    assert f"at 1.0, k3 has {error},\n{median} and {worst})" in PAGE


def test_the_figure_is_drawn(gradients: ModuleType, tmp_path: Path) -> None:
    gradients.plot(tmp_path / "new.png")
    drawn, shipped = tmp_path / "new.png", ROOT / "docs" / "figures" / "gradients.png"
    for file in (drawn, shipped):
        assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        # Width and height stand at bytes 16 to 24.
        assert file.read_bytes()[16:24] == (2000).to_bytes(4, "big") + (576).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("overrides", "direction"),
    [
        (["kl=reverse"], "forward KL(anchor || policy)"),
        (["kl=reverse", "kl_mode.estimator=k2"], "KL(policy || anchor) at each visited state"),
        (["kl=reverse", "kl_mode.estimator=k1_ratio"], "KL(policy || anchor) at each visited state"),
        (["kl=reverse_token"], "KL(policy || anchor) at each visited state"),
        (["kl=reverse", "kl_mode.estimator=exact"], "KL(policy || anchor) at each visited state"),
        (["kl=reverse_exact"], "over whole sequences"),
        (["kl=forward"], "forward KL to the unnormalised anchor"),
        (["kl=forward", "kl_mode.estimator=sampled"], "on-policy it is that of k3"),
    ],
)
def test_what_the_page_says_to_type_gives_the_sentence_of_that_gradient(
    composed: Callable[..., DictConfig], overrides: list[str], direction: str
) -> None:
    mode = instantiate(composed(*overrides).kl_mode)
    assert isinstance(mode, KLMode)
    assert direction in mode.gradient
    assert f"`{' '.join(overrides)}`" in PAGE
