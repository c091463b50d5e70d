"""The page in a browser: no console error, readable size, search, names."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.page.content import Page, collect_page_data
from onnx_tflite_plugin.page.html import html
from tests.helpers.metadata_files import LABELS, classifier_metadata, model_with_metadata
from tests.page.browser import BROWSER, render_page
from tests.page.conftest import DIGITS

pytestmark = pytest.mark.skipif(BROWSER is None and "CI" not in os.environ, reason="no browser is installed")


def large(count: int) -> Page:
    """Return a network of merging branches, and a separate chain."""
    operator: dict[str, Any] = {
        "code": "CONV_2D", "name": "t", "dtype": "int8", "shape": [1, None, 3], "layout": "Implicit",
        "quantization": "Dequantized", "nodes": ["Conv"], "float_island": False, "microseconds": 3.5, "wrong": "", "first": False,
    }  # fmt: skip
    operators = [
        {**operator, "index": k, "place": str(k), "operators": [k], "codes": ["CONV_2D"], "float_island": k % 50 == 0}
        for k in range(count)
    ]
    edges = [{"from": k, "to": k + 1, "name": "t", "dtype": "int8", "shape": [1, 3]} for k in range(count - 1)]
    edges += [{"from": k, "to": k + 7, "name": "t", "dtype": "int8", "shape": [1, 3]} for k in range(0, count - 7, 10)]
    facts = {
        "line": "", "tflite_bytes": 5, "onnx_bytes": 7, "constant_bytes": 3, "operators": count, "nodes": count,
        "opset": 18, "inputs": [], "outputs": [], "authored": {}, "states": [],
    }  # fmt: skip
    return Page("large", facts, operators, edges)


@pytest.mark.parametrize("kind", ["digits", "large"])
def test_browser_renders_the_page_without_errors(tmp_path: Path, digits: Page, kind: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(html(digits if kind == "digits" else large(2000)), encoding="utf-8")
    dom, console = render_page(path)
    assert 'data-drawn="yes"' in dom
    assert "<canvas" in dom
    assert console == []
    if kind == "digits":
        assert re.search(r"<td>the whole model</td>(<td[^>]*></td>)*<td>[^<]*\(\d", dom), (
            "nodes inside If are in brackets"
        )
        for text in (
            "tolerance: one step (normal)",
            "tensors in the order of execution",
            "Implicit: ONNX fixes the layout",
            "</i>Implicit: layout fixed by ONNX",
            'tabindex="0"',
            'class="link"',
            "converted by",
            "Scroll or drag to move;",
        ):
            assert text in dom.partition('<script type="application/json"')[0]


def test_verdict_names_the_first_wrong_operator(tmp_path: Path, digits: Page) -> None:
    """A click on its name selects it in the network."""
    operators = [{**op, "wrong": "far off" if op["index"] == 4 else ""} for op in digits.operators]
    wrong = replace(digits, operators=operators, verdict="NOT within tolerance", wrong=True)
    script = """<script>
    const verdict = element("verdict");
    verdict.querySelector("button").click();
    document.body.dataset.result = `${verdict.textContent}|${selectedId()}`;
    </script></body>"""
    path = tmp_path / "page.html"
    path.write_text(html(wrong).replace("</body>", script), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    (result,) = re.findall('data-result="([^"]*)"', dom)
    code = digits.operators[4]["code"]
    assert result.replace("&nbsp;", " ") == f"FAILED: NOT within tolerance; first wrong operator: 4 {code}|4"
    path.write_text(html(digits), encoding="utf-8")
    assert '<p id="verdict" class="ok"><strong>OK</strong>: ' in render_page(path)[0]


def test_large_network_is_shown_in_readable_size_and_searched(tmp_path: Path) -> None:
    """Typing selects the first match, Enter the next; a complete label has one match.

    The wheel moves the network, and zooms it with Ctrl.
    """
    script = """<script>
    const field = element("find"), zooms = [];
    const note = () => zooms.push(`${Math.round(100 * window.graphOfPage.zoom())}`);
    const type = (text) => { field.value = text; field.dispatchEvent(new Event("input")); };
    const enter = (shiftKey) => field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", shiftKey }));
    const wheel = (ctrlKey, deltaY) => element("graph").dispatchEvent(new WheelEvent("wheel", { deltaY, ctrlKey, cancelable: true }));
    const found = [];
    const steps = [
      () => type("1\u00a0CONV_2D"), () => type("1999"), () => type("conv"), enter, () => enter(true), () => enter(true), () => type("none"),
    ];
    for (const step of steps) { step(); found.push(`${selectedId()}: ${element("found").textContent}`); }
    note();
    const moved = wheel(false, -1e6), { y } = window.graphOfPage.pan();
    const atEnd = wheel(false, -1);
    wheel(false, 10);
    note(); wheel(true, -50); note(); element("start").click(); note(); element("fit").click(); note();
    document.body.dataset.result = [...found, moved, atEnd, y, ...zooms].join("|");
    </script></body>"""
    path = tmp_path / "page.html"
    path.write_text(html(large(2000)).replace("</body>", script), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    (result,) = re.findall('data-result="([^"]*)"', dom)
    *hits, moved, at_end, y, before, scrolled, zoomed, start, full_view = result.split("|")
    assert hits == [
        "1: 1 of 1", "1999: 1 of 1", "0: 1 of 2000; Enter: next", "1: 2 of 2000; Enter: next", "0: 1 of 2000; Enter: next",
        "1999: 2000 of 2000; Enter: next", "1999: no match",
    ]  # fmt: skip
    assert (moved, at_end) == ("false", "true")  # the frame takes the event unless the network ends
    assert 0 < float(y) < 100
    assert before == scrolled == start == "100"
    assert int(full_view) < 50 < 100 < int(zoomed)


def test_drag_that_starts_on_an_operator_moves_the_network(tmp_path: Path) -> None:
    """On a phone, operators fill the width, so that a drag rarely starts between them."""
    script = "<script>document.body.dataset.result = window.graphOfPage.nodes().every((node) => node.pannable());</script></body>"
    path = tmp_path / "page.html"
    path.write_text(html(large(20)).replace("</body>", script), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    assert 'data-result="true"' in dom


def test_wrong_operator_is_named_and_long_names_are_shortened(tmp_path: Path, digits: Page) -> None:
    name = "network/" * 30 + "conv"
    errors = [
        {**digits.errors[0], "ok": False, "first_wrong": True, "text": "max 9 quantization steps"},
        *digits.errors[1:],
    ]
    outputs = [
        {
            "name": name,
            "ok": False,
            "error": "max 9 quantization steps",
            "tolerance": "1 quantization step",
            "end_to_end": "max 9 quantization steps",
        }
    ]
    page = replace(
        digits,
        errors=errors,
        outputs=outputs,
        wrong=True,
        verification_notes=[f"first tensor that differs when each operator gets LiteRT's values: {name}"],
    )
    path = tmp_path / "page.html"
    path.write_text(html(page), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    visible_text = re.sub("<[^>]*>", "", dom.partition('id="outputs"')[2].partition('id="summary"')[0])
    assert "network/conv" in visible_text
    assert name not in visible_text
    assert f"first: op {errors[0]['operator']} " in dom


def test_page_shows_metadata_and_the_reason_for_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    data = model_with_metadata(classifier_metadata())
    path = tmp_path / "page.html"
    path.write_text(html(collect_page_data(data, otp.convert(data, check="standard").proto, "pets")), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    for text in ("values -2 to 1", "score threshold 0.25", f"{len(LABELS)} labels: "):
        assert text in dom
    (verdict,) = re.findall(r'<p id="verdict"[^>]*>([^<]*)</p>', dom)
    assert "onnxruntime is not installed" in verdict
    for text in ("Not compared: ", "Not timed: "):
        assert re.search(f"{text}[^<]*onnxruntime is not installed", dom)


def test_errors_of_a_float_model_are_in_steps_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    proto = otp.convert(DIGITS, quantization="float").proto
    path.write_text(html(collect_page_data(DIGITS.read_bytes(), proto, "digits")), encoding="utf-8")
    dom, console = render_page(path)
    assert console == []
    visible_html = dom.partition('<script type="application/json"')[0]
    assert "their errors are in quantization steps of the TFLite file" in visible_html
    assert "tolerance: 3 quantization steps" in visible_html
    assert "one step (normal)" not in visible_html
    assert "float32 instead of int8: pass real values" in visible_html
    assert "; outputs differ by up to " in visible_html
