"""The forms that a piece of a program can have: each a way in which a constant or a choice reaches machine code.

A form is text with placeholders:

    $n          the piece's own number: names end in it, so that pieces can share a module
    $v          its value, a small whole number
    $c          what is chosen among `choices`
    $child      nothing, or ` + g(x)` for the piece that it calls
    $there      the name by which its module knows the module that `there` is written to

Each defines `f$n`, which takes a whole number, unless the form has an argument of its own: then nothing calls it
but `main.py`. What must give the same in each of two compiles is whole numbers and their quotients by powers of two.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A form.

    Parameters
    ----------
    here, there
        What is written to the piece's module, and to the module beside it.
    argument
        Python for what `main.py` calls it with. Other pieces call it if this is a whole number.
    choices
        What $c can be.
    unseen
        Choosing otherwise changes the machine code, not what it gives: it must be compiled, that is all.
    weight
        How many ordinary compiles it takes: heavy ones are tried less.
    positions
        Whether lines and files are in the code, so that an edit without meaning has one.
    before
        Python that `main.py` has as a call of its own, before that one.
    """

    here: str
    there: str = ""
    argument: str = "3"
    choices: tuple[str, ...] = ()
    unseen: bool = False
    weight: int = 1
    positions: bool = False
    before: str = ""

    @property
    def takes_number(self) -> bool:
        return self.argument == "3"

    @property
    def calls(self) -> bool:
        """Whether it can call another piece: it has a whole number to pass, and adds what comes back to a number."""
        return "$child" in self.here and self.argument.isdigit()

    @property
    def has_value(self) -> bool:
        return "$v" in self.here + self.there


def returns(expression: str, *before: str, options: str = "", parameters: str = "x") -> str:
    lines = [f"@njit{options}", f"def f$n({parameters}):", *(f"    {one}" for one in before)]
    return "\n".join([*lines, f"    return {expression}$child", ""])


def overloaded(body: str, *, options: str = "", setup: str = "", call: str = "stub$n(x)", parameters: str = "x") -> str:
    """A stub, an overload with this body, and its caller."""
    return (
        f"{setup}\ndef stub$n({parameters}):\n    pass\n\n@overload(stub$n{options})\ndef ov$n({parameters}):\n"
        + "\n".join(f"    {line}" for line in body.splitlines())
        + f"\n\n{returns(call)}"
    )
