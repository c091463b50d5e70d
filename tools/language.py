"""Check the words of docstrings, messages and pages: ``python -m tools.language``.

A docstring must not begin with a question word, and no text may contain a phrase of ``language.json``. Long commit
subjects only cause a warning. The exit status is 1 if a text fails.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.texts import ROOT, Text, list_files, page_texts, python_texts


@dataclass(frozen=True)
class Phrase:
    """Words to avoid (a regular expression), their replacement and an example."""

    phrase: str
    instead: str
    example: str

    def find(self, text: str) -> str | None:
        """Return the first match in a text, or None."""
        match = _compile_phrase(self.phrase).search(text)
        return match and match[0]


@dataclass(frozen=True)
class Rules:
    """The content of ``language.json``.

    ``exempt``: files and folders that are not checked. ``subject_length``: maximum length of commit subjects.
    ``subjects_after``: the commit after which subjects are checked.
    """

    first_words: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    exempt: tuple[str, ...]
    subject_length: int
    subjects_after: str

    def problems(self, text: Text) -> Iterator[str]:
        """Yield one line per problem in a text."""
        first_word = re.match(r"\w*", text.text)
        if text.is_docstring and first_word and first_word[0] in self.first_words:
            yield f"{text.place}: the docstring begins with {first_word[0]!r}; begin with a verb or a noun"
        for phrase in self.phrases:
            if found := phrase.find(text.text):
                yield f"{text.place}: {found!r}; use: {phrase.instead}"


def read_rules() -> Rules:
    """Return the rules of ``language.json``."""
    data = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return Rules(
        first_words=tuple(data["first_words"]),
        phrases=tuple(Phrase(**phrase) for phrase in data["phrases"]),
        exempt=tuple(data["exempt"]),
        subject_length=data["subject_length"],
        subjects_after=data["subjects_after"],
    )


def texts(exempt: tuple[str, ...]) -> Iterator[Text]:
    """Yield every text of the repository outside of the exempt files and folders."""
    for path in list_files(".py", ".pyi", ".md"):
        if not any(path == excluded or path.startswith(f"{excluded}/") for excluded in exempt):
            yield from page_texts(path) if path.endswith(".md") else python_texts(path)


def long_subjects(rules: Rules) -> list[str]:
    """Return the commits after ``subjects_after`` whose subjects are too long.

    The list is empty if git or that commit is missing.
    """
    if shutil.which("git") is None:
        return []
    log = ["git", "log", "--no-merges", "--format=%h %s", f"{rules.subjects_after}..HEAD"]
    completed = subprocess.run(log, cwd=ROOT, capture_output=True, text=True)
    return [line for line in completed.stdout.splitlines() if len(line.partition(" ")[2]) > rules.subject_length]


@cache
def _compile_phrase(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)


def main() -> int:
    """Print all problems and return the exit status."""
    rules = read_rules()
    for subject in long_subjects(rules):
        print(f"warning: commit subject over {rules.subject_length} characters: {subject}", file=sys.stderr)
    problems = [problem for text in texts(rules.exempt) for problem in rules.problems(text)]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
