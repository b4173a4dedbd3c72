"""Every yaml file that we ship composes and passes the checks."""

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from sage.config import PLUGINS, conf_dir, load

Composed = Callable[..., DictConfig]


def options(group: str) -> list[str]:
    """``group=option`` of every file of a group, nested ones included."""
    folder = conf_dir() / group
    return sorted(f"{group}={path.relative_to(folder).with_suffix('')}" for path in folder.rglob("*.yaml"))


PLUGIN_OPTIONS = [option for group in PLUGINS for option in options(group)]


@pytest.mark.parametrize("override", [*PLUGIN_OPTIONS, *options("kl"), *options("experiment")])
def test_every_shipped_option_composes_and_passes_the_checks(composed: Composed, override: str) -> None:
    if override.startswith(("model=", "experiment=paper")):
        bare = override in {"model=hf", "experiment=paper/setting"}
        load(composed(*{override, "model=hf"}, "model.name=some/model") if bare else composed(override))
    else:  # the tiny model holds 64 tokens, which is no fault of a benchmark with longer texts
        load(composed(override, "model.max_length=100000"))


def test_each_plugin_group_offers_a_choice_that_the_default_configuration_makes(composed: Composed) -> None:
    config = composed()
    assert [name for name in PLUGINS if "_target_" not in config[name]] == []


@pytest.mark.parametrize("mode", [option.partition("=")[2] for option in options("kl_mode")])
def test_kl_is_shorthand_for_kl_mode(composed: Composed, mode: str) -> None:
    assert f"kl={mode}" in options("kl")
    assert composed(f"kl={mode}").kl_mode == composed(f"kl_mode={mode}").kl_mode


def test_kl_offers_no_more_than_kl_mode() -> None:
    assert [name.partition("=")[2] for name in options("kl")] == [name.partition("=")[2] for name in options("kl_mode")]


def test_kl_mode_wins_over_the_shorthand(composed: Composed) -> None:
    assert composed("kl=none", "kl_mode=forward").kl_mode == composed("kl=forward").kl_mode


def test_plugin_files_hold_no_hydra_directives_that_hide_a_value() -> None:
    """A reader sees the value of every option in the option's own file."""
    missing = [
        path.name
        for group in PLUGINS
        for path in (conf_dir() / group).rglob("*.yaml")
        if "???" in path.read_text(encoding="utf-8")
    ]
    assert missing == ["hf.yaml"]  # whose name only the user knows


def test_loaded_values_are_those_of_the_yaml(composed: Composed) -> None:
    cfg = composed("train.steps=7", "train.sampling.top_k=5", "eval.max_problems=3")
    config = load(cfg)
    assert (config.train.steps, config.train.sampling.top_k, config.eval.max_problems) == (7, 5, 3)
    assert config.train.optimizer.betas == tuple(cfg.train.optimizer.betas)
    assert config.train.sampling.max_tokens == cfg.benchmark.max_completion_tokens
    assert config.train.optimizer.learning_rate == cfg.model.learning_rate


def test_whole_numbers_are_accepted_where_a_number_is_expected(composed: Composed) -> None:
    value = load(composed("train.optimizer.max_grad_norm=1")).train.optimizer.max_grad_norm
    assert (value, type(value)) == (1.0, float)


def test_paths_become_absolute_and_home_is_expanded(
    composed: Composed, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """K58: relative paths are resolved against the starting directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    paths = load(composed("paths.outputs=runs", "paths.cache='~/kept'")).paths
    assert (paths.outputs, paths.cache) == (tmp_path / "runs", tmp_path / "home" / "kept")
