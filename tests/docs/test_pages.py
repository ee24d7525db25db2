"""Every example of every page is run, and what it prints is what the page says."""

from pathlib import Path

import pytest
from page_blocks import PAGES, ROOT, RUN, anchors_of, blocks_of, hidden_in, links_of
from page_runner import run_page


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(300)  # the tutorial runs a dozen programs, one after the other
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_examples_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ran = run_page(text, tmp_path, name_of(page))
    assert ran >= sum(block.language in RUN and block.file_name is None for block in blocks_of(text))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_hides_an_example(page: Path) -> None:
    assert hidden_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_to_a_file_here_leads_to_one(page: Path) -> None:
    for link in links_of(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors_of(target.read_text(encoding="utf-8")), link
