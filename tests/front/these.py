"""For tests of the front: a pool that is up, and a source of a prewarm whose functions are at hand, without names."""

import time
from collections.abc import Iterator
from typing import Any

from farm.ahead.prewarm import Outcome, prewarm
from farm.ahead.sources import Request
from farm.port.dispatch import parse_signature
from farm.port.target import settings


def bring_up(barn: Any) -> None:
    """Have its pool up: then callers who wait do so for a worker."""
    barn.start()
    end = time.monotonic() + 60
    while barn.settler().supply.starting(barn.config, settings()):
        assert time.monotonic() < end, "the pool did not come up"
        time.sleep(0.01)


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
