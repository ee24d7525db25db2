"""For the tests of programs that use the farm: fakes, and a pytest plugin (`pytest -p farm.testing`).

The plugin is in `farm.testing.plugin`, the fakes in `farm.testing.fakes`.
"""

from farm.testing.fakes import InlinePool, ManualClock, MemoryStore

__all__ = ["InlinePool", "ManualClock", "MemoryStore"]

pytest_plugins = ("farm.testing.plugin",)
