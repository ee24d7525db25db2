"""What a foreman preloads, held back until something is written into the pipe that HELD_POOL names."""

import os

from farm.port.warm import warm


def held(given: str) -> None:
    """As `farm.port.warm.warm`, once the gate is open."""
    with open(os.environ["HELD_POOL"]) as gate:  # blocks until somebody opens the other end
        gate.read()
    warm(given)
