"""The canonical form of what a scheduler copies: claims that wait, transfers under way, asks."""

from typing import Any

from kernel.ids import GPU_POOL
from kernel.scheduling.parking import Errand, Parking, ParkState, ParkTurn
from kernel.testing.explorer.forms import Names, field

__all__ = ["parking_form"]


def parking_form(names: Names, parking: Parking) -> tuple[Any, ...]:
    """Its copies; the claims of preempted turns are in the forms of the turns."""
    errands = field(parking, "_errands")
    pool = names.core.dispatcher.incarnation_of(GPU_POOL)
    return (
        tuple(
            (_errand_form(names, errands[number]), names.handle(claim))
            for number, claim in parking.copies.items()
        ),
        tuple(
            (
                names.lease(flight.lease),
                tuple(_errand_form(names, errand) for errand in flight.errands),
                flight.pool_incarnation == pool,
            )
            for flight in parking.flights
        ),
        tuple(sorted(map(repr, map(names.base, parking.asked)))),
    )


def _errand_form(names: Names, errand: Errand) -> tuple[Any, ...]:
    if isinstance(errand, ParkTurn):
        return ("turn", names.turn(errand.turn.id))
    if isinstance(errand, ParkState):
        return ("state", names.base(errand.base))
    return ("read", names.base(errand.base), names.actor(errand.session))
