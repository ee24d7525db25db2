"""`farm run`: any program, unedited, with the farm behind numba's decorators.

Exit codes: the program's own; 2 for wrong usage or a wrong setting, before the program begins.
"""

import click

import farm
from farm.config import CompileMode
from farm.errors import ManifestError
from farm.tools.as_main import run_module, run_script
from farm.tools.settings import SettingError, settings

EPILOG = """\b
Example:
  farm run program.py --its-own option
  farm run -m package.module
  farm run --record farm.jsonl program.py  # and then: farm prewarm farm.jsonl --script program.py
"""


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module, as for `python -m`.")
@click.option("--record", metavar="FILE", help="Write down what the program uses, for `farm prewarm`.")
@click.option(
    "--report",
    "reports",
    metavar="FILE",
    multiple=True,
    help="Write a timeline of what was compiled: a page, or a trace if the name ends in .json. Repeatable.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in CompileMode]),
    help="When calls compile, instead of FARM_MODE: strict waits as numba does.",
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    as_module: bool,
    record: str | None,
    reports: tuple[str, ...],
    mode: str | None,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program as `python` would, with numba.jit and numba.njit going through the farm.

    Options of this command stand before PROGRAM; what follows it is the program's own.

    Exit codes: the program's; 2 for wrong usage or a wrong setting, before the program begins.
    """
    settings(None)  # a wrong one ends it here
    if mode is not None:
        farm.configure(mode=mode)
    if record is not None:
        try:
            farm.record(record)
        except ManifestError as error:
            raise SettingError(str(error)) from None
    if reports:
        try:
            farm.report(*reports)
        except OSError as error:
            raise SettingError(f"the report cannot be written: {error}") from None
    enabled = farm.enable()  # to the very end: also for what threads of the program import after its main module
    if as_module:
        return run_module(program, arguments)
    try:
        run_script(program, arguments)
    except OSError as error:
        enabled.disable()
        raise SettingError(f"cannot open {click.format_filename(program)}: {error.strerror}") from None
