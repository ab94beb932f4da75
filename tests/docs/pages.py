"""The pages that people read: their blocks, commands and names, as the tests of this folder take them."""
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).parents[2]
WRITTEN_BY_CODE = "docs/reproduction/"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([A-Za-z0-9_./-]+)`:$")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")


class Block:
    """A fenced block: its language, its text, the last line above it and the file that this line names, if any."""

    def __init__(self, page, match):
        self.page, self.language, self.text = page, match[1], match[2]
        before = match.string[:match.start()]
        self.line = before.count("\n") + 1
        self.above = before.rstrip("\n").rsplit("\n", 1)[-1]
        named = NAMED.search(self.above)
        self.name = named[1] if named else None
        self.start, self.end = match.span()

    def __str__(self):
        return f"{self.page}:{self.line}"


class Page:
    def __init__(self, path):
        self.path = path
        self.text = (ROOT / path).read_text()
        self.blocks = [Block(path, match) for match in FENCE.finditer(self.text)]
        self.prose = FENCE.sub("", self.text)

    def spans(self):
        """What stands in single backticks outside blocks."""
        return [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", self.prose)]

    def section(self, title):
        """The text under a heading, up to the next one of its level or a higher one."""
        heading = re.search(rf"^(#+) {re.escape(title)}$", self.text, re.MULTILINE)
        if heading is None:
            raise KeyError(f"{self.path} has no section '{title}'")
        rest = self.text[heading.end():]
        end = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
        return rest[:end.start()] if end else rest

    def output_of(self, block):
        """The text block that follows with nothing in between: what the command prints."""
        following = self.blocks[self.blocks.index(block) + 1:][:1]
        follows = following and following[0].language == "text" and not self.text[block.end:following[0].start].strip()
        return following[0] if follows else None


def pages():
    paths = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "plots/README.md", "results/README.md"]
    paths += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [Page(path) for path in paths]


def commands(text):
    """The commands of a `sh` block as lists of words: joined over lines that end in a backslash, cut at `&&`."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            found.append(words[:words.index("&&")])
            words = words[words.index("&&") + 1:]
        if words:
            found.append(words)
    return found


def moetune_words(words):
    """What moetune is called with in a command, by whatever launcher; None: it is not called."""
    if words[0] in ("./moetune", "moetune"):  # of a checkout, or as pip installs it
        return words[1:]
    if words[:3] == ["python3", "-m", "moetune"]:
        return words[3:]
    program = "./build/release/moetune"  # behind a launcher and its flags
    return words[words.index(program) + 1:] if program in words else None
