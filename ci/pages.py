#!/usr/bin/env python3
"""Writes docs/: the guides as pages that read well on the web page of a repository. `--check` names the pages that are out of date.

The guides in src/guide are parts of rustdoc: their links name items, and their examples have lines that rustdoc hides. src/lib.rs says
which files each guide consists of, and its table of guides becomes docs/README.md. Both modes check the links and the code fences of
all Markdown pages of the repository.
"""
import os
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^( *)```(.*)$")
# A link, with its text and its target; or a code span, which contains no link. The text of a link may contain code spans.
LINK_OR_CODE = re.compile(r"\[((?:`[^`]*`|[^\[\]`])*)\]\(([^)\s]*)\)|`[^`]*`")
# A link of rustdoc without a target, such as [`Gcra`].
BARE = re.compile(r"(?<!\])\[`[^`]+`\](?![(\[:])")
DEFINITION = re.compile(r"^\[[^\]]+\]: (\S+)", re.MULTILINE)
MODULE = re.compile(r"\n    pub mod (\w+) \{(.*?)\n    \}", re.DOTALL)
# The words after the backticks of a Rust example.
RUST = {"", "rust", "no_run", "ignore", "should_panic", "compile_fail"}


def blocks(text):
    """Returns a page's blocks, each with its lines and its language: the words of its fence, or `None` for a text."""
    found, lines, language = [], [], None
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence and language is None:
            found.append((lines, None))
            lines, language = [line], fence[2].strip()
        elif fence:
            found.append(([*lines, line], language))
            lines, language = [], None
        else:
            lines.append(line)
    return [*found, (lines, language)]


def headings(text):
    """Returns the level and the words of each heading."""
    lines = [line for lines, language in blocks(text) if language is None for line in lines]
    return [(len(found[1]), found[2]) for found in map(re.compile(r"(#+) (.*)").match, lines) if found]


def anchor(heading):
    """Returns the anchor of a heading. rustdoc and GitHub make the same."""
    heading = LINK_OR_CODE.sub(lambda found: found[1] or found[0], heading)
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(text):
    """Returns the targets of a page's links and images; for a link without a target, its text."""
    plain = "\n".join(line for lines, language in blocks(text) if language is None for line in lines)
    return BARE.findall(plain) + [found[2] for found in LINK_OR_CODE.finditer(plain) if found[2] is not None] + DEFINITION.findall(plain)


def without_hidden(lines):
    """Removes the lines of a Rust example that rustdoc hides, and the empty lines that then begin, end or repeat."""
    kept = []
    for line in lines[1:-1]:
        code = line.strip()
        if code == "#" or code.startswith("# ") or (not code and not (kept and kept[-1].strip())):
            continue
        kept.append(line.replace("##", "#", 1) if code.startswith("##") else line)
    while kept and not kept[-1].strip():
        kept.pop()
    return [FENCE.sub(r"\1```rust", lines[0]), *kept, lines[-1]]


def deeper(text):
    """Makes every heading but the first one deeper by a level, so that a page has one title. rustdoc adds a title of its own."""
    lines, seen = [], False
    for block, language in blocks(text):
        for line in block:
            is_heading = language is None and re.match(r"#+ ", line)
            lines.append(f"#{line}" if is_heading and seen else line)
            seen = seen or is_heading
    return "\n".join(lines)


class Pages:
    def __init__(self, root):
        self.root = root
        self.source = root / "src"
        self.folder = root / "docs"
        self.library = (self.source / "lib.rs").read_text()
        guides = self.library.split("\npub mod guide {", 1)[1].split("\n}\n", 1)[0]
        self.files = {name: re.findall(r'include_str!\("([^"]*)"\)', body) for name, body in MODULE.findall(guides)}
        # The page of each module of documentation, relative to `docs`. A file outside `src/guide` reads well where it is.
        self.places = {"design": "../src/design.md"}
        for name, files in self.files.items():
            alone = os.path.relpath(self.source / files[0], self.folder)
            self.places[f"guide::{name}"] = f"{name}.md" if files[0].startswith("guide/") else alone

    def title(self, module):
        name = module.removeprefix("guide::")
        return headings((self.source / self.files.get(name, ["design.md"])[0]).read_text())[0][1]

    def link(self, found):
        """Returns what replaces a link: a link to a page, or the item's name as code. The name of a guide becomes a link."""
        text, target = found[1], found[2]
        if found[0].startswith("`guide::") and found[0].strip("`") in self.places:
            text, target = found[0], f"crate::{found[0].strip('`')}"
        if not re.match(r"(crate|std|core|alloc)::", target or ""):
            return found[0]
        path, _, fragment = target.removeprefix("crate::").partition("#")
        if path in self.places:
            text = self.title(path) if text == f"`{path}`" else text
            return f"[{text}]({self.places[path]}{fragment and '#'}{fragment})"
        item = "::".join(path.split("::")[-2:])
        return text if "`" in text else f"{text} (`{item}`)"

    def text(self, path):
        lines = []
        for block, language in blocks((self.source / path).read_text()):
            if language is None:
                text = LINK_OR_CODE.sub(self.link, "\n".join([*block, ""]))
                # Two links side by side, each with a code span, would become two spans that GitHub reads as one.
                lines += re.sub(r"(?<=[^`\s])``(?=[^`\s])", "", text).splitlines()
            else:
                lines += without_hidden(block) if language.split(",")[0] in RUST else block
        return "\n".join(lines).strip("\n")

    def image(self, path):
        """Returns a chart as an image. The chart's own heading describes it."""
        heading = re.search(r"<text[^>]*>\s*([^<]*?)\s*</text>", (self.source / path).read_text())[1]
        return f"![{heading}](../src/{path})"

    def guide(self, files):
        text = "\n\n".join(self.image(path) if path.endswith(".svg") else self.text(path) for path in files)
        if sum(level == 1 for level, _ in headings(text)) > 1:
            text = deeper(text)
        sources = ", ".join(f"src/{path}" for path in files)
        return f"<!-- Written by ci/pages.py from {sources} -->\n\n{text}\n\n---\n\n[All guides](README.md)\n"

    def index(self):
        """Returns the page of all guides: the crate page's table, with the titles of the pages."""
        def named(found):
            module = found[1]
            return f"[{self.title(module)}]({self.places[module]})" if module in self.places else f"`{module}`"

        section = self.library.split("\n//! # Guides\n", 1)[1]
        rows = [line.removeprefix("//! ") for line in section.splitlines() if line.startswith("//! |")]
        table = re.sub(r"\[`([\w:]+)`\]", named, "\n".join(rows))
        return (
            "<!-- Written by ci/pages.py from src/lib.rs -->\n\n# Guides\n\n"
            "`cargo doc -p tollgate --all-features --no-deps --open` shows these guides with links to the types and methods that they\n"
            f"name. The folder [`examples`](../examples) contains whole programs.\n\n{table}\n"
        )

    def pages(self):
        """Returns the text of each file in `docs`."""
        guides = {name: files for name, files in self.files.items() if files[0].startswith("guide/")}
        return {"README.md": self.index()} | {f"{name}.md": self.guide(files) for name, files in guides.items()}

    def stale(self):
        """Returns the names of the files in `docs` that are not as they should be, with the text that they should have."""
        pages, present = self.pages(), {path.name: path.read_text() for path in self.folder.glob("*.md")}
        return {name: pages.get(name) for name in sorted(pages | present) if pages.get(name) != present.get(name)}

    def write(self):
        """Writes and removes files in `docs`, and returns their names."""
        self.folder.mkdir(exist_ok=True)
        stale = self.stale()
        for name, text in stale.items():
            if text is None:
                (self.folder / name).unlink()
            else:
                (self.folder / name).write_text(text)
        return list(stale)

    def problems(self):
        """Returns the links that lead nowhere, and the code fences without a language."""
        for name in self.files:
            if f"[`guide::{name}`]" not in self.library:
                yield f"src/lib.rs: the table of guides does not link guide::{name}"
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in ("target", ".git")]
            # The sources of `docs` are not for readers of the repository.
            if Path(folder) == self.source / "guide":
                continue
            for page in (Path(folder) / name for name in sorted(files) if name.endswith(".md")):
                text = page.read_text()
                found = [f"a code fence without a language: {lines[1]}" for lines, language in blocks(text) if language == ""]
                found += [problem for target in links(text) if (problem := self.problem(page, target))]
                yield from (f"{page.relative_to(self.root)}: {problem}" for problem in found)

    def problem(self, page, target):
        if re.match(r"https?:|mailto:", target):
            return None
        path, _, fragment = target.partition("#")
        to = page.parent / path if path else page
        if "::" in target or not to.exists():
            return f"a link to {target}, which is not a file"
        if to.suffix == ".md" and to.parent.resolve() == self.source / "guide":
            return f"a link to {target}, which is written for rustdoc: link the page in docs"
        if fragment and fragment not in [anchor(heading) for _, heading in headings(to.read_text())]:
            return f"a link to {target}, which is not a heading"
        return None


def main():
    pages = Pages(Path(__file__).resolve().parent.parent)
    stale = []
    if "--check" in sys.argv[1:]:
        stale = [f"docs/{name}: out of date; ci/pages.py writes it" for name in pages.stale()]
    else:
        print("\n".join(f"wrote docs/{name}" for name in pages.write()) or "nothing to write")
    bad = [*stale, *pages.problems()]
    for line in bad:
        print(line, file=sys.stderr)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
