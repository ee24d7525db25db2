"""A source of a prewarm: functions that are at hand, and need not be found by a name."""

from collections.abc import Iterator
from typing import Any

from farm.ahead.prewarm import Outcome, prewarm
from farm.ahead.sources import Request
from farm.port.dispatch import parse_signature


class These:
    def __init__(self, wanted: dict[Any, str]) -> None:
        self._wanted = wanted

    def prepare(self) -> tuple[Request, ...]:
        return ()

    def requests(self) -> Iterator[Request]:
        for function, signature in self._wanted.items():
            arguments, return_type = parse_signature(signature)
            yield Request(
                function=function.label,
                signature=signature,
                dispatcher=function,
                arguments=arguments,
                return_type=return_type,
            )


def fill(wanted: dict[Any, str], *cpus: str) -> dict[str, list[Outcome]]:
    """Compile them into the stores of their farms; what became of each, by CPU."""
    rows = prewarm([These(wanted)], cpus=cpus).rows
    assert all(not function.overloads for function in wanted), "something was loaded"
    return {text: [row.outcome for row in rows if row.cpu == text] for text in cpus}
