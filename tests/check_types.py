"""mypy over all of the package: what `mypy` checks by the settings, and tools/ under its name farm.tools.

mypy finds modules by directories alone and knows nothing of setuptools' package-dir, so that no command
line makes it look for farm.tools in tools/. What it builds from are pairs of a name and a file: here
those of tools/ are added.
"""

import sys
from pathlib import Path

from mypy.build import build
from mypy.errors import CompileError
from mypy.main import process_options
from mypy.modulefinder import BuildSource

TOOLS = Path(__file__).parent.parent / "tools"


def main() -> int:
    """Print what mypy has to say; the exit code is mypy's."""
    sources, options = process_options([])
    for path in sorted(TOOLS.glob("*.py")):
        name = "farm.tools" if path.stem == "__init__" else f"farm.tools.{path.stem}"
        if path.stem.startswith("demo"):  # scripts, which import each other from their own directory
            name = path.stem
        sources.append(BuildSource(str(path.relative_to(Path.cwd())), name, None))
    sources.append(BuildSource("docs/generate.py", "generate", None))
    try:
        errors = build(sources, options).errors
    except CompileError as blocked:
        errors = blocked.messages
    print("\n".join(errors) or f"mypy: no issues found, farm and {TOOLS.name}/ as farm.tools")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
