"""Bugs to plant of ``verify``."""

from __future__ import annotations

from ..planted import Planted, of_tests

MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "verify/compare",
        (
            "a NaN that is not there is none",
            "verify/comparison/distance.py",
            "if wrong := int(np.count_nonzero(here != there)):",
            "if wrong := int(np.count_nonzero(here & ~there)):",
        ),
        (
            "the band is twice the spread",
            "verify/comparison/compare.py",
            "self.spread * (2 if self.mean <= self.mean_spread else 1)",
            "self.spread * 2",
        ),
    ),
    *of_tests(
        "verify/compare",
        (
            "a mean as large as theirs is beyond it",
            "verify/comparison/compare.py",
            "if self.mean <= self.mean_spread",
            "if self.mean < self.mean_spread",
        ),
        (
            "the spread's mean is no share of the range",
            "verify/comparison/compare.py",
            "for between in spreads), default=0.0) / span",
            "for between in spreads), default=0.0)",
        ),
        (
            "elements of other runs do not count",
            "verify/comparison/distance.py",
            "self.elements + other.elements",
            "max(self.elements, other.elements)",
        ),
        (
            "a single operator hands nothing on",
            "verify/comparison/tolerance.py",
            "HANDED_ON if _remembers(operators[0]) else 1e-5",
            "1e-5",
        ),
        (
            "a step of 16 bits is inherited as one of 8",
            "verify/comparison/tolerance.py",
            "* tolerance.of_dtype(tensor.dtype)",
            "* tolerance.steps",
        ),
        (
            "a sum inherits the step of one operand",
            "verify/comparison/tolerance.py",
            "if len(sources) != 1 or not tensor.dtype",
            "if len(sources) < 1 or not tensor.dtype",
        ),
    ),
    *of_tests(
        "verify/inputs",
        (
            "the neighbours of a threshold are not drawn",
            "verify/inputs/drawn.py",
            "np.concatenate([numbers, numbers - 1, numbers + 1])",
            "np.concatenate([numbers])",
        ),
        (
            "thresholds are not drawn",
            "verify/inputs/drawn.py",
            "if told.size else values",
            "if told.size > len(values) else values",
        ),
        (
            "what is added is a threshold",
            "verify/inputs/drawn.py",
            'results[0].shape != tensor.shape or results[0].dtype != "bool"',
            "results[0].shape != tensor.shape",
        ),
        (
            "a neighbour wraps around",
            "verify/inputs/drawn.py",
            "near[(near >= limits.min) & (near <= limits.max)]",
            "near",
        ),
        (
            "a perm is any numbers",
            "verify/inputs/drawn.py",
            "if not caution and _numbers_axes(",
            "if caution and _numbers_axes(",
        ),
    ),
    *of_tests(
        "verify/verify",
        (
            "what remembers runs at other sizes",
            "verify/examined.py",
            "        if self.stateful:\n            return",
            "        if not self:\n            return",
        ),
    ),
    *of_tests(
        "verify/wrong_more",
        ("ten times the steps are near without quantization", "verify/operators/apart.py", "steps=3,", "steps=30,"),
        (
            "inputs that are given once are run once",
            "verify/inputs/drawn.py",
            "named * runs if len(named) == 1 else named",
            "named",
        ),
    ),
)
