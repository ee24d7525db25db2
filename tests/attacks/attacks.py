"""All attacks: each does something that numba's own cache does not survive, and counts what came of it."""

from typing import Final

import deaths
import disk
import files
import lives
import races
import searches
import soak

ATTACKS: Final = {
    **races.ATTACKS,
    **files.ATTACKS,
    **disk.ATTACKS,
    **deaths.ATTACKS,
    **lives.ATTACKS,
    **searches.ATTACKS,
    **soak.ATTACKS,
}
"""By what is tried."""
