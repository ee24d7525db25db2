"""One measured run, in a process of its own: an order comes as JSON in the argument, a report goes into a file.

    python tests/bench/measured.py '{"workload": "tiny", "contestant": "numba", "sources": "made", "report": "r.json"}'

The clock starts when `import numba` is done. What a contestant then brings in is part of its time.
"""

import faulthandler
import io
import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any


def processor_s(who: int) -> float:
    """Seconds of processor that this process used, or the ones that it has waited for."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def main(order: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1)
    started = time.perf_counter()
    import numba

    numba_s = time.perf_counter() - started
    import contestant as contestants
    import workload as workloads

    sys.path.insert(0, order["sources"])
    contestant = contestants.CONTESTANTS[order["contestant"]]
    workload = workloads.WORKLOADS[order["workload"]]
    run_it = contestants.run_package if workload.functions is None else contestants.run_functions
    profile = _start_profile() if order.get("profile") else None
    run = run_it(contestant, workload, contestants.Clock())
    own_s = processor_s(resource.RUSAGE_SELF)
    report = {
        "numba": numba.__version__,
        "import_numba_s": numba_s,
        "installed_s": run.installed_s,
        "ready_s": run.ready_s,
        "import_s": run.import_s,
        "first_s": run.first_s,
        "processor_s": own_s + processor_s(resource.RUSAGE_CHILDREN),
        "own_processor_s": own_s,
        "counted": run.counted,
        "digest": workloads.digest(run.results),
        "profile": profile and _profile_text(profile),
    }
    Path(order["report"]).write_text(json.dumps(report))


def _start_profile() -> Any:
    import cProfile

    profile = cProfile.Profile()
    profile.enable()
    return profile


def _profile_text(profile: Any) -> str:
    import pstats

    profile.disable()
    text = io.StringIO()
    for order in ("cumulative", "tottime"):
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats(order).print_stats(45)
    return text.getvalue()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
