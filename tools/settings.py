"""The settings that a command works with: those of the environment, changed by its options."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from farm.config import Config
from farm.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

WRONG_SETTING: Final = 2
"""The exit code of wrong usage, which click gives to a wrong option too."""


class SettingError(click.ClickException):
    """A setting does not parse: one line that names it, and no usage text."""

    exit_code = WRONG_SETTING


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, and what was said about variables that are none."""

    config: Config
    unknown: tuple[str, ...]


def read_settings(cache_dir: str | None) -> Settings:
    """The environment's settings; an option that was given replaces its variable. Raises SettingError."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config = Config.from_environment()
            if cache_dir is not None:
                config = config.with_changes(cache_dir=cache_dir)
        except ConfigError as error:
            raise SettingError(str(error)) from None
    return Settings(config, tuple(str(one.message) for one in caught))


def settings(cache_dir: str | None) -> Config:
    """`read_settings`, with a line on standard error for each variable that is none."""
    found = read_settings(cache_dir)
    for text in found.unknown:
        click.echo(f"Warning: {text}", err=True)
    return found.config


JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document, for machines.")


def cache_dir_option(command: F) -> F:
    """`--cache-dir`, for every command that looks at a cache directory."""
    text = "The cache directory, instead of FARM_CACHE_DIR or the user's own."
    return click.option("--cache-dir", metavar="PATH", help=text)(command)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print what the block warns of as a line each on standard error, without the source line that Python adds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for one in caught:
                click.echo(f"Warning: {one.message}", err=True)
