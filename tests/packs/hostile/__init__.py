"""Op packs with faults of every kind, and the expected message of each."""

from tests.packs.hostile import handlers, hooks
from tests.packs.hostile.packing import HANDLER, PRINTED, PRINTS, Hostile, handler, lowering_fault

__all__ = ["HANDLER", "PACKS", "PRINTED", "PRINTS", "Hostile", "handler", "lowering_fault"]

PACKS: tuple[Hostile, ...] = (*handlers.PACKS, *hooks.PACKS)
