"""The interpreter of one page: runs the python blocks it is sent, one after the other, as a notebook would.

A line of JSON on standard input is (name, source); the answer, a line where standard output was, is (what was
printed, the traceback or None). What a block writes past `sys.stdout` goes to standard error.
"""

import contextlib
import io
import json
import linecache
import os
import sys
import traceback
import types


def main() -> None:
    """Until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[0] = ""  # where the page is, and not where this file is
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    for line in sys.stdin:
        name, source = json.loads(line)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        printed, error = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(source, name, "exec"), program.__dict__)
            except BaseException:
                error = traceback.format_exc()
        print(json.dumps((printed.getvalue(), error)), file=answers, flush=True)


if __name__ == "__main__":
    main()
