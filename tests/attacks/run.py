"""Attacks the farm and numba's own cache in the same way, and prints what came of it as a table.

    python tests/attacks/run.py              a few rounds of each
    python tests/attacks/run.py --long       the rounds of a stress run
    python tests/attacks/run.py --write      and puts the table into ARCHITECTURE.md

The exit code is 1 if anything went wrong with the farm.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from attacks import ATTACKS, FARM_ALONE
from children import ROOT, Outcome, Subject

PAGE: Final = ROOT / "ARCHITECTURE.md"
BEGIN: Final = "<!-- attacks: begin (made by tests/attacks/run.py --write) -->"
END: Final = "<!-- attacks: end -->"
COLUMNS: Final = ("tries", "wrong", "raised", "killed", "stuck", "left behind")


def cells(outcome: Outcome | None) -> list[str]:
    """One subject's part of a row."""
    if outcome is None:
        return ["" for _ in COLUMNS]
    figures = (outcome.tries, outcome.wrong, outcome.raised, outcome.killed, outcome.stuck, outcome.left)
    return [str(figure) for figure in figures]


def line(parts: list[str]) -> str:
    """A row of the table."""
    return f"| {' | '.join(parts)} |"


def attack(subjects: tuple[Subject, ...], *, long: bool) -> tuple[list[str], bool]:
    """Run everything; the lines of the table, and whether the farm came out clean."""
    lines = [
        line(["what is tried", *(f"{subject.value}: {column}" for subject in subjects for column in COLUMNS)]),
        line(["---"] + ["---:"] * (len(COLUMNS) * len(subjects))),
    ]
    clean = True
    for name, one in {**ATTACKS, **FARM_ALONE}.items():
        outcomes: dict[Subject, Outcome] = {}
        for subject in subjects:
            if subject is not Subject.FARM and name in FARM_ALONE:
                continue
            rounds = one.rounds_long if long else max(1, one.rounds)
            with tempfile.TemporaryDirectory(prefix="farm-attack-") as directory:
                outcomes[subject] = one.run(subject, Path(directory), rounds)
            print(f"{subject.value}: {name}: {outcomes[subject]}", file=sys.stderr, flush=True)
        clean = clean and outcomes[Subject.FARM].clean
        lines.append(line([name, *(cell for subject in subjects for cell in cells(outcomes.get(subject)))]))
    return lines, clean


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="the rounds of a stress run")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    lines, clean = attack((Subject.FARM, Subject.NUMBA), long=options.long)
    print("\n".join(lines))
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
