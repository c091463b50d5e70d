"""Op packs that do every wrong thing there is: how each fails, and what must be said of it."""

from tests.packs.hostile import handlers, hooks
from tests.packs.hostile.packing import HANDLER, PRINTED, PRINTS, Hostile, handler, lowers

__all__ = ["HANDLER", "PACKS", "PRINTED", "PRINTS", "Hostile", "handler", "lowers"]

PACKS: tuple[Hostile, ...] = (*handlers.PACKS, *hooks.PACKS)
