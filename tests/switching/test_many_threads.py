"""Threads in the same bodies at once, with a real pool."""

import pytest
from many_threads import play


@pytest.mark.concurrency
def test_threads_that_call_the_same_functions_while_their_code_comes_get_right_values() -> None:
    played = play(0.0, threads=6, functions=8)
    assert played.calls == 6 * 8 * 2 and not played.wrong
