"""Find: a function of the farm by `module:name`, for commands that look at functions without calling them.

Whoever asks has enabled the farm for numba's decorators before, and collects what is asked for meanwhile
(`farm.port.role`), so that nothing is compiled.
"""

from farm.errors import told
from farm.front.dispatcher import FarmDispatcher
from farm.port import naming


class NotFound(LookupError):
    """There is no such function, or none that the farm compiles: the text says why."""


def find(name: str) -> FarmDispatcher:
    """The function that `module:qualname` names; its module is imported. Raises NotFound."""
    try:
        found = naming.find(name)
    except naming.NoSuchName as error:
        raise NotFound(str(error)) from None
    except Exception as error:  # the body of a module is the user's, and raises what it likes
        raise NotFound(f"importing what {name} names ended in {told(error)}") from error
    except SystemExit as error:
        raise NotFound(f"importing what {name} names ended the program: sys.exit({error.code})") from error
    if isinstance(found, FarmDispatcher):
        return found
    what = (
        "is numba's own: it was decorated before the farm was there" if hasattr(found, "py_func") else "is not jitted"
    )
    raise NotFound(f"{name} {what}")
