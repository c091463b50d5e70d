"""Plugin of pytest that runs a pack's conformance cases: ``--op-pack my-pack``.

Every pytest in an environment with this project imports the plugin. It therefore imports other modules only if the option
is used.
The plugin is not in the package ``conformance``: ``python -m pytest`` in a folder with a package of that name would import
that package instead.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnx-tflite-plugin")
    group.addoption(
        "--op-pack",
        metavar="PACK",
        action="append",
        default=[],
        help="Run the conformance cases of this op pack, and report declarations without a case. May be given several times. Cases "
        "that collected tests run already are not repeated.",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    names = list(dict.fromkeys(config.getoption("--op-pack")))
    if not names:
        return
    try:
        from conformance.pytest_items import add_items
    except ModuleNotFoundError as error:
        import conformance

        hiding_folder = next(iter(conformance.__path__), "")
        raise pytest.UsageError(
            f"--op-pack: {error.name} cannot be imported, because {hiding_folder} hides the package conformance of "
            "onnx-tflite-plugin; run `pytest` in place of `python -m pytest`, or in another folder"
        ) from error
    add_items(session, names, items)
