"""The `farm` command with everything imported. Each line of standard input is a command, done by a fork of this.

The fork goes on to the end of this script, which is what the installed command consists of: so it ends as that ends.
"""

import json
import os
import sys

from farm.tools.main import main

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in enumerate((os.devnull, request["out"], request["err"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags), number)
        sys.argv[:] = request["command"]
        sys.path[0] = os.path.dirname(sys.argv[0])
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
sys.exit(main())
