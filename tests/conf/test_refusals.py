"""What cannot work is refused in one message that says what was wrong, what was expected and what to type."""

from collections.abc import Callable

import pytest
from hydra.errors import ConfigCompositionException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from sage.config import ConfigError, check_plugin, load
from sage.config.errors import explain
from sage.types import Refusal

Composed = Callable[..., DictConfig]


def faults(cfg: DictConfig) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(cfg)
    return caught.value.faults


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.steps=-1", "train.steps=-1: expected a whole number >= 0"),
        ("train.steps=3.5", "train.steps=3.5: expected a whole number >= 0"),
        ("train.steps=abc", "train.steps=abc: expected a whole number >= 0"),
        ("train.steps=true", "train.steps=true: expected a whole number >= 0"),
        ("train.steps=null", "train.steps=null: expected a whole number >= 0"),
        ("train.problems_per_step=0", "expected a whole number >= 1"),
        ("train.micro_batch_size=0", "expected a whole number >= 1"),
        ("train.sampling.temperature=0", "train.sampling.temperature=0: expected a finite number > 0"),
        ("train.sampling.temperature=.nan", "expected a finite number > 0"),
        ("train.sampling.temperature=.inf", "expected a finite number > 0"),
        ("train.sampling.top_p=0", "train.sampling.top_p=0: expected a number in (0, 1]"),
        ("train.sampling.top_p=1.01", "expected a number in (0, 1]"),
        ("train.sampling.top_k=-1", "expected a whole number >= 0 (0 keeps every token)"),
        ("train.sampling.min_p=1", "expected a number in [0, 1)"),
        ("train.sampling=fast", "train.sampling=fast: expected a section with temperature, top_p"),
        ("train.optimizer.betas=[0.9]", "train.optimizer.betas=[0.9]: expected two numbers in [0, 1)"),
        ("train.optimizer.betas=[0.9,1]", "expected two numbers in [0, 1)"),
        ("train.optimizer.learning_rate=-1", "expected a finite number >= 0"),
        ("train.optimizer.max_grad_norm=0", "expected a number > 0 (.inf to never clip)"),
        ("train.optimizer.schedule=cosin", "expected one of constant, linear, cosine, hold_linear"),
        ("eval.n=0", "eval.n=0: expected a whole number >= 1"),
        ("eval.confidence=95", "expected a number in (0, 1), e.g. 0.95"),
        ("eval.max_problems=0", "expected a whole number >= 1, or null for all"),
        ("eval.sampling.temperature=-0.1", "expected a finite number >= 0 (0 is greedy)"),
        ("sft.enabled=1", "sft.enabled=1: expected true or false"),
        ("sft.optimizer.eps=0", "expected a finite number > 0"),
        ("seed=-1", "seed=-1: expected a whole number >= 0"),
        ("paths.outputs=3", "paths.outputs=3: expected a folder"),
        ("guide.strength=high", "guide.strength=high: expected a number"),
        ("train.steps='???'", "train.steps is missing: expected a whole number >= 0; type train.steps=..."),
        ("guide.strength='???'", "guide.strength is missing: expected a number; type guide.strength=..."),
        ("~guide.ratio", "guide.ratio is missing: expected a number"),
        ("~train.steps", "train.steps is missing: expected a whole number >= 0"),
        ("~guide", "guide: expected a section with _target_"),
        ("+train.stesp=3", "train.stesp=3: no such option; did you mean train.steps?"),
        ("+guide.ratoi=0.5", "did you mean guide.ratio?"),
        ("+train.learning_rate=1", "did you mean train.optimizer.learning_rate?"),
        ("+eval.zzz=1", "eval.zzz=1: no such option; eval has batch_size, bootstrap_samples"),
        ("+trian.steps=3", "no such option; did you mean train?"),
        ("+kl.beta=0.1", "did you mean kl_mode.beta?"),
        ("guide._target_=sage.guides.branch.BranchGiude", "did you mean sage.guides.branch.BranchGuide?"),
        ("guide._target_=sage.guides.brunch.BranchGuide", "no module brunch in the package sage.guides"),
        ("guide._target_=nowhere.Guide", "no module nowhere in any folder of the Python path"),
        ("guide._target_=Guide", "expected package.module.Class"),
        (
            "paths.outputs=${paths.otputs}",
            "paths.outputs: cannot be resolved: Interpolation key 'paths.otputs' not found",
        ),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(composed: Composed, override: str, expected: str) -> None:
    (fault,) = faults(composed("guide=branch", override))
    assert expected in fault


