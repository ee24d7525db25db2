"""The blocks of a page: which are run, which are shown, and whether what came out is what the page says.

    ```python     run in the page's own interpreter, one after the other, as in a notebook. One whose first line is
                  `# name.py` is written to that file instead; so is a block of any language that says so.
    ```console    its `$ ` lines are run, and what they print is compared with the lines below them.
    ```output     what the python block just above it prints.

In what is compared, `...` stands for whatever there is on that line, and a line of nothing else for any lines.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parent.parent.parent
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN: Final = frozenset({"python", "console"})
SHOWN: Final = frozenset({"output", "text", "toml", "yaml", "ini", "json", "dockerfile"})
DIRECTIVES: Final = frozenset({"{toctree}", "{eval-rst}"})
"""What pages ask of Sphinx in a fence. Examples in them would not be seen, and are looked for."""
FILE_NAME: Final = re.compile(r"(?:#|//) ([\w./-]+\.\w+|Dockerfile)")
LOOKS_RUN: Final = re.compile(
    r"^\s*(?:\$ |>>> |import farm\b|from farm\b|`{3,}|~{3,}|\.\. (?:code|code-block|sourcecode|doctest)::)",
    re.MULTILINE,
)
"""How an example begins that somebody would expect to be tried."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `line` is that of its first line in the page, from 1."""

    language: str
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The file that the block is, or None."""
        found = FILE_NAME.fullmatch(self.text.split("\n", 1)[0].strip())
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Command:
    """A `$ ` line of a console block, and what the page says it prints."""

    text: str
    output: str
    line: int


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for token in MarkdownIt("commonmark").parse(page):
        if token.type == "fence":
            assert token.map is not None
            found.append(Block(token.info.strip(), token.content, token.map[0] + 2))
    return found


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block. Raises AssertionError if it begins with anything else."""
    commands: list[Command] = []
    continued = False
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if continued:
            last = commands.pop()
            commands.append(Command(f"{last.text}\n{line}", "", last.line))
        elif line.startswith("$ "):
            commands.append(Command(line[2:], "", number))
        else:
            assert commands, f"line {number}: a console block begins with `$ `"
            last = commands.pop()
            commands.append(Command(last.text, f"{last.output}{line}\n", last.line))
        continued = not commands[-1].output and commands[-1].text.endswith("\\")
    return commands


def hidden_in(page: str) -> list[str]:
    """What in a page looks like an example and would not be run."""
    found = []
    tokens = MarkdownIt("commonmark").parse(page)
    for block in blocks_of(page):
        if block.language not in RUN | SHOWN | DIRECTIVES:
            found.append(f"line {block.line}: a block of language {block.language!r}")
        elif block.language not in RUN and block.file_name is None and (begin := LOOKS_RUN.search(block.text)):
            found.append(f"line {block.line}: {begin[0].strip()!r} in a block of language {block.language!r}")
        if not block.text.strip():
            found.append(f"line {block.line}: an empty block")
    for token in tokens:
        if token.type == "code_block":
            found.append(f"line {token.map[0] + 1 if token.map else '?'}: a block by indentation")
        elif token.type == "html_block" and not re.fullmatch(r"<!-- generated: \w+ -->\n?", token.content):
            found.append(f"line {token.map[0] + 1 if token.map else '?'}: HTML")
    lines = page.splitlines()
    found += [f"line {number}: a comment of MyST" for number, line in enumerate(lines, 1) if line.startswith("% ")]
    found += [f"line {block.line}: {name} is run by nothing" for block, name in _unused(blocks_of(page))]
    previous = Block("", "", 0)
    for block in blocks_of(page):
        follows = previous.language == "python" and previous.file_name is None
        if block.language == "output" and not follows:
            found.append(f"line {block.line}: output of no python block")
        previous = block
    return found


def _unused(blocks: list[Block]) -> list[tuple[Block, str]]:
    """Files of Python that no later block names: nobody would know whether they work."""
    files = [(place, block, block.file_name) for place, block in enumerate(blocks) if block.language == "python"]
    return [
        (block, name)
        for place, block, name in files
        if name is not None
        and not any(re.search(rf"\b({_stem(name)}\b|pytest)", later.text) for later in blocks[place + 1 :])
    ]


def _stem(name: str) -> str:
    return re.escape(Path(name).stem)


def links_of(page: str) -> list[str]:
    """Where the links of a page lead to, those to other sites left out."""
    inline = [token.children or [] for token in MarkdownIt("commonmark").parse(page) if token.type == "inline"]
    targets = [str(one.attrs.get("href", "")) for tokens in inline for one in tokens if one.type == "link_open"]
    return [target for target in targets if not re.match(r"[a-z]+://", target)]


def anchors_of(page: str) -> set[str]:
    """The anchors that headings give a page."""
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def difference(expected: str, got: str) -> str | None:
    """What is different in an output, for people, or None."""
    lines = [line.rstrip() for line in expected.rstrip().splitlines()]
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else r"[^\n]*?".join(map(re.escape, line.split("..."))) + r"\n"
        for line in lines
    )
    shown = "".join(f"{line.rstrip()}\n" for line in got.rstrip().splitlines())
    if re.fullmatch(pattern, shown):
        return None
    return f"the page says\n\n{_indented(expected)}\n\nand this came out\n\n{_indented(got)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()) or "    (nothing)"
