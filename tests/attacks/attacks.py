"""All attacks: each does something that numba's own cache does not survive, and counts what came of it."""

from typing import Final

import files
import lives
import races

ATTACKS: Final = {**races.ATTACKS, **files.ATTACKS, **lives.ATTACKS}
"""By what is tried."""