def test_all_faults_are_listed_at_once(composed: Composed) -> None:
    cfg = composed("+guide.ratoi=0.5", "+train.stesp=3", "eval.n=0", "model.lora=3", "+nothing=1")
    keys = [fault.partition("=")[0] for fault in faults(cfg)]
    assert keys == ["nothing", "train.stesp", "eval.n", "guide.ratoi", "model.lora"]
    with pytest.raises(ConfigError, match=r"5 faults in the configuration:\n  nothing=1: "):
        load(cfg)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["algorithm.minibatches=257"], "algorithm.minibatches=257: expected at most 256, the completions of a step"),
        # The tiny model holds 64 tokens, 6 of them the prompt's: 58 are left.
        (["train.sampling.max_tokens=59"], "train.sampling.max_tokens=59: expected at most 58"),
        (["eval.sampling.max_tokens=59"], "eval.sampling.max_tokens=59: expected at most 58"),
    ],
)
def test_values_that_cannot_work_together_are_refused_with_the_reason(
    composed: Composed, overrides: list[str], expected: str
) -> None:
    (fault,) = faults(composed(*overrides))
    assert fault.startswith(expected)


def test_sections_nested_in_a_plugin_are_checked_too() -> None:
    section = {"_target_": "sage.config.schema.SftConfig", "optimizer": {"_target_": "sage.types.Sampling", "topp": 1}}
    text = "\n".join(check_plugin("model", section))
    assert "model.optimizer.topp=1: no such option of sage.types.Sampling; did you mean model.optimizer.top_p?" in text
    assert "model.optimizer.min_p is missing: expected a number" in text
    assert "model.seed is missing: expected a whole number" in text


def test_plugins_in_a_mapping_are_checked_too(composed: Composed) -> None:
    (fault,) = faults(composed("guide=product", "+guide.factors.token.alhpa_max=1"))
    assert "guide.factors.token.alhpa_max=1: no such option" in fault
    assert "guide.factors.token.alpha_max" in fault


def test_a_partial_plugin_may_leave_parameters_out() -> None:
    assert check_plugin("x", {"_target_": "sage.types.Sampling", "_partial_": True, "top_k": 3}) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("guide.ratoi=1", "guide.ratoi: no such option; did you mean guide.ratio?"),
        ("kl.beta=1", "kl.beta: no such option; did you mean kl_mode.beta?"),
        ("trian.steps=1", "trian: no such option; did you mean train?"),
    ],
)
def test_an_unknown_key_gets_the_nearest_name_and_not_the_advice_to_add_it(
    composed: Composed, override: str, expected: str
) -> None:
    with pytest.raises(ConfigCompositionException) as caught:
        composed("guide=branch", override)
    assert explain(caught.value) == expected


@pytest.mark.parametrize(
    ("override", "listed", "meant"),
    [("kl=revrse", "reverse_exact", "kl=reverse"), ("guide=brnch", "token", "guide=branch")],
)
def test_an_unknown_option_gets_the_list_of_options(composed: Composed, override: str, listed: str, meant: str) -> None:
    with pytest.raises(ConfigCompositionException) as caught:
        composed(override)
    text = explain(caught.value)
    assert text is not None
    assert f"\t{listed}\n" in text
    assert text.startswith(f"{override}: no such option; did you mean {meant}?")


def test_a_plugin_that_refuses_its_values_is_quoted_without_a_traceback(composed: Composed) -> None:
    with pytest.raises(InstantiationException) as caught:
        instantiate(composed("guide=branch", "guide.q_min=2").guide)
    assert explain(caught.value) == ("guide.q_min=2, guide.q_max=1.4: expected 0 < q_min <= q_max, e.g. 0.6 and 1.4")


def test_other_errors_are_not_explained_away() -> None:
    assert explain(RuntimeError("a bug")) is None


def test_a_refusal_of_a_plug_in_that_comes_late_is_shown_as_it_is() -> None:
    """An engine that does not start, weights that cannot be had: one line, and no traceback."""
    assert (
        explain(Refusal("rollout.max_model_len=9: expected at least 40"))
        == "rollout.max_model_len=9: expected at least 40"
    )
    assert explain(ValueError("a bug")) is None
