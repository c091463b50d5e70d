"""The documentation: samples run, options exist, pictures are up to date."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pytest

from onnx_tflite_plugin.cli import cli
from tests.helpers.command import Run
from tests.helpers.samples import LANGUAGES, Samples, blocks
from tools.pictures import FOLDER, drawings
from tools.site_hooks import changelog, on_page_content, on_page_markdown

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SECTIONS = ("tutorials", "how-to", "reference", "explanation")
# options of other programs: tf2onnx, the support table, benchmarks, pytest, pip, mypy
FOREIGN_OPTIONS = {
    "--tflite", "--output", "--inputs-as-nchw", "--outputs-as-nchw", "--signature_def", "--dequantize", "--large_model",
    "--custom-ops", "--op-pack", "--help", "--write", "--png", "--peer-python", "--peer-cache", "--markdown", "--keras",
    "--no-deps", "--openvino", "--strict",
}  # fmt: skip


def names(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


PAGES_WITH_SAMPLES = [page for page in PAGES if any(block.language in ("sh", "python") for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES_WITH_SAMPLES, ids=names(PAGES_WITH_SAMPLES))
@pytest.mark.int8_products
def test_samples_of_a_page_run_in_a_clean_folder(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    samples = Samples(folder, tmp_path / "site", run)
    for block in blocks(page):
        samples.run(block)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_page_names_only_existing_options(page: Path) -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    known_options = {option for command in commands if command for param in command.params for option in param.opts}
    options = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page.read_text(encoding="utf-8")))
    assert options <= known_options | FOREIGN_OPTIONS


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_block_of_a_page_has_a_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


def test_every_page_is_in_a_section_and_names_its_readers() -> None:
    for page in PAGES[1:]:
        section = page.relative_to(DOCS).parts[0]
        assert section in (*SECTIONS, "index.md"), page
        assert re.search(r"^(For|Read this) ", page.read_text(encoding="utf-8"), re.MULTILINE), page


def test_most_pages_have_samples() -> None:
    assert len(PAGES_WITH_SAMPLES) > len(PAGES) / 2
    assert "README.md" in names(PAGES_WITH_SAMPLES)


def test_pictures_equal_the_output_of_their_script() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == drawings()
    picture_names = {
        name for page in PAGES for name in re.findall(r"\]\(pictures/(.+?)\)", page.read_text(encoding="utf-8"))
    }
    assert picture_names == set(drawings())


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "examples/README.md"]
)
def test_links_between_files_are_valid(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("address", ["", "https://example.org/us/project"])
def test_the_changelog_of_the_site_links_its_pages(address: str) -> None:
    text = changelog("[all](docs/how-to/run.md), [rules](CONTRIBUTING.md#versions)", address)
    rules = f"[rules]({address}/blob/main/CONTRIBUTING.md#versions)" if address else "rules"
    assert text == f"[all](../how-to/run.md), {rules}"


def test_site_is_built_only_from_files_of_this_repository() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "https://" not in text
    assert "font: false" in text


def test_roles_of_docstrings_do_not_show_on_the_site() -> None:
    html = "<p>options as in :func:<code>verify</code>, see :meth:<code>save</code> (a: b)</p>"
    assert on_page_content(html) == "<p>options as in <code>verify</code>, see <code>save</code> (a: b)</p>"


def test_pages_link_to_the_page_of_the_changelog() -> None:
    links = on_page_markdown("[a](../CHANGELOG.md) [b](../../CHANGELOG.md#020)")
    assert links == "[a](reference/changelog.md) [b](../reference/changelog.md#020)"
