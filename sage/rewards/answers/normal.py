"""One way of writing: what differs in typography only becomes the same string."""

from __future__ import annotations

import re
from functools import lru_cache

_UNICODE = {
    "\u2212": "-", "\u2013": "-", "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "⋅": r"\cdot ", "π": r"\pi ",
    "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "\u222a": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "±": r"\pm ", "°": r"^\circ ", "θ": r"\theta ", "\u03b1": r"\alpha ", "β": r"\beta ", "√": r"\sqrt ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "²": "^{2}", "³": "^{3}", "⁴": "^{4}", "∅": r"\emptyset ", "…": r"\ldots ", "€": "", "£": "",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\uff05": "%", "\uff0c": ",", "\uff1a": ":",
}  # fmt: skip
_UNICODE_TABLE = str.maketrans(_UNICODE)
_FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt"
FUNCTION_NAMES = frozenset(_FUNCTIONS.split("|"))

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\\[()\[\]]", ""),  # delimiters, but not the row end \\\\[2pt]
        (r"\\?\$", ""),  # delimiters, and the currency
        (r"\\!", ""),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\{,\}", ","),
        (r"\\(?:left|right|big[lr]?|Big[lr]?|bigg[lr]?|Bigg[lr]?|displaystyle|limits|nolimits)(?![A-Za-z])\.?", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:leq|leqslant)(?![A-Za-z])", r"\\le"),
        (r"\\(?:geq|geqslant)(?![A-Za-z])", r"\\ge"),
        (r"\\neq(?![A-Za-z])", r"\\ne"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\(?:dots|cdots|dotsc|dotsb)(?![A-Za-z])|(?<!\.)\.\.\.(?!\.)", r"\\ldots "),
        (r"\\degree(?![A-Za-z])", r"^\\circ"),
        (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ"),
        (r"\\%", "%"),
        # A letter in upright type is a symbol (e, i), but behind a number mostly a unit.
        (r"(?<=[\d}])\s*\\(?:mathrm|mbox|text)\s*\{\s*([mgshlLJNWVAKCFT])\s*\}", r"\\text{\1 }"),
        (r"\\(?:math(?:rm|it|bf|sf|normal)|text|mbox|bm|boldsymbol)\s*\{\s*([A-Za-z])\}", r" \1"),
        (r"\\(?:mathrm|mathit|mathsf|mbox|textbf|textrm|textit|textsf|texttt|textnormal|hbox|emph)\s*\{", r"\\text{"),
        (r"\b(?:np|numpy|math|sp|sympy)\.(?=[a-z])", ""),
        (rf"(?<![\\A-Za-z{{])({_FUNCTIONS})(?![A-Za-z])", r"\\\1"),
        (r"\*\*", "^"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"\\sqrt\s*(\d+|[A-Za-z])", r"\\sqrt{\1}"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<=\d)\.(?=\s*(?:[-/*+^)]|\\(?!overline)))", ""),
        (
            r"(\\(?:sin|cos|tan|cot|sec|csc))\s*\^\s*\{?(\d)\}?\s*([A-Za-z]|\\(?:alpha|beta|theta|phi))(?![A-Za-z])",
            r"\1^{\2}{\3}",
        ),
        (r"\s+", " "),
    )
)
_WHOLE_BRACES = re.compile(r"\{([^{}]*)\}")
_LEFT, _RIGHT = " ,;:", " .,;:"  # a full stop on the left is a decimal point
_BLANK = re.compile(r"(\\[A-Za-z]+ (?=[A-Za-z])|(?<=\d) (?=\d))| ")


@lru_cache(maxsize=8192)
def tidy(text: str) -> str:
    r"""The same answer without typography: no dollar signs, thin spaces, ``\left``, ``\dfrac`` or unicode mathematics.

    >>> tidy(r"$11,\! 111$"), tidy(r"\left( 3, \dfrac{π}{2} \right).")
    ('11,111', '( 3, \\frac{\\pi }{2} )')
    """
    text = text.translate(_UNICODE_TABLE)
    # A thin negative space marks thousands; with a blank behind it the comma would read as one between two numbers.
    text = re.sub(r",\s*\\!\s*(?=\d{3})", ",", text)
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    text = text.lstrip(_LEFT).rstrip(_RIGHT)
    while (whole := _WHOLE_BRACES.fullmatch(text)) is not None:
        text = whole[1].lstrip(_LEFT).rstrip(_RIGHT)
    return text


@lru_cache(maxsize=8192)
def key(text: str) -> str:
    """Two answers with the same key are the same answer, whatever they mean. Blanks go, where they part nothing."""
    return _BLANK.sub(lambda blank: blank[1] or "", tidy(text))


def balanced(text: str) -> bool:
    r"""Whether braces, ``\{`` aside, are balanced, so that the text can stand inside a box."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0
