"""All attacks: each does something that numba's own cache does not survive, and counts what came of it."""

from typing import Final

import deaths
import files
import races

ATTACKS: Final = {**races.ATTACKS, **files.ATTACKS, **deaths.ATTACKS}
"""By what is tried."""
