"""What one function body can do to the objects that it gets: which it writes to, returns, puts into others.

Values are followed through variables without regard to order: each variable has the set of objects that it may hold,
and each object the set of those that may be inside it. Both sets only grow, so this ends.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from farm.job import pure
from farm.job.held import Held
from farm.job.objects import (
    ANY,
    OTHER,
    PLAIN,
    SLICE,
    Attribute,
    Callees,
    Inner,
    Known,
    Made,
    Object,
    Outside,
    Parameters,
    Root,
    Summary,
    Write,
    given_to,
    may_hold,
)
from farm.job.pure import Effect
from farm.port.flow import Arguments, Flow, Kind, Statement


class Body(Held):
    """The objects in one body, found by going over its statements until nothing new turns up."""

    def __init__(
        self,
        flow: Flow,
        parameters: Parameters,
        scope: Mapping[str, object],
        names: Callable[[Kind, str], Iterable[Object]],
        defaults: Mapping[int, Iterable[Object]],
        callees: Callees,
    ) -> None:
        super().__init__(parameters.star, callees.object_of)
        self.flow = flow
        self.scope = scope
        self.parameters = parameters
        self.names = names
        self.defaults = defaults
        self.callees = callees
        self.writes: set[Write] = set()
        self.returned: set[Object] = set()
        self.yielded: set[Object] = set()
        self.codes: set[types.CodeType] = set()
        self.loops = flow.loops
        self.reason: str | None = None
        self.yields = False
        self.final = False

    def solve(self) -> Summary:
        """Goes over the statements until nothing changes, and then once more to see what is not allowed."""
        while self.changed:
            self.changed = False
            self._pass()
        self.final = True
        self._pass()
        stored = {
            (holder.position, one)
            for holder, items in self.inside.items()
            if isinstance(holder, Root)
            for one in self._caller_objects(items)
        }
        returned = self.read(self.returned)
        makes = {one for one in returned if isinstance(one, Made) and one.number >= 0}
        return Summary(
            self.reason,
            frozenset(self.writes),
            frozenset(self._caller_objects(returned - makes)),
            self.yields or bool(makes) or any(isinstance(one, Known) for one in returned),
            frozenset(self._caller_objects(makes | self.yielded)),
            frozenset(stored),
            self.loops,
            frozenset(self.codes),
            self.yields,
        )

    def _caller_objects(self, objects: Iterable[Object]) -> set[int | Outside]:
        found = self.reach(objects)
        roots: set[int | Outside] = {one.position for one in found if isinstance(one, Root)}
        return roots | {one for one in found if isinstance(one, Outside)}

    def _refuse(self, reason: str) -> None:
        if self.final and self.reason is None:
            self.reason = reason

    # -- effects --------------------------------------------------------------------------------------

    def write(self, objects: Iterable[Object], reason: str = "writes to") -> None:
        """Something changes these objects themselves."""
        for one in objects:
            match one:
                case Root():
                    write = (one.position, one.only_if, one.fewer)
                    self.changed = self.changed or write not in self.writes
                    self.writes.add(write)
                case Outside():
                    self._refuse(f"{reason} {one.where}")
                case Known():
                    self._refuse(f"{reason} the global {one.label}")
                case _:
                    pass

    # -- statements -----------------------------------------------------------------------------------

    def _pass(self) -> None:
        for number, one in enumerate(self.flow.statements):
            self._statement(number, one)

    def _statement(self, number: int, one: Statement) -> None:
        match one.kind:
            case Kind.PARAMETER:
                whole = Root(one.detail)
                self.hold(one.target, [whole.part if one.detail == self.parameters.star else whole])
                self.hold(one.target, self.defaults.get(one.detail, ()))
            case Kind.CONSTANT:
                self.hold(one.target, [self.callees.object_of(one.detail, repr(one.detail))])
            case Kind.GLOBAL | Kind.CAPTURED:
                self.hold(one.target, self.names(one.kind, one.detail))
            case Kind.FRESH | Kind.UNARY:
                self.hold(one.target, [PLAIN])
            case Kind.ALIAS:
                self.hold(one.target, self.objects(one.inputs[0]))
            case Kind.ELEMENT:
                more = self.integers(one.inputs[1:]) if one.detail is None else 1
                self.hold(one.target, self.elements(self.objects(one.inputs[0]), more))
            case Kind.ATTRIBUTE:
                self._attribute(one)
            case Kind.BUILD:
                made = Made(number)
                self.hold(one.target, [made])
                for name in one.inputs:
                    self.put(made, self.objects(name))
            case Kind.BINARY:
                self._binary(number, one.target, one.detail, *one.inputs)
            case Kind.INPLACE:
                self._inplace(number, one.target, one.detail, *one.inputs)
            case Kind.SET_ITEM | Kind.SET_ATTRIBUTE:
                self._set(self.data(one.inputs[0]), self.objects(one.inputs[1]))
            case Kind.DELETE_ITEM:
                self.write(self.data(one.inputs[0]))
            case Kind.CALL:
                self._call(number, one)
            case Kind.FUNCTION:
                self.codes.add(one.detail)
                self.hold(one.target, [self._inner(one)])
            case Kind.RETURN:
                self.grow(self.returned, self.objects(one.inputs[0]))
            case Kind.RAISE:
                self._raise(one)
            case Kind.YIELD:
                self.yields = True
                self.grow(self.yielded, self.objects(one.inputs[0]))
                self.hold(one.target, [PLAIN])
            case Kind.WITH:
                self._refuse("has a with block")

    def _inner(self, statement: Statement) -> Inner:
        known = (one for one in self.objects(statement.target or "") if isinstance(one, Inner))
        return next((one for one in known if one.statement is statement), None) or Inner(self, statement)

    def _raise(self, one: Statement) -> None:
        for name in one.inputs:
            for thing in self.objects(name):
                if isinstance(thing, Known) and pure.effect_of(thing.value) is None:
                    self._refuse(f"raises {thing.label}, and nothing is known of what making that does")

    def _attribute(self, one: Statement) -> None:
        for thing in tuple(self.objects(one.inputs[0])):
            member = self.callees.member(thing, one.detail) if isinstance(thing, Known) else None
            self.hold(one.target, [member or Attribute(one.inputs[0], one.detail)])

    def _set(self, holders: set[Object], values: set[Object]) -> None:
        self.write(holders)
        for holder in holders:
            self.put(holder, values)

    def _binary(self, number: int, target: str | None, operator: Any, left: str, right: str) -> None:
        self.hold(target, [PLAIN])
        if operator not in pure.JOINING:
            return
        sides = [{one for one in self.data(name) if may_hold(one)} for name in (left, right)]
        multiplies = operator.__name__ in {"mul", "imul"}
        if not (any(sides) if multiplies else all(sides)):
            return
        for one in sides[0] | sides[1]:
            if isinstance(one, Root):
                # Held as it is, not as something new: arithmetic is everywhere, and this keeps the sets small.
                self.hold(target, [self.on_condition(one, one.position)])
            else:
                self.hold(target, [Made(number)])
                self.put(Made(number), self.inside_if_container([one]))

    def _inplace(self, number: int, target: str | None, operator: Any, left: str, right: str) -> None:
        changed = {one for one in self.data(left) if not isinstance(one, Known)}
        self.write(changed)
        self.hold(target, changed)
        if operator in pure.EXTENDING:
            for one in changed:
                self.put(one, self.elements(self.objects(right), 1))
        self._binary(number, target, operator, left, right)

    # -- calls ----------------------------------------------------------------------------------------

    def _call(self, number: int, one: Statement) -> None:
        arguments: Arguments = one.detail
        called = tuple(self.objects(one.inputs[0]))
        if not called:
            self._refuse("calls something that cannot be followed")
        values = {name: self.objects(name) for name in arguments.all()}
        values |= {name: self.reach(values[name]) for name in arguments.stars}
        for thing in called:
            self.hold(one.target, self._result(number, thing, arguments, values))

    def _result(
        self, number: int, thing: Object, arguments: Arguments, values: Mapping[str, set[Object]]
    ) -> set[Object]:
        match thing:
            case Known():
                return self._call_known(number, thing, arguments, values)
            case Attribute():
                return self._call_method(number, thing, arguments, values)
            case Inner():
                return self._call_inner(number, thing, arguments, values)
            case Root():
                names = self.parameters.names
                name = names[thing.position] if thing.position < len(names) else "a captured variable"
                self._refuse(f"calls what {name} holds")
            case Outside():
                self._refuse(f"calls {thing.where}, which is not known to be pure")
            case _:
                self._refuse("calls something that cannot be followed")
        return {Made(number)}

    def _call_inner(
        self, number: int, inner: Inner, arguments: Arguments, values: Mapping[str, set[Object]]
    ) -> set[Object]:
        code, captured = inner.statement.detail, self._captured(inner)
        summary, parameters = self.callees.inner(inner, captured)
        given = given_to(arguments, parameters, values)
        count = len(parameters.names)
        defaults = inner.statement.inputs[len(code.co_freevars) :]
        if inner.owner is self:
            for name in defaults:
                for position in range(count):
                    given.setdefault(position, set()).update(self.objects(name))
            given.update((count + place, set(captured[name])) for place, name in enumerate(code.co_freevars))
        else:  # what it captures are objects of another body
            places = [place for pair in summary.stored for place in pair]
            places += [place for position, only_if, _ in summary.writes for place in (position, only_if or 0)]
            if defaults or any(
                isinstance(place, int) and place >= count for place in (*places, *summary.returns, *summary.holds)
            ):
                self._refuse(f"calls {code.co_name}, which captures what another function made")
        return self._apply(number, code.co_name, summary, given)

    def _captured(self, inner: Inner) -> dict[str, frozenset[Object]]:
        names = inner.statement.detail.co_freevars
        variables = inner.statement.inputs[: len(names)]
        return {name: frozenset(inner.owner.objects(one)) for name, one in zip(names, variables, strict=True)}

    def _apply(self, number: int, label: str, summary: Summary, given: dict[int, set[Object]]) -> set[Object]:
        """What calling a function with this summary does here."""
        if summary.reason is not None:
            self._refuse(f"calls {label}, which {summary.reason}")
        self.loops = self.loops or summary.loops
        self.codes |= summary.codes
        reached = {position: self.reach(values) for position, values in given.items()}
        for position, only_if, fewer in summary.writes:
            self.write(self._written(given.get(position, set()), only_if, fewer, given))
        for position, stored in summary.stored:
            for holder in reached.get(position, set()):
                self.put(holder, self._at([stored], reached))
        # Nobody knows whether that is a number: it may be None, or a slice.
        found = {PLAIN, OTHER} | self._at(summary.returns, reached)
        if summary.makes:
            made = Made(number)
            self.put(made, {made} | self._at(summary.holds, reached))
            found.add(made)
        return found

    def _at(self, places: Iterable[int | Outside], reached: Mapping[int, set[Object]]) -> set[Object]:
        found: set[Object] = set()
        for one in places:
            found |= {one} if isinstance(one, Outside) else reached.get(one, set())
        return found

    def _written(
        self, values: set[Object], only_if: int | None, fewer: int, given: dict[int, set[Object]]
    ) -> set[Object]:
        """Objects that a callee writes to, if one of its Roots stands for these values."""
        if fewer == 0:
            return self.read(values)
        if fewer != ANY:
            found: set[Object] = set()
            for one in self.read(values):
                if isinstance(one, Root):
                    found |= {one.at(fewer)} | self.reach(self.inside.get(Root(one.position), ()))
                else:
                    found |= self.reach([one])
            return found
        objects = self.reach(values)
        if only_if is None:
            return objects
        holders = {one for one in self.read(given.get(only_if, set())) if may_hold(one)}
        if not holders:
            return set()
        if len(holders) == 1 and isinstance(holder := next(iter(holders)), Root) and holder.only_if is None:
            return {self.on_condition(thing, holder.position) for thing in objects}
        return objects

    def _call_known(
        self, number: int, known: Known, arguments: Arguments, values: Mapping[str, set[Object]]
    ) -> set[Object]:
        if _is_hashable(known.value) and known.value in pure.OPERATORS:
            return self._call_operator(number, known, arguments, values)
        keywords = frozenset(keyword for keyword, _ in arguments.keywords)
        count = len(arguments.positional) if not arguments.stars else pure.MANY
        effect = pure.effect_of_call(known.value, count, keywords)
        if effect is not None:
            many = len(arguments.positional) == 1 or bool(arguments.stars)
            self.loops = self.loops or (many and known.value in pure.ITERATING)
            outs = arguments.positional[pure.first_out(known.value) :]
            keys = [name for keyword, name in arguments.keywords if keyword == "key"]
            for name in (*keys, *(arguments.positional[:1] if known.value in pure.CALLING else ())):
                if any(thing not in (PLAIN, OTHER) and not self._is_callable(thing) for thing in values[name]):
                    self._refuse(f"calls {known.label} with a function that cannot be followed")
            self.codes |= pure.codes_of(known.value)
            if known.value is slice:
                return {SLICE}
            plain = {OTHER} if known.value in pure.NO_NUMBERS else set[Object]()
            return plain | self._apply_effect(number, effect, arguments, values, outs)
        answer = self.callees.called(known)
        if answer is None:
            answer = f"calls {known.label}, which is not known to be pure"
        if isinstance(answer, str):
            self._refuse(answer)
            return {Made(number)}
        summary, parameters = answer
        return self._apply(number, known.label, summary, given_to(arguments, parameters, values))

    def _call_operator(
        self, number: int, known: Known, arguments: Arguments, values: Mapping[str, set[Object]]
    ) -> set[Object]:
        """`operator.add(a, b)`: as the sign would do it."""
        names = arguments.positional
        if arguments.keywords or arguments.stars or len(names) not in (1, 2):
            self._refuse(f"calls {known.label} with arguments that cannot be followed")
        if known.value in pure.JOINING and len(names) == 2:
            target = f"{number}"
            self._binary(number, target, known.value, *names)
            return self.objects(target)
        return {PLAIN}

    def _call_method(
        self, number: int, method: Attribute, arguments: Arguments, values: Mapping[str, set[Object]]
    ) -> set[Object]:
        receiver = self.data(method.variable)
        effect = pure.effect_of_method(method.name)
        outside = {one for one in receiver if isinstance(one, Known) and not isinstance(one.value, tuple)}
        if outside:
            label = f"{next(iter(outside)).label}.{method.name}"
            random = any(pure.draws_random_numbers(getattr(one.value, method.name, None)) for one in outside)
            self._refuse(
                f"draws random numbers ({label})" if random else f"calls {label}, which is not known to be pure"
            )
        if method.name == "copy":
            made = Made(number)
            inside = self.inside_if_container(one for one in receiver if may_hold(one))
            self.put(made, inside)
            return {made, PLAIN} if inside else {PLAIN}
        if effect is None:
            self._refuse(f"calls the method {method.name}, which is not known to be pure")
            return {Made(number)}
        result: set[Object] = {PLAIN, OTHER}  # texts have methods too
        if effect is Effect.WRITES_FIRST:
            self.write(receiver)
            for name in arguments.all():
                for holder in receiver:
                    self.put(holder, values[name] | self.elements(values[name], 1))
        outs = arguments.positional[2:] if method.name == "clip" else ()
        result |= self._apply_effect(number, Effect.FRESH, arguments, values, outs)
        if effect is not Effect.FRESH:
            made = Made(number)
            found = self.elements(receiver) | {made, OTHER}
            for name in arguments.all():
                found |= self.elements(values[name]) | values[name]
            found = {one.part if isinstance(one, Root) else one for one in found}
            self.put(made, found)
            result |= found
        return result

    def _apply_effect(
        self,
        number: int,
        effect: Effect,
        arguments: Arguments,
        values: Mapping[str, set[Object]],
        outs: tuple[str, ...],
    ) -> set[Object]:
        everything = set[Object]().union(*values.values()) if values else set()
        inside = self.elements(everything) | everything
        for thing in everything:
            if self._is_callable(thing):  # map, filter, sorted, reduce
                self.loops = True
                for name in arguments.all():
                    everything = everything | self._result(number, thing, Arguments((), (), (name,)), {name: inside})
        written = {name for keyword, name in arguments.keywords if keyword == "out"} | set(outs)
        if arguments.stars and not written and effect is not Effect.FRESH:
            written = set(arguments.stars) if effect is Effect.WRITES_FIRST else set()
        if effect is Effect.WRITES_FIRST:
            first = arguments.positional[:1] or arguments.all()
            written |= set(first)
            for name in first:
                for holder in self.read(values[name]):
                    self.put(holder, inside)
        for name in written:
            self.write(self.read(values[name]))
        result: set[Object] = {PLAIN}
        for name in written:
            result |= values[name]
        if effect is not Effect.FRESH:
            made = Made(number)
            parts = {one.part if isinstance(one, Root) else one for one in inside | everything}
            self.put(made, parts | {made})
            result |= parts | {made, OTHER}
        return result

    def _is_callable(self, thing: Object) -> bool:
        if isinstance(thing, Known):
            return pure.effect_of(thing.value) is None and self.callees.called(thing) is not None
        return isinstance(thing, Inner)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except Exception:
        return False
    return True
