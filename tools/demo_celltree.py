"""One run of the demo with a real library, in its own process: point location in unstructured meshes.

`numba-celltree` knows nothing of the farm: `farm.enable()` stands in for numba's decorators before it is
imported. A service gets meshes and batches of points in turn; it builds the search tree of a mesh, and finds
the cell of each point. The first result is there when the first batch is located in the first tree.

The library takes work memory from the stack, by an intrinsic in functions that are inlined into their callers.
Called from Python they would give memory that is already gone (tried: wrong cells, then a crash). So its calls
wait for the workers, as calls of numba wait for numba, and only a filled store makes the first one short.
"""

import dataclasses
import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from demo_compiler import Kernel
from demo_report import save_results
from demo_run import Loop, arguments, make_watcher, tell_parent

import farm

CELLS_ALONG: Final = 72
"""Squares along an edge of the mesh, each cut into two triangles: 10,368 cells."""
POINTS: Final = 250
WAITS: Final = "The library works on stack memory, which Python cannot: its calls wait for the workers."

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


def triangles(random: np.random.Generator, along: int = CELLS_ALONG) -> tuple[Floats, Integers]:
    """Vertices and faces of a mesh on the unit square whose inner vertices are shifted at random."""
    places = np.linspace(0.0, 1.0, along + 1)
    x, y = np.meshgrid(places, places)
    shift = random.uniform(-0.3 / along, 0.3 / along, (2, *x.shape))
    inner = (x > 0) & (x < 1) & (y > 0) & (y < 1)
    vertices = np.stack([(x + inner * shift[0]).ravel(), (y + inner * shift[1]).ravel()], axis=1)
    row, column = np.divmod(np.arange(along * along), along)
    corner = row * (along + 1) + column
    above = corner + along + 1
    lower = np.stack([corner, corner + 1, above + 1], axis=1)
    upper = np.stack([corner, above + 1, above], axis=1)
    return vertices, np.concatenate([lower, upper])


def work() -> list[Kernel]:
    """The two steps of the service, over the library as it is imported now."""
    from numba_celltree import CellTree2d, creation, geometry_utils, query  # type: ignore[import-untyped]

    tree: Any = None

    def build_tree(vertices: Floats, faces: Integers) -> tuple[npt.NDArray[Any], ...]:
        nonlocal tree
        tree = CellTree2d(vertices, faces, fill_value=-1)
        return (*(tree.nodes[field] for field in tree.nodes.dtype.names), tree.bb_indices, tree.bb_coords)

    def locate(points: Floats) -> Integers:
        cells: Integers = tree.locate_points(points)
        return cells

    return [
        Kernel(
            build_tree,
            triangles,
            (geometry_utils.counter_clockwise, geometry_utils.build_face_bboxes, creation.initialize),
        ),
        Kernel(locate, lambda random: (random.uniform(-0.05, 1.05, (POINTS, 2)),), (query.locate_points,)),
    ]


def main() -> int:
    """Run the service once."""
    options = arguments(__doc__.partition("\n")[0]).parse_args()
    watcher = make_watcher(options.compiler, options.cache)
    if options.compiler == "farm":
        farm.enable()
    loop = Loop(work(), watcher, tell_parent)
    report = loop.run(options.limit_s)
    if options.compiler == "farm":
        report = dataclasses.replace(report, notes=(WAITS, *report.notes))
    save_results(options.results, loop.results())
    report.write(options.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
