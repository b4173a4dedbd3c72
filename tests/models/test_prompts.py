"""Prompts: one begin token, the right template, and what is said where there is none."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from sage.models.prompts import prompts_of

WORDS = ["<s>", "</s>", "user", "assistant", "system", "one", "two", "think"]
TEMPLATE = (
    "{{ bos_token }} {% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}{% if think is defined and think %} think{% endif %}"
)


def tokenizer(*, chat=TEMPLATE, end=True, begin=True, adds_end=False):
    """Adds its begin token to every text, as those of Llama do, and, where asked, an end token, as some others do."""
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}))
    backend.pre_tokenizer = WhitespaceSplit()
    special = [("<s>", 0), ("</s>", 1)]
    single = "<s> $A" if begin else "$A"
    backend.post_processor = TemplateProcessing(single=single + (" </s>" if adds_end else ""), special_tokens=special)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>" if begin else None, eos_token="</s>" if end else None
    )
    made.chat_template = chat
    return made


def prompts(template="tokenizer", *, system=None, options=None, **kind):
    return prompts_of(tokenizer(**kind), template, system=system, options=options or {}, model_name="m")


def words(ids):
    return [WORDS[i] for i in ids]


def test_a_template_that_writes_the_begin_token_gets_no_second_one():
    """K29: first ids (B, x), not (B, B, x)."""
    assert words(prompts().encode_prompt("one two")) == ["<s>", "user", "one", "two", "assistant"]


def test_a_plain_prompt_gets_its_begin_token_once_also_where_it_has_it_already():
    """K29."""
    assert words(prompts("plain").encode_prompt("one two")) == ["<s>", "one", "two"]
    assert words(prompts("plain").encode_prompt("<s> one")) == ["<s>", "one"]
    assert words(prompts("plain", begin=False).encode_prompt("one")) == ["one"]


def test_a_plain_prompt_is_not_closed_before_it_is_continued():
    assert words(prompts("plain", adds_end=True).encode_prompt("one")) == ["<s>", "one"]


def test_completions_to_imitate_are_closed_and_not_opened():
    assert [words(ids) for ids in prompts().encode_completions(["one", "two one"])] == [
        ["one", "</s>"],
        ["two", "one", "</s>"],
    ]


def test_system_prompt_and_options_reach_the_template(tmp_path):
    made = prompts(system="two", options={"think": True})
    assert words(made.encode_prompt("one")) == ["<s>", "system", "two", "user", "one", "assistant", "think"]


def test_a_template_may_be_given_as_text_or_file(tmp_path):
    own = "{% for m in messages %}{{ m.content }}{% endfor %} two"
    (tmp_path / "own.jinja").write_text(own)
    for given in (own, str(tmp_path / "own.jinja")):
        assert words(prompts(given, chat=None).encode_prompt("one")) == ["one", "two"]


def test_many_prompts_are_encoded_as_one_by_one():
    made = prompts()
    assert made.encode_prompts(["one", "two one"]) == [made.encode_prompt("one"), made.encode_prompt("two one")]


def test_a_tokenizer_without_a_padding_token_pads_with_its_end_token():
    """K06: pad equals end; masks come from lengths, so the end token is trained all the same."""
    assert prompts().tokenizer.pad_token == "</s>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chat": None}, "m has no chat template.*model.chat_template=plain"),
        ({"template": "nowhere.jinja"}, "model.chat_template=nowhere.jinja: expected tokenizer, plain, or a file"),
        ({"template": "{% for %}"}, "model.chat_template of m fails"),
        ({"template": "plain", "system": "two"}, "need a chat template"),
        ({"end": False}, "no end token"),
    ],
)
def test_what_cannot_be_encoded_is_said_at_once(arguments, message):
    """K49: a base model without a template is refused before anything is loaded, with its name and what to type."""
    with pytest.raises(ValueError, match=message):
        prompts(**arguments)
