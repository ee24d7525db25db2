"""Run as a program: compiles named functions and writes their parts to a file, as a worker would.

Beside them, as "prune_stats", what numba said of each there: these numbers depend on what the process compiled before.

python maker.py OUT NAME[=SYMBOL_BASE] [NAME ...]
"""

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from subjects import SUBJECTS

from farm.errors import NotShippable
from farm.port.compile import compile_signature, take_apart


def main(out: str, names: list[str]) -> None:
    pruned: dict[str, tuple[int, ...]] = {}
    made: dict[str, object] = {"prune_stats": pruned}
    for word in names:
        name, _, wanted = word.partition("=")
        dispatcher, arguments = SUBJECTS[name]
        result, base = compile_signature(dispatcher, arguments, None, None, int(wanted) if wanted else None)
        pruned[name] = tuple(result.metadata.get("prune_stats", ()))  # object mode has none
        try:
            made[name] = take_apart(result, base)
        except NotShippable as refusal:
            made[name] = refusal
    Path(out).write_bytes(pickle.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
