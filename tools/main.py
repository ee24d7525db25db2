"""The `farm` command: its subcommands, gathered."""

import click

from farm.tools.as_main import Commands
from farm.tools.cache import cache
from farm.tools.doctor import doctor
from farm.tools.manifest import manifest
from farm.tools.prewarm import prewarm
from farm.tools.run import run
from farm.tools.top import top
from farm.tools.why import why_command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="numba-farm")
def main() -> None:
    """Numba functions compile in worker processes while the program goes on.

    Every setting is read from its FARM_* variable, as a program that uses the farm would read it.

    \b
    Example:
      farm run --record farm.jsonl program.py
      farm prewarm farm.jsonl --script program.py
    """


main.add_command(cache)
main.add_command(doctor)
main.add_command(top)
main.add_command(manifest)
main.add_command(prewarm)
main.add_command(run)
main.add_command(why_command)
