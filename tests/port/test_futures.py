"""Futures that an interrupt cannot leave locked, wherever it comes."""

import threading

import pytest

from farm.port.futures import SteadyFuture


class Interrupt(BaseException):
    pass


def is_free(future: "SteadyFuture[int]") -> bool:
    """Whether another thread can still ask it."""
    asked: list[bool] = []
    thread = threading.Thread(target=lambda: asked.append(future.done()), daemon=True)
    thread.start()
    thread.join(10)
    return bool(asked)


def test_it_is_a_future() -> None:
    future: SteadyFuture[int] = SteadyFuture()
    threading.Timer(0.01, future.set_result, (3,)).start()
    assert future.result(60) == 3
    assert not future.cancel()


def test_between_having_the_lock_and_the_block_no_python_runs() -> None:
    """`with` finds the lock's own methods, which are in C."""
    condition = SteadyFuture()._condition  # type: ignore[var-annotated]
    for name in ("__enter__", "__exit__"):
        method = getattr(type(condition), name).__get__(condition)
        assert type(method).__name__ == "builtin_function_or_method", method


def test_a_wait_that_is_interrupted_just_after_it_let_go_raises_the_interrupt() -> None:
    future: SteadyFuture[int] = SteadyFuture()
    let_go = future._condition._release_save  # type: ignore[attr-defined]

    def let_go_and_hear() -> object:
        let_go()
        raise Interrupt

    future._condition._release_save = let_go_and_hear  # type: ignore[attr-defined]
    with pytest.raises(Interrupt):
        future.exception(1)
    assert is_free(future)
