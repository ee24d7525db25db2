"""Run as a program: compiles named functions and writes their parts to a file, as a worker would.

Into OUT.pruned goes what numba said of pruning in each: these numbers depend on what the process compiled before.

python maker.py [--each] OUT NAME[=SYMBOL_BASE] [NAME ...]

With --each every name is compiled by a fork of its own, which has numba loaded and has compiled nothing.
"""

import os
import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from subjects import SUBJECTS

from farm.errors import NotShippable
from farm.port.compile import compile_signature, take_apart


def each(out: str, names: list[str]) -> None:
    made: dict[str, object] = {}
    for word in names:
        child = os.fork()
        if not child:
            try:
                main(out, [word])
                os._exit(0)
            finally:  # it raised
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, word
        made |= pickle.loads(Path(out).read_bytes())
    Path(out).write_bytes(pickle.dumps(made))


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
    if sys.argv[1] == "--each":
        each(sys.argv[2], sys.argv[3:])
    else:
        main(sys.argv[1], sys.argv[2:])
