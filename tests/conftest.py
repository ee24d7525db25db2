"""For all tests: see watchdog.py, which tests of it load by its own name."""

from watchdog import (  # noqa: F401
    nothing_outlives_the_test,
    pytest_configure,
    pytest_timeout_cancel_timer,
    pytest_timeout_set_timer,
)
