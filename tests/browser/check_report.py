"""The report's page in a real browser: what is drawn, how it is used, and how it looks.

    python tests/browser/check_report.py --pictures DIRECTORY [REPORT.html ...]

With reports it only takes pictures of them; without, it checks a page with spans of every kind.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Browser, browser, executable

from farm.observe.fallbacks import FallbackTime
from farm.observe.page import page_of, read_template
from farm.observe.timeline import FRONT, FunctionCost, Kind, Note, Span, Timeline

EVIL: Final = "</script><b>bold</b><!--<script>alert(1)</script>@@DATA@@&amp;\u2028'\"`${1}"
CTRL, SHIFT = 2, 8
LOOKS: Final = [
    (f"{width}-{'dark' if dark else 'light'}.png", width, dark) for width in (1280, 360) for dark in (False, True)
]


def sample(spans: int = 300) -> Timeline:
    """A recording with spans of every kind, and a function with a name that would break out of a page."""
    kinds = list(Kind)
    made = []
    for number in range(spans):
        kind = kinds[number % len(kinds)]
        worker = None if kind in (Kind.LOADED, Kind.LOCAL, Kind.FALLBACK) else 100 + number % 4
        group = f"worker {worker}" if worker else f"{FRONT}: Python, MainThread" if kind is Kind.FALLBACK else FRONT
        began = number // 4 * 0.4 + number % 3 * 0.01
        name = EVIL if number % 50 == 7 else f"model.kernel_{number % 40}(array(float64, 1d, C))"
        queued = None if worker is None else 0.25
        made.append(
            Span(
                group=group,
                kind=kind,
                name=name,
                began_s=began,
                ended_s=began + 0.05 + number % 7 * 0.05,
                queued_s=queued,
                worker=worker,
                detail=EVIL if number % 25 == 3 else "",
            )
        )
    costs = [(EVIL, 12.5), *((f"model.kernel_{number}", 12.0 - number) for number in range(14))]
    return Timeline(
        program=EVIL,
        pid=4711,
        python="3.11.7",
        began_at=1_700_000_000.0,
        length_s=max(span.ended_s for span in made),
        spans=tuple(made),
        notes=(Note(1.5, EVIL),),
        counters={
            "compiled": 30,
            "loaded": 90,
            "local": 3,
            "compile_s": 80.5,
            "saved_s": 245.0,
            "fallback_calls": 9000,
        },
        degraded={"DISK_FULL": 2, EVIL: 1},
        functions=tuple(
            FunctionCost(function=name, compiled=1, loaded=2, local=0, compile_s=cost, load_s=0.01, saved_s=2.0)
            for name, cost in costs
        ),
        fallbacks={EVIL: FallbackTime(10, 1.5, 2.5), "model.kernel_1": FallbackTime(8990, 0.5, 0.5)},
    )


def write(folder: Path, timeline: Timeline) -> Path:
    path = folder / "report.html"
    path.write_text(page_of(timeline, read_template()), encoding="utf-8")
    return path


def data(page: Browser, name: str) -> float:
    return float(page.run(f"document.getElementById('timeline').dataset.{name}"))


def view(page: Browser) -> tuple[float, float]:
    return data(page, "from"), data(page, "to")


def check_drawn(page: Browser, timeline: Timeline) -> None:
    """Every span is in the data, is drawn, and can be seen at its middle."""
    assert data(page, "spans") == data(page, "drawn") == len(timeline.spans)
    unseen = page.run("""(() => {
        const canvas = document.getElementById('timeline'), pen = canvas.getContext('2d');
        const share = canvas.width / canvas.clientWidth;
        const image = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        const pixel = (x, y) => image[Math.floor(y * share) * canvas.width + Math.floor(x * share)];
        const back = image[image.length - 1];
        return canvas.farm.boxes().filter(([x, y, w, h]) => pixel(x + w / 2, y + h / 2) === back).length;
    })()""")
    assert unseen == 0, f"{unseen} spans are not to be seen"
    kinds = len({span.kind for span in timeline.spans})
    assert page.run("document.querySelectorAll('#legend li').length") == kinds


def check_text(page: Browser) -> None:
    """What a program calls its functions is text, everywhere, and whole."""
    assert page.run("document.querySelectorAll('b').length") == 0
    shown = EVIL.replace("\u2028", "")
    heads = page.run("[...document.querySelectorAll('tbody th, tbody td, h1')].map(one => one.textContent)")
    assert sum(shown in head.replace("\u2028", "") for head in heads) >= 4
    assert page.run("document.querySelectorAll('script').length") == 2
    page.run("document.getElementById('list').open = true")
    page.settle()
    rows = page.run("document.querySelectorAll('#list tbody tr').length")
    assert rows == data(page, "spans")
    page.run("document.getElementById('list').open = false")


def check_keyboard(page: Browser) -> None:
    page.run("document.getElementById('timeline').focus()")
    whole = view(page)
    page.key("ArrowRight")
    page.key("ArrowRight")
    first = page.run("document.getElementById('details').textContent")
    assert data(page, "chosen") >= 0 and "from" in first and "for" in first
    page.key("ArrowDown")
    assert page.run("document.getElementById('details').textContent") != first
    page.key("+")
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.key("ArrowRight", SHIFT)
    assert view(page)[0] > zoomed[0]
    page.key("-")
    page.key("0")
    assert view(page) == whole
    page.key("Escape")
    assert data(page, "chosen") == -1
    names = page.run("[...document.querySelectorAll('button')].map(one => one.ariaLabel || one.textContent)")
    assert all(names), "each button has a name"


def box(page: Browser) -> tuple[float, float, float, int]:
    """A drawn span that is wide enough to be hit, in page coordinates: x, y, width, index."""
    page.run("document.getElementById('timeline').scrollIntoView({block: 'start'})")
    x, y, wide, index = page.run("""(() => {
        const canvas = document.getElementById('timeline'), place = canvas.getBoundingClientRect();
        const [x, y, w, h, index] = canvas.farm.boxes().reduce((best, one) => one[2] > best[2] ? one : best);
        return [place.left + x + w / 2, place.top + y + h / 2, w, index];
    })()""")
    return x, y, wide, index


def check_mouse(page: Browser) -> None:
    x, y, _, index = box(page)
    whole = view(page)
    page.mouse("mouseMoved", x, y)
    page.settle()
    assert page.run("!document.getElementById('tip').hidden && document.getElementById('tip').textContent.length > 5")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseReleased", x, y, button="left", clickCount=1)
    page.settle()
    assert data(page, "chosen") == index
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=CTRL)
    page.settle()
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    for moved in (20, 60, 100):
        page.mouse("mouseMoved", x - moved, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
    page.settle()
    panned = view(page)
    assert abs((panned[1] - panned[0]) - (zoomed[1] - zoomed[0])) < 1e-6 and panned[0] != zoomed[0]
    assert data(page, "chosen") == index, "dragging chooses nothing"
    page.run("document.getElementById('whole').click()")
    page.settle()
    assert view(page) == whole


def check_touch(page: Browser) -> None:
    x, y, _, index = box(page)
    whole = view(page)
    page.touch("touchStart", (x, y))
    page.touch("touchEnd")
    page.settle()
    assert data(page, "chosen") == index
    page.touch("touchStart", (150, y))
    page.touch("touchStart", (150, y), (210, y))
    page.touch("touchMove", (120, y), (240, y))
    page.touch("touchMove", (90, y), (270, y))
    page.touch("touchEnd")
    page.settle()
    pinched = view(page)
    assert pinched[1] - pinched[0] < (whole[1] - whole[0]) * 0.7
    page.run("document.getElementById('whole').click()")
    page.settle()


def milliseconds_per_frame(page: Browser) -> float:
    """What drawing takes, over thirty steps of zoom."""
    return float(
        page.run("""new Promise(done => {
        const button = document.getElementById('closer'), began = performance.now();
        let left = 30;
        const step = () => {
            if (!left--) return done((performance.now() - began) / 30);
            button.click();
            requestAnimationFrame(step);
        };
        step();
    })""")
    )


def check(page: Browser, folder: Path, pictures: Path | None = None) -> dict[str, Any]:
    """All of it. Gives figures; raises AssertionError."""
    timeline = sample()
    path = write(folder, timeline)
    backs = []
    for name, width, dark in LOOKS:
        page.open(path, width, dark=dark, phone=width < 500)
        check_drawn(page, timeline)
        assert page.run("document.scrollingElement.scrollWidth") <= width, f"wider than {width} px"
        backs.append(page.run("getComputedStyle(document.body).backgroundColor"))
        if pictures is not None:
            page.picture(pictures / name)
    assert backs[0] != backs[1]
    check_touch(page)
    page.open(path, 1280)
    check_text(page)
    check_keyboard(page)
    check_mouse(page)
    assert page.requests == [path.as_uri()], page.requests
    page.open(write(folder, sample(5000)), 1280)
    check_drawn(page, sample(5000))
    figures = {"ms for each frame of 5,000 spans": round(milliseconds_per_frame(page), 1)}
    page.open(write(folder, Timeline(program="p", pid=1, python="3", began_at=0.0, length_s=0.0, spans=())), 360)
    assert data(page, "spans") == 0
    assert page.problems == [], page.problems
    return figures


def main() -> int:
    """Check, or take pictures of reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="where pictures of the page go")
    parser.add_argument("reports", nargs="*", type=Path, help="take pictures of these, and check nothing")
    arguments = parser.parse_args()
    program = executable()
    if program is None:
        print("skipped: there is no Chromium (Debian: apt-get install chromium)")
        return 0
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, browser(program, Path(name) / "p") as page:
        if arguments.reports:
            for report in arguments.reports:
                for look, width, dark in LOOKS:
                    page.open(report.absolute(), width, dark=dark, phone=width < 500)
                    page.picture((arguments.pictures or Path()) / f"{report.stem}-{look}")
            return 0
        began = time.perf_counter()
        for what, figure in check(page, Path(name), arguments.pictures).items():
            print(f"{what}: {figure}")
        print(f"all is well, in {time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
