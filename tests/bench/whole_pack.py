"""The whole library pack: every recipe compiles, and what calls the same compiles nothing of numba's afterwards.

    python tests/bench/whole_pack.py        # 4 minutes on two cores

The pack is made in an empty store, twice, and then a copy of each recipe is compiled, as a function of somebody's own.
Linear algebra needs scipy; without it those recipes, and no others, may be skipped. The exit code is 1 if any of it
failed.
"""

import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import farm
from farm.ahead import library
from farm.ahead.prewarm import Outcome, PrewarmReport, PrewarmRow
from farm.ahead.recipes import Recipe

NEEDS_SCIPY = "scipy"


def copied(recipe: Recipe) -> Recipe:
    """The same body under another name: to the store another function."""
    body: Any = recipe.body
    code = body.__code__.replace(co_name=f"like_{recipe.name}")
    return Recipe(types.FunctionType(code, body.__globals__, f"like_{recipe.name}"), recipe.signatures)


def uncompiled(report: PrewarmReport, fine: Outcome) -> Iterator[PrewarmRow]:
    """The rows that are not as they should be."""
    for row in report.rows:
        if row.outcome is not fine and not (row.outcome is Outcome.SKIPPED and NEEDS_SCIPY in row.detail.lower()):
            yield row


def main() -> int:
    """Make the pack and use it; the exit code."""
    problems = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        farm.configure(cache_dir=Path(folder))
        made = farm.prewarm_library()
        problems += [f"{row.function}{row.signature}: {row.detail}" for row in uncompiled(made, Outcome.COMPILED)]
        again = farm.prewarm_library()
        problems += [f"{row.function}{row.signature}: made again" for row in uncompiled(again, Outcome.THERE)]
        print(f"the pack: {made}; the second time: {again}", flush=True)
        library.RECIPES = tuple(copied(one) for one in library.RECIPES)
        used = farm.prewarm_library()
        problems += [f"{row.function}{row.signature}: {row.detail}" for row in uncompiled(used, Outcome.COMPILED)]
        problems += [
            f"{row.function}{row.signature}: {row.callees_compiled} callees compiled that should be in the store"
            for row in used.rows
            if row.callees_compiled
        ]
        found = sum(row.callees or 0 for row in used.rows)
        print(f"functions that do the same: {used}; {found} callees asked for", flush=True)
    print("\n".join(problems) if problems else "nothing was compiled twice")
    return 1 if problems or not found else 0


if __name__ == "__main__":
    sys.exit(main())
