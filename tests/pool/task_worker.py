"""Run as a program: does the jobs in a file, one after the other, as one worker would.

python task_worker.py JOBS ANSWERS [LOCK_PATIENCE_S]
"""

import json
import pickle
import sys
import warnings
from pathlib import Path

from farm.pool import task
from farm.pool.patience import LOCK_PATIENCE_S, LockPatience
from farm.port import warm
from farm.port.target import foundation, settings


def main(jobs: str, answers: str, patience_s: float = LOCK_PATIENCE_S) -> None:
    warnings.simplefilter("error")
    task.lock_patience = LockPatience(patience_s)
    warm.warm(json.dumps(foundation(settings())))
    done = [task.perform(payload, "a job") for payload in pickle.loads(Path(jobs).read_bytes())]
    Path(answers).write_bytes(pickle.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
