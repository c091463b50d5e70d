"""``new-pack``: a third-party op pack to start from."""

from __future__ import annotations

import click


@click.command("new-pack")
def new_pack() -> None:
    """x"""
