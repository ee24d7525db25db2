"""Which objects each variable of a body may hold, and which may be inside which: two kinds of sets that only grow."""

from collections.abc import Callable, Iterable

from farm.job import pure
from farm.job.objects import ANY, NOTHING, PLAIN, SLICE, Attribute, Known, Made, Object, Root


class Held:
    """The sets, and the questions about them. `star` is the position of the parameter `*args`, always a tuple."""

    def __init__(self, star: int | None, object_of: Callable[[object, str], Object]) -> None:
        self.star = star
        self.object_of = object_of
        self.held: dict[str, set[Object]] = {}
        self.inside: dict[Object, set[Object]] = {}
        self.changed = True

    def hold(self, target: str | None, objects: Iterable[Object]) -> None:
        if target is not None:
            self.grow(self.held.setdefault(target, set()), objects)

    def put(self, holder: Object, objects: Iterable[Object]) -> None:
        """Objects go into another, under the condition that a parameter they go into is a container."""
        if isinstance(holder, Root):
            position = holder.position
            objects = [self.on_condition(one, position) for one in objects if not _is_part(one, position)]
            holder = Root(position)
        elif not isinstance(holder, Made) or holder.number < 0:
            return
        self.grow(self.inside.setdefault(holder, set()), objects)

    def grow(self, known: set[Object], objects: Iterable[Object]) -> None:
        before = len(known)
        known.update(objects)
        self.changed = self.changed or len(known) != before

    def objects(self, variable: str) -> set[Object]:
        """What a variable may hold, functions and methods as such."""
        return self.held.get(variable, set())

    def data(self, variable: str) -> set[Object]:
        """What a variable may hold, attributes read."""
        return self.read(self.objects(variable))

    def read(self, objects: Iterable[Object]) -> set[Object]:
        """The objects, with attributes replaced by all that the object which has them can hold, however deep."""
        found: set[Object] = {one for one in objects if not isinstance(one, Attribute)}
        seen = set[tuple[Object, bool, bool]]()
        waiting: list[tuple[Object, bool, bool]] = []
        waiting += [(one, False, True) for one in objects if isinstance(one, Attribute)]
        while waiting:
            one, is_field, is_whole = item = waiting.pop()
            if item in seen:
                continue
            seen.add(item)
            if isinstance(one, Attribute):
                # Of an array it is a number or a tuple of numbers; a named tuple may have a field of that name.
                is_field = is_field or one.name in pure.PLAIN_ATTRIBUTES
                is_whole = is_whole and one.name in pure.SHAPE_KEPT
                found |= {PLAIN} if is_field else NOTHING
                waiting.extend((thing, is_field, is_whole) for thing in self.objects(one.variable))
                continue
            if isinstance(one, Root):
                part = one if is_whole else one.part
                found.add(self.on_condition(one, one.position) if is_field else part)
                inside: Iterable[Object] = self.inside.get(Root(one.position), NOTHING)
            else:
                found.add(one)
                inside = self.within(one)
            waiting.extend((thing, is_field, False) for thing in inside)
        return found

    def within(self, one: Object, more: int = ANY) -> Iterable[Object]:
        """What indexing with so many integers, or iterating, gives of one object that is no attribute."""
        if isinstance(one, Root):
            return {one.at(more)} | self.inside.get(Root(one.position), NOTHING)
        if isinstance(one, Made):
            return {one} | self.inside.get(one, NOTHING)
        if isinstance(one, Known):
            items = one.value if isinstance(one.value, tuple) else ()
            return [self.object_of(item, f"{one.label}[...]") for item in items] or [PLAIN]
        return (one,)

    def elements(self, objects: Iterable[Object], more: int = ANY) -> set[Object]:
        """The same for several objects."""
        found: set[Object] = set()
        for one in self.read(objects):
            found.update(self.within(one, more))
        return found

    def integers(self, index: tuple[str, ...]) -> int:
        """How many of the variables in an index are integers, if the rest are slices; else ANY."""
        count = 0
        for name in index:
            found = self.objects(name)
            if found == {PLAIN}:
                count += 1
            elif found != {SLICE}:
                return ANY
        return count

    def reach(self, objects: Iterable[Object]) -> set[Object]:
        """The objects and all that can be got at through them."""
        found: set[Object] = set()
        waiting = list(self.read(objects))
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting.extend(self.read(self.elements([one])))
        return found

    def on_condition(self, one: Object, container: int) -> Object:
        """The same object, reached only if that parameter is a container. The rest of the arguments always is one."""
        if isinstance(one, Root) and one.only_if is None and container != self.star:
            return Root(one.position, container, ANY)
        return one.part if isinstance(one, Root) else one

    def inside_if_container(self, objects: Iterable[Object]) -> set[Object]:
        """What is inside the objects, of parameters on the condition that they are no arrays."""
        found: set[Object] = set()
        for one in objects:
            if isinstance(one, Root):
                found |= {self.on_condition(one, one.position)} | self.inside.get(Root(one.position), NOTHING)
            elif isinstance(one, Made):
                found |= self.inside.get(one, NOTHING)
            else:
                found |= self.elements([one])
        return found


def _is_part(one: Object, position: int) -> bool:
    return (isinstance(one, Made) and one.number < 0) or (isinstance(one, Root) and one.position == position)
