"""A headless browser, if one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
)
BROWSER = next((path for name in _NAMES if (path := shutil.which(name))), None)


def render_page(page: Path) -> tuple[str, list[str]]:
    """Return the document after its scripts have run, and the lines of the console."""
    assert BROWSER is not None, "a browser is needed: chromium or google-chrome on PATH"
    completed = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=60000", "--enable-logging=stderr", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return completed.stdout, [line for line in completed.stderr.splitlines() if "CONSOLE" in line]
