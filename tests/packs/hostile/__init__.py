"""Op packs with every kind of fault, and the expected message of each."""

from tests.packs.hostile import handlers, hooks
from tests.packs.hostile.packing import HANDLER, PRINTED, PRINTS, Hostile, handler, lowers

__all__ = ["HANDLER", "PACKS", "PRINTED", "PRINTS", "Hostile", "handler", "lowers"]

PACKS: tuple[Hostile, ...] = (*handlers.PACKS, *hooks.PACKS)
