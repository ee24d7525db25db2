"""`farm why`: whether the store has a function, and if not, what is different from what it has.

Exit codes: 0 for a hit, 1 for a miss and for what is never stored, 2 for wrong usage.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from farm.ahead.find import NotFound, find
from farm.ahead.program import Program, ProgramError, as_main
from farm.ahead.why import TOLD_MAX, Answer, between, why
from farm.enable import enable
from farm.errors import NotShippable, SignatureError
from farm.job.sentences import Difference
from farm.port.naming import PROGRAM
from farm.store.catalog import Entry, printable
from farm.tools.cache_list import SHORT_KEY, entry_json, print_entry, whole_json
from farm.tools.page import print_row, time_text
from farm.tools.settings import JSON_OPTION, cache_dir_option, settings
from farm.tools.stores import all_entries, nothing_compiles, open_store, reported, the_entry
from farm.tools.table import print_json


@click.command(name="why")
@click.argument("what", nargs=-1, required=True)
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The program that __main__ is, for a function of __main__.",
)
@cache_dir_option
@JSON_OPTION
def why_command(what: tuple[str, ...], script: Path | None, cache_dir: str | None, as_json: bool) -> None:
    """Say whether a call would find its machine code in the store, and if not, what is different.

    \b
    farm why module:function SIGNATURE    hit or miss, and what the nearest artifact differs in
    farm why KEY KEY                      in what two artifacts differ
    farm why KEY                          what an artifact tells of itself

    A KEY is its first digits, six or more (farm cache ls). The module is imported, with the current directory on the
    path, and nothing is compiled; what it calls while it is imported runs in Python. A script is run as far as it goes
    without `if __name__ == "__main__"`. Code for a lesser CPU that a program here would load is a hit too. What only a
    compile can find out (object mode, recursion through a second function) is not known here: such a function is a
    miss each time.

    Exit codes: 0 for a hit, and for what two keys differ in; 1 for a miss, for a function that is never stored, or if
    the directory is refused; 2 for wrong usage, for what cannot be imported or found, or a wrong setting.

    \b
    Example:
      farm why mypackage.kernels:score 'float64(float64[::1])'
      farm why __main__:run 'void(int64)' --script main.py
      farm why 3fa94c 77d01e
    """
    config = settings(cache_dir)
    store = open_store(config, signing=True)
    if ":" not in what[0]:
        if len(what) > 2:
            raise click.UsageError("one key, or two, or a function and its signature")
        with reported(config):
            return _keys([the_entry(store.places, text) for text in what], as_json)
    if len(what) != 2:
        raise click.UsageError("a function needs its signature: farm why module:function 'float64(float64)'")
    if what[0].startswith(f"{PROGRAM}:") and script is None:
        raise click.UsageError(f"which program is {PROGRAM}? --script FILE")
    with _loading(script), reported(config):
        try:
            answer = why(store, find(what[0]), what[1], all_entries(store.places))
        except (NotFound, SignatureError) as error:
            raise click.UsageError(str(error)) from None
    if as_json:
        print_json(_answer_json(answer))
    else:
        _print_answer(answer)
    if not answer.hit:
        sys.exit(1)


@contextmanager
def _loading(script: Path | None) -> Iterator[None]:
    """For the block, modules are imported through the farm, which compiles nothing, and a script is `__main__`."""
    with nothing_compiles(), enable(), ExitStack() as stack:
        if script is not None:
            try:
                stack.enter_context(as_main(Program(script)))
            except ProgramError as error:
                raise click.UsageError(str(error)) from None
        yield


def _keys(found: list[Entry], as_json: bool) -> None:
    if len(found) == 1:
        return print_json(whole_json(found[0])) if as_json else print_entry(found[0])
    one, other = found
    parts, told = between(one, other)
    if as_json:
        return print_json({"first": entry_json(one), "second": entry_json(other), **_differences_json(parts, told)})
    for label, entry in (("first", one), ("second", other)):
        print_row(label, _named(entry))
    if not told:
        click.echo("they do not differ in what they tell")
    _print_differences(parts, told)


def _print_answer(answer: Answer) -> None:
    name = answer.function + answer.signature
    if answer.asked is None:
        refusal = answer.refusal
        click.echo(f"never stored: {name} is compiled in the program each time")
        print_row("because", "" if refusal is None else f"{refusal.reason.value}: {refusal.detail}")
        return
    if answer.stored is not None:
        made_in = answer.stored.compile_s
        saves = "" if made_in is None else f": {made_in:.2f} s of compiling"
        made_for = answer.made_for
        cpu = "" if made_for is None else f", made for {made_for}, which this machine can run"
        click.echo(f"hit: {name} is in the store{cpu}{saves}")
    elif answer.near is None and answer.miss is not None and answer.miss.detail:
        click.echo(f"miss: {name} is in the store and cannot be used")
        print_row("because", f"{answer.miss.reason.value} ({answer.miss.detail})")
    else:
        click.echo(f"miss: {name} is not in the store")
    print_row("key", answer.asked.key.hex)
    near = answer.near
    for label, digest in answer.asked.key.parts:
        mark = "  <- differs" if near is not None and label in near.parts else ""
        click.echo(f"  {label:<12}{digest[:16]}{mark}")
    if near is None:
        if answer.stored is None and answer.miss is not None and not answer.miss.detail:
            click.echo("there is no artifact to compare it with")
        return
    if not near.same_function:
        click.echo(f"the store has nothing of {answer.function}; this has most in common with it:")
    print_row("nearest", _named(near.entry))
    _print_differences(near.parts, near.differences)


def _named(one: Entry) -> str:
    return f"{one.function}{one.signature}, {one.key.hex[:SHORT_KEY]}, made {time_text(one.made_at)}"


def _print_differences(parts: Iterable[str], told: tuple[Difference, ...]) -> None:
    if parts:
        print_row("differs in", ", ".join(parts))
    for one in told[:TOLD_MAX]:
        click.echo(printable(f"  {one.text}"))
    if len(told) > TOLD_MAX:
        click.echo(f"  and {len(told) - TOLD_MAX} more (--json tells all)")


def _answer_json(answer: Answer) -> dict[str, Any]:
    asked, near = answer.asked, answer.near
    return {
        "hit": answer.hit,
        "function": answer.function,
        "signature": answer.signature,
        "key": None if asked is None else asked.key.hex,
        "parts": {} if asked is None else dict(asked.key.parts),
        "made_for": answer.made_for,
        "miss": None if answer.miss is None else {"reason": answer.miss.reason.name, "detail": answer.miss.detail},
        "refusal": _refusal_json(answer.refusal),
        "nearest": None
        if near is None
        else {**entry_json(near.entry), **_differences_json(near.parts, near.differences)},
    }


def _refusal_json(refusal: NotShippable | None) -> dict[str, str] | None:
    return None if refusal is None else {"reason": refusal.reason.name, "detail": refusal.detail}


def _differences_json(parts: tuple[str, ...], told: tuple[Difference, ...]) -> dict[str, Any]:
    found = [{"part": one.part, "text": one.text} for one in told]
    return {"parts_that_differ": [*parts], "differences": found}
