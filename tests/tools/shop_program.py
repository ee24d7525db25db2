"""A program as users write it, for the tests of `farm run` and `farm prewarm`: a package, and things of `__main__`."""

from pathlib import Path

MODULES = {
    "shop/__init__.py": "",
    "shop/prices.py": """
        from numba import njit

        RATE = 0.19

        @njit("float64(float64)")
        def gross(net):
            return net * (1 + RATE)

        @njit(["int64(int64)", "float64(float64)"])
        def twice(x):
            return x + x
        """,
    "shop/stock.py": """
        import numpy as np
        from numba import njit
        from shop.errors import SoldOut
        from shop.prices import gross

        @njit
        def worth(amounts, price, reserve=1):
            total = 0.0
            for i in range(len(amounts)):
                if amounts[i] < 0:
                    raise SoldOut("negative")
                total += gross(price) * max(amounts[i] - reserve, 0)
            return total
        """,
    "shop/errors.py": """
        class SoldOut(Exception):
            pass
        """,
    "program.py": """
        import enum, sys
        from collections import namedtuple
        from typing import NamedTuple
        import numpy as np
        from numba import njit
        from numba_celltree import geometry_utils
        from shop.errors import SoldOut
        from shop.stock import worth

        Quote = namedtuple("Quote", "price size")

        class Offer(NamedTuple):
            price: float
            until: int

        class TooSmall(ValueError):
            pass

        class MuchTooSmall(TooSmall):
            pass

        class Side(enum.Enum):
            BUY = 1
            SELL = 2

        class Level(enum.IntEnum):
            LOW = 1
            HIGH = 2

        LIMIT = 10

        @njit
        def check(quote):
            if quote.size < 0:
                raise MuchTooSmall("size", quote.size)
            return Offer(quote.price, LIMIT)

        @njit
        def sign(side, level):
            return (1 if side is Side.BUY else -1) * (level == Level.HIGH)

        def scaled(factor):
            @njit
            def scale(x):
                return x * factor
            return scale

        thrice = scaled(3)

        @njit
        def apply(function, x):
            return function(x) + 1

        class Shop:
            @staticmethod
            @njit("int64(int64)")
            def rent(days):
                return days * 7

        def main():
            print(worth(np.arange(4), 2.0), check(Quote(2.0, 3)), sign(Side.SELL, Level.HIGH))
            print(apply(thrice, 5), Shop.rent(2))
            print(geometry_utils.polygon_length(np.array([0, 2, 1, -1])))
            for wrong in (lambda: check(Quote(1.0, -1)), lambda: worth(np.array([-1]), 1.0)):
                try:
                    wrong()
                except (TooSmall, SoldOut) as error:
                    print(repr(error))
            import farm
            assert farm.wait(100)
            stats = farm.stats()
            print(f"compiled {stats.compiled}, loaded {stats.loaded}, local {stats.local}", file=sys.stderr)

        if __name__ == "__main__":
            main()
        """,
}


def write_program(folder: Path) -> Path:
    """Write it into a folder; gives the path of the program."""
    import textwrap

    for name, text in MODULES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder / "program.py"
