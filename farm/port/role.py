"""What this process is for. In a worker, decorators that user modules run at import make numba's own dispatchers.

Otherwise a module that a job imports would start a pool inside the worker, or compile its explicit signatures there.
"""

_compiles_for_others = False


def compile_for_others() -> None:
    """From now on this process compiles for a front: called once, by the foreman or by a worker without one."""
    global _compiles_for_others
    _compiles_for_others = True


def compiles_for_others() -> bool:
    """Whether this is such a process."""
    return _compiles_for_others
