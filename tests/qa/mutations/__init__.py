"""Planted bugs by operator family, with the cases that must find them."""

from tests.qa.mutations import (
    audio,
    control,
    conversions,
    convolution,
    elementwise,
    functions,
    images,
    indexing,
    integers,
    products,
    recurrent,
    reductions,
    shapes,
    slicing,
    stablehlo,
)
from tests.qa.mutations.planting import Mutation

__all__ = ["MUTATIONS", "Mutation"]

MUTATIONS: tuple[Mutation, ...] = (
    *convolution.MUTATIONS,
    *elementwise.MUTATIONS,
    *functions.MUTATIONS,
    *reductions.MUTATIONS,
    *shapes.MUTATIONS,
    *slicing.MUTATIONS,
    *images.MUTATIONS,
    *indexing.MUTATIONS,
    *integers.MUTATIONS,
    *products.MUTATIONS,
    *conversions.MUTATIONS,
    *recurrent.MUTATIONS,
    *control.MUTATIONS,
    *stablehlo.MUTATIONS,
    *audio.MUTATIONS,
)
