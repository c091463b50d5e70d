"""300 installed packs: fast discovery, few imports, operator families."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cases import builtin_cases
from conformance.models import Net, tensor
from conformance.runner import run_case
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.offers import discover

COUNT = 300
HANDLER = '''
from onnx_tflite_plugin.api import Context, Transparent, Value, handler

@handler("CUSTOM.Op{k}", max_version=1, layout=Transparent())
def op(ctx: Context, x: Value) -> Value:
    """Neg."""
    return ctx.ops.Neg(x)
'''


def distribution(site: Path, name: str, entries: str, source: str, package: str) -> None:
    """Write the metadata of an installed wheel."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: onnx-tflite-plugin~=0.2.0\n"
    )
    (info / "RECORD").write_text("")
    (info / "entry_points.txt").write_text(entries, encoding="utf-8")
    (site / package).mkdir()
    (site / package / "__init__.py").write_text(source, encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``COUNT`` packs of one handler each."""
    site = tmp_path_factory.mktemp("site")
    for k in range(COUNT):
        entries = f"[onnx_tflite_plugin.handlers]\nCUSTOM.Op{k} = pack_{k}:op\n"
        distribution(site, f"pack-{k}", entries, HANDLER.format(k=k), f"pack_{k}")
    return site


def python(site: Path, script: str, *arguments: str) -> dict[str, object]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    completed = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


def model(path: Path, *codes: str) -> Path:
    net = Net()
    ref = net.input(tensor(2, 3))
    for code in codes:
        ref = net.call(code, [ref], tensor(2, 3))
    net.output(ref)
    path.write_bytes(net.build())
    return path


CONVERT = """
import json, sys, onnx_tflite_plugin
conversion = onnx_tflite_plugin.convert(sys.argv[1])
packs = sorted(name for name in sys.modules if name.startswith("pack_"))
print(json.dumps({"packs": packs, "nodes": dict(conversion.report.nodes)}))
"""
DISCOVER = """
import json, time
from onnx_tflite_plugin.host.offers import discover
start = time.process_time()
offers = discover()
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "count": sum(offer.pack.startswith("pack-") for offer in offers)}))
"""


@pytest.mark.parametrize(("codes", "packs"), [(["NEG"], []), (["CUSTOM.Op7", "CUSTOM.Op211"], ["pack_211", "pack_7"])])
def test_imports_only_packs_that_the_model_uses(site: Path, tmp_path: Path, codes: list[str], packs: list[str]) -> None:
    result = python(site, CONVERT, str(model(tmp_path / "model.tflite", *codes)))
    assert result == {"packs": packs, "nodes": {"Neg": len(codes)}}


def test_discovers_300_packs_within_milliseconds(site: Path) -> None:
    """Measured 11 ms; 90 ms if all metadata is read.

    The bound allows for slower machines.
    """
    results = [python(site, DISCOVER) for _ in range(3)]
    assert {result["count"] for result in results} == {COUNT}
    assert min(float(str(result["seconds"])) for result in results) < 0.04, results


# --- a family of operators ---------------------------------------------------------------------

FAMILY = "op_handlers.tensor.repetition"


class HiddenModule:
    """Import hook that hides the built-in module."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == FAMILY:
            raise ModuleNotFoundError(name)


@pytest.fixture
def family_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a host in which a pack supplies a family of built-in operators."""
    source = importlib.util.find_spec(FAMILY)
    assert source is not None
    assert source.origin is not None
    text = Path(source.origin).read_text(encoding="utf-8")
    family_offers = [offer for offer in discover() if offer.entry.value.startswith(f"{FAMILY}:")]
    lines = [f"{offer.entry.name} = family_pack{offer.entry.value.removeprefix(FAMILY)}" for offer in family_offers]
    distribution(tmp_path, "family-pack", "\n".join(["[onnx_tflite_plugin.handlers]", *lines, ""]), text, "family_pack")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [HiddenModule(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, FAMILY, raising=False)
    yield Host(offers=[offer for offer in discover() if not offer.entry.value.startswith(f"{FAMILY}:")])
    sys.modules.pop("family_pack", None)


@pytest.mark.needs("ai-edge-litert", "2.1.6", "TILE of int16")
def test_pack_can_supply_a_family_of_operators(family_host: Host) -> None:
    codes = {offer.code for offer in family_host.offers if offer.pack == "family-pack"}
    assert len(codes) > 1
    family_cases = [case for case in builtin_cases() if case.op in codes]
    assert {case.op for case in family_cases} == codes
    failed = [result.text for result in (run_case(case, family_host) for case in family_cases) if not result.ok]
    assert failed == []
    assert FAMILY not in sys.modules


def test_family_is_unsupported_without_its_pack(family_host: Host) -> None:
    without = Host(offers=[offer for offer in family_host.offers if offer.pack != "family-pack"])
    codes = {offer.code for offer in family_host.offers if offer.pack == "family-pack"}
    case = next(case for case in builtin_cases() if case.op in codes and case.expects_success)
    assert "no installed pack has a handler for it" in run_case(case, without).text
