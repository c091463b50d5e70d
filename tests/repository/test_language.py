"""Tests of the check of words in docstrings, messages and pages."""

from __future__ import annotations

import pytest

from tools.language import Phrase, read_rules
from tools.texts import Text

RULES = read_rules()


def test_at_least_30_phrases_are_listed() -> None:
    assert len(RULES.phrases) >= 30


@pytest.mark.parametrize("phrase", RULES.phrases, ids=lambda phrase: phrase.phrase)
def test_phrase_is_found_in_its_example(phrase: Phrase) -> None:
    assert phrase.find(phrase.example)
    assert not phrase.find(phrase.instead)


@pytest.mark.parametrize("word", RULES.first_words)
def test_docstring_must_not_begin_with_a_question_word(word: str) -> None:
    text = Text("a.py", 7, f"{word} follows.", is_docstring=True)
    assert list(RULES.problems(text)) == [f"a.py:7: the docstring begins with {word!r}; begin with a verb or a noun"]


def test_messages_may_begin_with_any_word() -> None:
    assert not list(RULES.problems(Text("a.py", 7, "Where the file ends, nothing follows.")))


def test_plain_sentences_pass() -> None:
    assert not list(RULES.problems(Text("a.md", 3, "Sizes known at runtime stay dynamic.", is_docstring=True)))
