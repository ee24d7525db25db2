"""Declared: the explicit signatures of one dispatcher, from their queueing to the last installation.

numba compiles explicit signatures at decoration, all of them, and then chooses among them alone. Here they are
queued, and until the last one is in, each call's signature is chosen among the *declared* ones: so the order in
which the workers finish never changes which of them `g(3)` uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from farm.port.dispatch import Signature, Types, choose_declared, converted
from farm.port.role import collects
from farm.port.target import caller_flags

if TYPE_CHECKING:
    from farm.front.dispatcher import FarmDispatcher


class Declared:
    """The explicit signatures of a dispatcher; false if there are none."""

    def __init__(self, dispatcher: FarmDispatcher, signatures: tuple[Signature, ...]) -> None:
        self._dispatcher = dispatcher
        self.signatures = signatures

    def __bool__(self) -> bool:
        return bool(self.signatures)

    def queue(self) -> None:
        """Ask for all of them, without waiting."""
        self._dispatcher.farm().submit(self._dispatcher, self.signatures)

    def wait_for_all(self) -> None:
        """Block until all of them are installed. Raises the error of the first that cannot be compiled."""
        farm = self._dispatcher.farm()
        if collects() and caller_flags() is None:  # they are noted
            return self.queue()
        farm.submit(self._dispatcher, self.signatures, waited=True)
        for arguments, return_type in self.signatures:
            farm.result_for_caller(self._dispatcher, arguments, return_type)

    def choose(self, arguments: Types) -> Types:
        """The declared types that a call with these types uses. Raises TypeError as numba does: none, or two."""
        return choose_declared(self._dispatcher, self.signatures, arguments)

    def returns(self, arguments: Types) -> Any | None:
        """The return type that these types are declared with, or None."""
        return dict(self.signatures).get(arguments)

    def fallback(self, arguments: Types) -> Callable[..., Any]:
        """What runs the fallback for a call that was given these declared types.

        It runs on the numbers that the arguments convert to, and gives a number as the declared return type has it.
        """
        return partial(self._run_body, self._dispatcher.body, arguments)

    def _run_body(self, body: Callable[..., Any], arguments: Types, *folded: Any) -> Any:
        return self.returned(body(*converted(folded, arguments)), arguments)

    def returned(self, result: Any, arguments: Types) -> Any:
        """What the body gives, a number as the declared return type has it."""
        return_type = self.returns(arguments)
        return result if return_type is None else converted((result,), (return_type,))[0]

    def close_list_if_complete(self) -> None:
        """Once all are installed, hand the choice to numba's C code."""
        if all(arguments in self._dispatcher.overloads for arguments, _ in self.signatures):
            self._dispatcher.installation.close_list()
