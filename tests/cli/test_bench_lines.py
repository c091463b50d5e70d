"""Lines of ``bench``: times, ratio and profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnx_tflite_plugin.cli import bench
from onnx_tflite_plugin.verify.times.bench import Benchmark, Spread
from onnx_tflite_plugin.verify.times.profile import OperatorTime

UNDECIDED = "undecided, because the spread includes 1; --rounds 28 narrows it, --profile lists slower operators"


def spread(median: float, low: float, high: float) -> Spread:
    return Spread(median, low, high)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, 0.99, "faster"), (1.01, 1.5, "slower; --profile lists the slower operators"), (0.5, 1.0, UNDECIDED),
        (0.7, 1.0, "equal, within the spread"),
        (1.0, 1.5, "equal, within the spread"), (0.97, 3.77, UNDECIDED), (0.9, 1.1, "equal, within the spread"),
    ],
)  # fmt: skip
def test_verdict_depends_on_the_quartiles_of_the_ratio(low: float, high: float, verdict: str) -> None:
    for threads, text in ((1, "1 thread,"), (3, "3 threads,")):
        benchmark = Benchmark(
            spread(1e-3, 5e-4, 0.0304), spread(9.99e-4, 9e-5, 2e-3), spread(0.875, low, high), 7, threads, "clock",
            "builtin", "processor",
        )  # fmt: skip
        litert, onnx_runtime, ratio, reason, _, measured, _ = (row.lines for row in bench._rows(benchmark))
        assert list(litert) == ["1 ms (0.5 to 30.4) (builtin kernels)"]
        assert list(onnx_runtime) == ["999 µs (90 to 2e+03)"]
        assert list(reason) == []
        assert list(ratio) == [f"ONNX Runtime / LiteRT 0.88 ({low:.2f} to {high:.2f}): {verdict}"]
        assert list(measured) == [f"clock, {text} medians and quartiles of 7 rounds", "processor"]


def test_reason_is_printed_for_a_slower_small_model() -> None:
    seconds, ratio = spread(9e-5, 9e-5, 9e-5), spread(2, 1.9, 2.1)
    small = Benchmark(seconds, seconds, ratio, 7, 1, "clock", "builtin", "processor")
    reasons = [
        next(row.lines for row in bench._rows(benchmark) if row.label == "reason")
        for benchmark in (
            small,
            replace(small, litert=spread(1e-4, 1e-4, 1e-4)),
            replace(small, ratio=spread(1, 0.9, 1.1)),
        )
    ]
    assert [len(lines) for lines in reasons] == [1, 0, 0]
    assert "overhead of 0.2 to 1 µs per node" in reasons[0][0]
    [verdict] = next(row.lines for row in bench._rows(small) if row.label == "ratio")
    assert verdict.endswith("--profile lists the slower operators")


def test_profile_lists_only_operators_slower_than_in_litert(capsys: pytest.CaptureFixture[str]) -> None:
    faster = OperatorTime((3,), ("ADD",), "", ("Add",), 5e-6, 4e-6)
    bench._print_profile([faster])
    assert capsys.readouterr().out.endswith("\n\nno operator takes longer than in LiteRT\n")
    bench._print_profile([replace(faster, operators=(1, 2, 3), nodes=tuple("ABCDE"), litert=1e-6), faster])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[0] == "1–3"
    assert "A + B + C + 2 more" in last


def test_operator_times_are_in_microseconds() -> None:
    assert bench._microseconds(2e-6, 5.6e-6) == ("2.0", "5.6", "3.6")
    assert bench._microseconds(5e-6, 2e-6) == ("5.0", "2.0", "-3.0")
    assert bench._microseconds(None, 2e-6) == ("fails in isolation", "2.0", "2.0")


def test_profile_has_tables_of_kinds_and_worst_operators(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        OperatorTime((1, 20), ("CONV_2D", "RELU"), "", ("Conv", "Conv"), 1e-6, 20e-6),
        OperatorTime((3,), ("ADD",), "", ("Add",), None, 4e-6),
    ]
    bench._print_profile(rows)
    assert (
        capsys.readouterr().out
        == """
operators       count  LiteRT µs  ONNX Runtime µs  difference µs
CONV_2D + RELU      1        1.0             20.0           19.0
ADD                 1        0.0              4.0            4.0
all                 2        1.0             24.0           23.0

index  operator        nodes            LiteRT µs  ONNX Runtime µs  difference µs
1, 20  CONV_2D + RELU  2 Conv                 1.0             20.0           19.0
3      ADD             Add     fails in isolation              4.0            4.0
"""
    )


@pytest.mark.parametrize(("total_kinds", "listed_kinds"), [(9, 9), (10, 8)])
def test_omitted_kinds_are_summed(capsys: pytest.CaptureFixture[str], total_kinds: int, listed_kinds: int) -> None:
    rows = [OperatorTime((k,), (f"OP{k}",), "", ("Node",), 1e-6, (20 - k) * 1e-6) for k in range(total_kinds)]
    bench._print_profile(rows)
    table, operator_lines = (block.splitlines() for block in capsys.readouterr().out.strip().split("\n\n"))
    assert [line.split()[0] for line in table[1 : 1 + listed_kinds]] == [f"OP{k}" for k in range(listed_kinds)]
    other_cells = [line.split() for line in table[1 + listed_kinds : -1]]
    assert other_cells == ([["2", "more", "kinds", "2", "2.0", "23.0", "21.0"]] if listed_kinds < total_kinds else [])
    total = sum(20 - k for k in range(total_kinds))
    assert table[-1].split() == ["all", str(total_kinds), f"{total_kinds}.0", f"{total}.0", f"{total - total_kinds}.0"]
    assert [line.split()[:3] for line in operator_lines[1:-1]] == [[str(k), f"OP{k}", "Node"] for k in range(5)]
    assert operator_lines[-1] == f"… and {total_kinds - 5} more that take longer than in LiteRT (--json lists all)"
    assert table[1].split() == ["OP0", "1", "1.0", "20.0", "19.0"]
