#!/usr/bin/env python3
"""Checks what cargo cannot see of the modules in docs/design.md: imports upwards, circles, names with two meanings, and choices with
two types.

Prints each violation, and exits with 1 if there is one. The code of each package is read as text, without tests, models and strings.
"""
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROW = re.compile(r"^\| ([0-9.]+) \| `([^`]+)` \|", re.MULTILINE)
TOKEN = re.compile(r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]*?|[^\\\'\n])\'', re.DOTALL)
# An item that only tests have: rustfmt ends it on its line, or with a bracket below the beginning.
TEST = re.compile(r"^( *)#\[cfg\((?:all\()?test\b.*\n(?: *#\[.*\n)*(?:.*[;}]\n|(?:.*\n)*?\1}.*\n)", re.MULTILINE)
ENUM = re.compile(r"^( *)(?:pub\S* )?enum (\w+)[^{;]*\{\n(.*?)^\1\}$", re.MULTILINE | re.DOTALL)
USE = re.compile(r"\b(pub(?:\([^)]*\))? +)?use ([^;]+);")
TREE = re.compile(r"([\w:]*)\{([^{}]*)\}")


def leaves(tree):
    """Returns the paths of a `use`, each with the name that it brings."""
    while "{" in tree:
        tree = TREE.sub(lambda found: ",".join(found[1] + part for part in re.split(r",\s*", found[2].strip()) if part), tree)
    for leaf in tree.split(","):
        path, _, alias = leaf.strip().partition(" as ")
        steps = path.removesuffix("::self").split("::")
        yield steps, alias or steps[-1]


class Module:
    """A file of code: its place below `src`, and what it names."""

    def __init__(self, root, source, file):
        self.name = file.relative_to(root).as_posix()
        self.title = self.name.removeprefix("src/").removesuffix(".rs").removesuffix("/mod")
        self.source, place = source, file.relative_to(source).with_suffix("").parts
        self.is_page = place[-1] in ("mod", "lib", "main")
        self.place = place[:-1] if self.is_page else place
        code = TOKEN.sub(lambda found: "" if found[0].startswith("//") else '""', file.read_text())
        self.code = re.sub(r"\bpub\(in [^)]*\)", "pub", TEST.sub("", code + "\n"))
        # Tests and models may import all modules, and a binary's root is another crate.
        self.is_free = bool({"models", "tests", "main", "bin"} & {*place})
        self.brought, self.paths = {}, []
        body = USE.sub("", self.code)
        for is_public, tree in USE.findall(self.code):
            for steps, name in leaves(tree):
                self.brought[name] = steps
                # An item of a `pub use` counts only if the file also uses it.
                if not is_public or re.search(rf"\b{re.escape(name)}\b", body):
                    self.paths.append(steps)
        self.paths += [path.split("::") for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", body)]


class House:
    def __init__(self, root):
        self.root = root
        rows = ROW.findall((root / "docs/design.md").read_text())
        self.floors = {name: tuple(map(int, floor.split("."))) for floor, name in rows}
        sources = [root / "src", *sorted(root.glob("crates/*/src"))]
        self.modules = [Module(root, source, file) for source in sources for file in sorted(source.rglob("*.rs"))]
        self.at = {(module.source, module.place): module for module in self.modules if not module.is_free}

    def row(self, module):
        """Returns the row of a module: the longest prefix of its path that the table names."""
        title = module.title
        while title and title not in self.floors:
            title = title.rpartition("/")[0]
        return title

    def resolve(self, module, steps, seen=()):
        """Returns the module that defines what a path names, or `None` for a path into another package."""
        place, (head, *rest) = module.place, steps
        if head == "crate":
            place = ()
        elif head == "super":
            place = place[:-1]
            while rest[:1] == ["super"]:
                place, rest = place[:-1], rest[1:]
        elif head != "self":
            rest = steps
            if (module.source, (*place, head)) not in self.at:
                return None
        place, left = (*place, *rest), []
        while place and (module.source, place) not in self.at:
            place, left = place[:-1], [place[-1], *left]
        found = self.at.get((module.source, place))
        # The names that the root exports are for users, so they are the root's.
        if found and found.place and left and left[0] in found.brought and (found, left) not in seen:
            return self.resolve(found, [*found.brought[left[0]], *left[1:]], (*seen, (found, left)))
        return found

    def arrows(self):
        """Returns which modules each module imports from. A page, `x/mod.rs`, may use the parts in its folder."""
        arrows = {}
        for module in self.modules:
            found = {self.resolve(module, steps) for steps in module.paths} if not module.is_free else set()
            arrows[module] = {other for other in found - {None, module}
                              if not (module.is_page and other.place[: len(module.place)] == module.place)}
        return arrows

    def check_imports(self, arrows):
        for module, targets in arrows.items():
            if targets and module.place and not self.row(module):
                yield f"{module.name}: no row of docs/design.md contains it"
            for other in targets if self.row(module) else ():
                if other.source == self.root / "src" and not other.place:
                    yield f"{module.name}: imports from the root of the crate, instead of a module"
                elif self.row(other) and self.floors[self.row(other)] > self.floors[self.row(module)]:
                    yield f"{module.name}: imports up, from {other.name}"
        yield from (f"docs/design.md: {row} has no code" for row in self.floors.keys() - set(map(self.row, self.modules)))
        try:
            TopologicalSorter(arrows).prepare()
        except CycleError as error:
            yield "a circle of modules: " + " <- ".join(module.name for module in error.args[1])

    def is_published(self, module):
        return "publish = false" not in (module.source.parent / "Cargo.toml").read_text()

    def check_names(self):
        """The roots of two published packages may not export two items of one name: a program that imports all of both cannot write it."""
        exported = {}
        for page in (module for module in self.modules if module.name.endswith("src/lib.rs") and self.is_published(module)):
            for tree in re.findall(r"^pub use ([^;]+);", page.code, re.MULTILINE):
                for steps, name in leaves(tree):
                    if self.resolve(page, steps) and page is not exported.setdefault(name, page):
                        yield f"{exported[name].name} and {page.name} both export an item `{name}`"

    def check_choices(self):
        """Two enums of published packages are two types for one choice if they share four variants, or have the same three."""
        choices, enums = self.root / "ci/choices.tsv", []
        rows = [line.split("\t") for line in choices.read_text().splitlines() if line[:1] != "#"] if choices.exists() else []
        allowed = {frozenset(row[:2]): False for row in rows}
        for module in self.modules:
            if self.is_published(module):
                for indent, name, body in ENUM.findall(module.code):
                    enums.append((f"{module.title}::{name}", {*re.findall(rf"^{indent}    ([A-Z]\w*)", body, re.MULTILINE)}))
        for at, (first, its) in enumerate(enums):
            for second, others in enums[at + 1 :]:
                shared, pair = its & others, frozenset((first, second))
                if len(shared) >= 4 or (its == others and len(shared) == 3):
                    if pair not in allowed:
                        yield f"{first} and {second} are two types for one choice: {', '.join(sorted(shared))}"
                    allowed[pair] = True
        for pair in (pair for pair, is_used in allowed.items() if not is_used):
            yield f"ci/choices.tsv: {' and '.join(sorted(pair))} have no variants in common any more"

    def violations(self):
        return sorted({*self.check_imports(self.arrows()), *self.check_names(), *self.check_choices()})


if __name__ == "__main__":
    found = House(Path(__file__).resolve().parent.parent).violations()
    sys.exit("\n".join(found) or 0)
