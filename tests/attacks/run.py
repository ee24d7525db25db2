"""Attacks the farm and numba's own cache in the same way, and prints what came of it as a table.

    python tests/attacks/run.py              a few rounds of each
    python tests/attacks/run.py --long       the rounds of a stress run
    python tests/attacks/run.py --write      and puts the table into ARCHITECTURE.md
    python tests/attacks/run.py --only edit  those whose names contain this

The exit code is 1 if anything went wrong with the farm.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS
from children import ROOT, Outcome, Subject

PAGE: Final = ROOT / "ARCHITECTURE.md"
BEGIN: Final = "<!-- attacks: begin (made by tests/attacks/run.py --write) -->"
END: Final = "<!-- attacks: end -->"
COLUMNS: Final = ("tries", "wrong", "raised", "killed", "stuck", "left behind")


HEAD: Final = ("what is tried", "compiled by", *COLUMNS)


def line(parts: Iterable[object]) -> str:
    """A row of the table."""
    return f"| {' | '.join(map(str, parts))} |"


def row(name: str, subject: Subject, outcome: Outcome) -> str:
    """What one attack did to one subject."""
    figures = (outcome.tries, outcome.wrong, outcome.raised, outcome.killed, outcome.stuck, outcome.left)
    return line((name, subject.value, *figures))


def attack(names: Iterable[str], subjects: Sequence[Subject], *, long: bool) -> tuple[list[str], bool]:
    """Run them; the lines of the table, and whether the farm came out clean."""
    lines = [line(HEAD), line(["---"] * 2 + ["---:"] * len(COLUMNS))]
    clean = True
    for name in names:
        one = ATTACKS[name]
        for subject in one.subjects:
            if subject not in subjects:
                continue
            rounds = one.rounds_long if long else one.rounds
            with tempfile.TemporaryDirectory(prefix="farm-attack-") as directory:
                outcome = one.run(subject, Path(directory), rounds)
            clean = clean and (subject is not Subject.FARM or outcome.clean)
            lines.append(row(name, subject, outcome))
            print(lines[-1], file=sys.stderr, flush=True)
    return lines, clean


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="the rounds of a stress run")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    parser.add_argument("--farm-alone", action="store_true", help="leave numba's cache in peace")
    parser.add_argument("--only", metavar="TEXT", default="", help="what is tried must contain this")
    options = parser.parse_args()
    if options.write and (options.only or options.farm_alone):
        parser.error("--write wants the whole table: leave out --only and --farm-alone")
    names = [name for name in ATTACKS if options.only in name]
    if not names:
        parser.error(f"nothing that is tried contains {options.only!r}; there are: {', '.join(ATTACKS)}")
    subjects = (Subject.FARM,) if options.farm_alone else (Subject.FARM, Subject.NUMBA)
    lines, clean = attack(names, subjects, long=options.long)
    print("\n".join(lines))
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
