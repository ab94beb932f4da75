"""What the scripts that draw pictures share."""
import sys

TEXT = "#1d2530"


def text(x, y, words, size=12, anchor="middle", bold=False):
    weight = ' font-weight="bold"' if bold else ""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{TEXT}"{weight}>{escaped}</text>'


def write_or_check(picture, drawn, command):
    """With --write writes the picture; without, exits with 1 where the file is not what was drawn."""
    if "--write" in sys.argv:
        picture.write_text(drawn)
    elif not picture.is_file() or picture.read_text() != drawn:
        sys.exit(f"docs/{picture.name} is out of date: python3 {command} --write")
