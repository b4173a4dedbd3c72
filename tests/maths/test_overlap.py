"""Questions that occur in two lists."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sage.maths.overlap import near_repeats, normalise, overlap, repeats, shingles, similarity

LONG = "Jackson's paintbrush makes a narrow strip with a width of $6.5$ millimeters. How long a strip fills the page?"
OTHER = "A quadratic polynomial has real coefficients and leading coefficient two; what is the sum of its roots then?"


def test_layout_does_not_make_two_questions_of_one() -> None:
    first = r"What is $\left( x^{2} \right)$, if x = 2?"
    assert normalise(first) == normalise(r"what is \((x^2)\)  if  $x=2$")


def test_numbers_next_to_each_other_stay_apart() -> None:
    assert len({normalise(text) for text in ("1 23 :", "12 3 :", "123 :", "1, 2, 3 :")}) == 4


def test_signs_stay() -> None:
    assert normalise("x - 1 > y") != normalise("x + 1 > y") != normalise("x + 1 < y")


def test_a_commands_name_that_begins_like_left_stays() -> None:
    assert "leftarrow" in normalise(r"a \leftarrow b")


def test_a_question_of_seven_words_has_two_shingles_and_a_short_one_is_its_own() -> None:
    assert shingles("a b c d e f g") == {tuple("abcdef"), tuple("bcdefg")}
    assert shingles("a b") == {("a", "b")}


def test_same_and_near_questions_are_found_and_others_are_not() -> None:
    train = [LONG.replace("6.5", "7.5"), OTHER, LONG.replace("$6.5$", r"\( 6.5 \)")]
    found = {(match.first, match.second): match.same for match in overlap(train, ["What is two?", LONG])}
    assert found == {(0, 1): False, (2, 1): True}


def test_a_question_with_a_long_appendix_is_near_although_half_the_characters_differ() -> None:
    """DAPO appends sentences such as "The original answer is in the form ...; please give a + b"."""
    (match,) = overlap([f"{LONG} {OTHER}"], [LONG])
    assert (match.same, match.contained) == (False, 1.0)
    assert match.similarity < 0.8


def test_repeats_are_grouped() -> None:
    assert repeats(["one", "Two.", "three", "two", "TWO "]) == [(1, 3, 4)]


def test_near_repeats_are_pairs_of_one_list_without_the_same_ones() -> None:
    (pair,) = near_repeats([LONG, OTHER, LONG.replace("6.5", "7.5"), OTHER + "."])
    assert (pair.second, pair.first) == (0, 2)


def test_similarity_is_the_share_of_equal_characters() -> None:
    # 9 of 10 characters on each side match: 2 * 9 / 20.
    assert similarity("abcdefghij", "abcdefghix") == 0.9


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab c1.$", max_size=12), max_size=6), st.lists(st.text("ab c1.$", max_size=12), max_size=6))
def test_equal_keys_are_always_a_same_match(first: list[str], second: list[str]) -> None:
    expected = {(i, j) for i, a in enumerate(first) for j, b in enumerate(second) if normalise(a) == normalise(b)}
    assert {(m.first, m.second) for m in overlap(first, second) if m.same} == expected
