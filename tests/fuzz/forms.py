"""All forms by name, which is the name of the edit of what they hold."""

from typing import Final

from extension_forms import EXTENSIONS
from form import Form
from other_forms import ERRORS, OPTIONS
from plain_forms import CALLS, READS

FORMS: Final[dict[str, Form]] = {**READS, **CALLS, **EXTENSIONS, **ERRORS, **OPTIONS}
