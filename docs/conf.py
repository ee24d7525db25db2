"""Sphinx's settings. `make docs` builds the pages; a warning, as of a reference that leads nowhere, is an error.

Of what a built page loads nothing comes from elsewhere: that is looked at once the pages are written.
"""

import importlib
import inspect
import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).parent))

import generate

project = "farm"
release = version = version_of("numba-farm")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "farm"
html_static_path = ["_static"]
html_css_files = ["farm.css"]
html_copy_source = False
html_show_sourcelink = False
smartquotes = False
html_show_copyright = False

myst_heading_anchors = 3
nitpicky = True
# What the signatures name and these pages do not describe: numba's classes, and the farm's inner ones.
nitpick_ignore_regex = [
    ("py:.*", r"(numba|concurrent|os|collections|pathlib|typing|types|enum)\..*"),
    ("py:.*", r"\w+"),
    ("py:.*", r"farm\.(config|front|job|observe|pool|port|reasons|store)\..*"),
]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# The docstrings' backticks are code: they are read in the source more often than here.
default_role = "code"

MARK: Final = re.compile(r"^<!-- generated: ([a-z_]+) -->$", re.MULTILINE)
INNER: Final = re.compile(r": see `(farm\.front\.[\w.]+)`\.$")
LOADS: Final = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b[^>]*\srel=["']?(?:stylesheet|preload|preconnect|dns-prefetch|icon)\b[^>]*https?://[^>]*>"""
    r"""|@import\s[^;]*https?://[^;]*|url\(["']?(?:https?:)?//[^)]*\)"""
)


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what `generate` makes in the place of its marks."""
    source[0] = MARK.sub(lambda found: generate.PARTS[found[1]](), source[0])


def set_sections(app: Sphinx, what: str, name: str, described: object, options: object, lines: list[str]) -> None:
    """A docstring that sends its reader to an inner one becomes that one; its sections become titles and lists."""
    sends = INNER.search(lines[0]) if lines else None
    if sends is not None:
        module, _, attribute = sends[1].rpartition(".")
        lines[:] = inspect.getdoc(getattr(importlib.import_module(module), attribute)).splitlines()  # type: ignore[union-attr]
    for i in range(len(lines) - 1, 0, -1):
        if lines[i] and lines[i] == "-" * len(lines[i - 1]):
            lines[i - 1 : i + 1] = [f"**{lines[i - 1]}**", ""]


def stay_at_home(app: Sphinx, error: Exception | None) -> None:
    """Refuse pages that load a font, a script or a picture from elsewhere."""
    for path in Path(app.outdir).rglob("*") if error is None else ():
        if path.suffix in {".html", ".css", ".svg"} and (found := LOADS.search(path.read_text(encoding="utf-8"))):
            raise ExtensionError(f"{path} loads something from elsewhere: {found[0][:200]}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", set_sections)
    app.connect("build-finished", stay_at_home)
    return {"parallel_read_safe": True}
