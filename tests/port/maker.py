"""Run as a program: compiles named functions and writes their parts to a file, as a worker would.

Into OUT.pruned goes what numba said of pruning in each: these numbers depend on what the process compiled before.

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
    made: dict[str, object] = {}
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
    Path(f"{out}.pruned").write_bytes(pickle.dumps(pruned))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
