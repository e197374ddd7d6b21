#!/usr/bin/env python3
"""Checks the rooms of docs/design.md: what they import, how large they are, and that no choice has two types.

Without arguments, prints each violation and exits with 1 if there is one. `--sizes` prints the table of rooms with their present
sizes, rounded up. The code is read as text: comments, strings and tests do not count for imports.
"""
import re
import sys
from pathlib import Path

# A room's budget in `--sizes` is the next multiple of this number of lines.
STEP = 50


def blank(text):
    """Returns the code without comments, and with empty strings."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]*?|[^\\\'\n])\'', re.DOTALL
    )
    text = token.sub(lambda found: '""' if found[0][0] != "/" else "", text)
    return re.sub(r"\bpub\(in [^)]*\)", "pub", text)


def end_of(code, start):
    """Returns the end of the item that starts at `start`: a semicolon, or a closing brace."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
            if depth == 0 and code[at] == "}":
                return at + 1
        elif code[at] == ";" and depth == 0:
            return at + 1
    return len(code)


ATTRIBUTES = r"(?:#\[(?:[^\[\]]|\[[^\]]*\])*\]\s*)*"


def without_tests(code):
    test = re.compile(r"#\[cfg\((?:all\()?test\b(?:[^\[\]])*\]\s*" + ATTRIBUTES)
    while found := test.search(code):
        code = code[: found.start()] + code[end_of(code, found.end()) :]
    return code


def top_level(code):
    """Returns the code without the contents of braces, except those of `use` items."""
    kept, depth, in_use = [], 0, False
    for part in re.split(r"(\buse\b|[{};])", code):
        if part == "use" and depth == 0:
            in_use = True
        elif part == ";" and in_use:
            in_use = False
        elif part == "{" and not in_use:
            depth += 1
        elif part == "}" and not in_use:
            depth -= 1
            if depth == 0:
                kept.append(";\n")
            continue
        if depth == 0:
            kept.append(part)
    return "".join(kept)


def leaves(tree):
    """Expands the tree of a `use` item to pairs of a path and the name that it brings."""
    tree = tree.strip()
    if found := re.match(r"^(.*?)\{(.*)\}$", tree, re.DOTALL):
        prefix, depth, part, parts = found[1].strip(), 0, "", []
        for char in found[2]:
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == "," and depth == 0:
                parts.append(part)
                part = ""
            else:
                part += char
        for part in [*parts, part]:
            if part.strip():
                yield from leaves(prefix + part.strip())
        return
    path, _, alias = (text.strip() for text in tree.partition(" as "))
    steps = [step.strip() for step in path.split("::") if step.strip()]
    if steps[-1:] == ["self"] and len(steps) > 1:
        steps.pop()
    yield steps, alias or steps[-1]


class Module:
    def __init__(self, file, parent):
        self.file, self.parent, self.children = file, parent, {}
        self.root = parent.root if parent else self
        text = file.read_text()
        self.attributed = without_tests(re.sub(r"//[^\n]*", "", text))
        self.code = without_tests(blank(text))
        top = top_level(self.code)
        self.names = {}
        for is_public, tree in re.findall(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", top):
            for steps, name in leaves(tree):
                if steps[0] != "" and name != "_":
                    self.names.setdefault(name, []).append(steps)
        self.globs = self.names.pop("*", [])
        self.defined = set(re.findall(r"\b(?:struct|enum|union|trait|type|fn|const|static|macro_rules!)\s+(\w+)", top))

    def add_children(self, modules):
        folder = self.file.parent
        if self.file.name not in ("mod.rs", "lib.rs", "main.rs"):
            folder = folder / self.file.stem
        # The attribute `path` names a string, so this reads the text with strings.
        declared = re.findall(r"(" + ATTRIBUTES + r")(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", self.attributed)
        for attributes, name in declared:
            path = re.search(r'#\[path\s*=\s*"([^"]+)"', attributes)
            files = [self.file.parent / path[1]] if path else [folder / f"{name}.rs", folder / name / "mod.rs"]
            for file in files:
                if file.exists():
                    child = Module(file, self)
                    self.children.setdefault(name, []).append(child)
                    modules.append(child)
                    child.add_children(modules)

    def resolve(self, steps, seen=frozenset()):
        """Returns the files that define what a path names. A module's file defines what no other file does."""
        first, rest = steps[0], steps[1:]
        if (self, tuple(steps)) in seen:
            return set()
        seen = seen | {(self, tuple(steps))}
        if first == "crate":
            starts = [self.root]
        elif first == "self":
            starts = [self]
        elif first == "super":
            starts = [self.parent or self]
            while rest[:1] == ["super"]:
                starts, rest = [starts[0].parent or starts[0]], rest[1:]
        elif first in self.children or all(path[0] != first for path in self.names.get(first, [[first]])):
            starts, rest = [self], steps
        else:
            return set()
        return set().union(*(start.find(rest, seen) for start in starts))

    def find(self, steps, seen):
        if not steps or steps == ["*"]:
            return {self.file}
        first, rest = steps[0], steps[1:]
        if first in self.children:
            return set().union(*(child.find(rest, seen) for child in self.children[first]))
        if first in self.names:
            return set().union(*(self.resolve(path + rest, seen) for path in self.names[first]))
        if first not in self.defined:
            for path in self.globs:
                found = self.resolve(path[:-1] + steps, seen)
                if found - {self.file}:
                    return found
        return {self.file}

    def imports(self):
        """Returns the paths that the code names. An item of a `pub use` counts only if the file also uses it."""
        uses = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
        body = uses.sub("", self.code)
        for is_public, tree in uses.findall(self.code):
            for steps, name in leaves(tree):
                if not is_public or re.search(rf"\b{re.escape(name)}\b", body):
                    yield steps
        for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", body):
            yield path.split("::")
        for child in self.children:
            for path in re.findall(rf"(?<!::)\b{child}(?:::\w+)+", body):
                yield path.split("::")


class House:
    def __init__(self, root):
        self.root = root
        self.rooms = self.read_rooms()
        self.modules = []
        for page in sorted([root / "src/lib.rs", *root.glob("crates/*/src/lib.rs")]):
            if page.exists():
                module = Module(page, None)
                self.modules.append(module)
                module.add_children(self.modules)

    def read_rooms(self):
        """Reads the rows `| floor | room | contents | lines |` of the table of rooms."""
        row = re.compile(r"^\| ([0-9.]+) \| `([^`]+)` \| (.*) \| ([0-9,]+) \|$", re.MULTILINE)
        text = (self.root / "docs/design.md").read_text()
        return {
            room: (tuple(map(int, floor.split("."))), contents, int(budget.replace(",", "")), floor)
            for floor, room, contents, budget in row.findall(text)
        }

    def name(self, file):
        return file.relative_to(self.root).as_posix()

    def room(self, file):
        """The room of a file is the longest prefix of its path that the table names."""
        path = self.name(file).removeprefix("src/").removesuffix(".rs").removesuffix("/mod")
        while path and path not in self.rooms:
            path = path.rpartition("/")[0]
        return path

    def arrows(self):
        """Returns which files each file imports from."""
        arrows = {}
        for module in self.modules:
            targets = arrows.setdefault(module.file, set())
            for steps in module.imports():
                # The names of the crate's root are for users.
                if steps[0] == "crate" and len(steps) > 1 and steps[1] not in module.root.children:
                    targets.add(module.root.file)
                targets |= module.resolve(steps) - {module.file}
            # A page and the parts in its folder are one idea, so a page may use them.
            if module.file.name in ("mod.rs", "lib.rs"):
                arrows[module.file] = {file for file in targets if module.file.parent not in file.parents}
        return arrows

    def check_floors(self, arrows):
        for file, targets in arrows.items():
            own = self.room(file)
            if file.name == "lib.rs":
                continue
            if not own and targets:
                yield f"{self.name(file)}: it is in no room of docs/design.md"
            for target in targets if own else ():
                other = self.room(target)
                if target == self.root / "src/lib.rs":
                    yield f"{self.name(file)}: imports from the crate's root, instead of a room"
                elif other and self.rooms[other][0] > self.rooms[own][0]:
                    yield f"{self.name(file)}: imports up, from {self.name(target)}"

    def check_circles(self, arrows):
        """Finds the strongly connected components (Tarjan)."""
        index, low, stack, found = {}, {}, [], []

        def visit(file):
            index[file] = low[file] = len(index)
            stack.append(file)
            for target in arrows.get(file, ()):
                if target not in index:
                    visit(target)
                    low[file] = min(low[file], low[target])
                elif target in stack:
                    low[file] = min(low[file], index[target])
            if low[file] == index[file]:
                circle = stack[stack.index(file) :]
                del stack[stack.index(file) :]
                if len(circle) > 1:
                    found.append(sorted(map(self.name, circle)))

        for file in sorted(arrows):
            if file not in index:
                visit(file)
        for circle in found:
            inside = {self.root / name for name in circle}
            ties = [
                f"    {self.name(file)} -> {self.name(target)}"
                for file in sorted(inside)
                for target in sorted(arrows[file] & inside)
            ]
            yield "a circle of files that import each other:\n" + "\n".join(ties)

    def check_paths(self):
        """`#[path]` may not leave its package, except to the shared tests."""
        for file in self.sources("src", "crates", "tests", "benches", "examples", "fuzz"):
            for path in re.findall(r'^\s*#\[path\s*=\s*"([^"]+)"', file.read_text(), re.MULTILINE):
                target = (file.parent / path).resolve()
                shared = self.name(target).startswith("tests/")
                if self.package(file) != self.package(target) and not shared:
                    yield f"{self.name(file)}: `#[path]` leads into another package: {path}"

    def package(self, file):
        return next(folder for folder in file.parents if (folder / "Cargo.toml").exists())

    def sources(self, *folders):
        for folder in folders:
            files = (self.root / folder).rglob("*.rs")
            yield from sorted(file for file in files if "target" not in file.relative_to(self.root).parts)

    def check_choices(self):
        """Two enums of the published packages are two types for one choice if they share four variants, or have the same three."""
        allowed, enums = {}, []
        choices = self.root / "ci/choices.tsv"
        for line in choices.read_text().splitlines() if choices.exists() else []:
            if not line.startswith("#"):
                first, second, _reason = line.split("\t")
                allowed[frozenset((first, second))] = False
        for module in self.modules:
            if "publish = false" in (self.package(module.file) / "Cargo.toml").read_text():
                continue
            for found in re.finditer(r"\benum\s+(\w+)[^{;]*\{", module.code):
                name, start = found[1], found.end()
                body = module.code[start : end_of(module.code, start - 1) - 1]
                body = re.sub(r"#\[(?:[^\[\]]|\[[^\]]*\])*\]", "", body)
                while (flat := re.sub(r"\{[^{}]*\}|\([^()]*\)|=[^,]*", "", body)) != body:
                    body = flat
                variants = set(re.findall(r"\b[A-Z]\w*", body))
                path = self.name(module.file).removeprefix("src/").removesuffix(".rs").removesuffix("/mod")
                enums.append((f"{path}::{name}", variants))
        for at, (first, its) in enumerate(enums):
            for second, others in enums[at + 1 :]:
                shared = its & others
                if len(shared) >= 4 or (its == others and len(shared) == 3):
                    pair = frozenset((first, second))
                    if pair not in allowed:
                        yield f"{first} and {second} are two types for one choice: {', '.join(sorted(shared))}"
                    allowed[pair] = True
        for pair in (pair for pair, is_used in allowed.items() if not is_used):
            yield f"ci/choices.tsv: {' and '.join(sorted(pair))} have no variants in common any more"

    def sizes(self):
        """Returns each room's lines of code: neither blank nor comments, tests included."""
        sizes = dict.fromkeys(self.rooms, 0)
        for file in self.sources("src", *(folder.relative_to(self.root) for folder in self.root.glob("crates/*/src"))):
            if (room := self.room(file)) in sizes:
                lines = (line.strip() for line in file.read_text().splitlines())
                sizes[room] += sum(bool(line) and not line.startswith("//") for line in lines)
        return sizes

    def check_budgets(self):
        for room, size in self.sizes().items():
            budget = self.rooms[room][2]
            if size == 0:
                yield f"docs/design.md: the room {room} has no code"
            if size > budget:
                yield (
                    f"{room}: {size} lines of code, and its budget is {budget}. Remove code, or raise the number in"
                    " docs/design.md and say why in the commit"
                )

    def violations(self):
        arrows = self.arrows()
        yield from self.check_floors(arrows)
        yield from self.check_circles(arrows)
        yield from self.check_paths()
        yield from self.check_choices()
        yield from self.check_budgets()


def main():
    house = House(Path(__file__).resolve().parent.parent)
    if sys.argv[1:] == ["--sizes"]:
        for room, size in house.sizes().items():
            _, contents, _, floor = house.rooms[room]
            print(f"| {floor} | `{room}` | {contents} | {-(-size // STEP) * STEP:,} |")
        return 0
    violations = sorted(set(house.violations()))
    if violations:
        print("The rooms (docs/design.md, \"The floors\"):", file=sys.stderr)
    for violation in violations:
        print(f"  {violation}", file=sys.stderr)
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main())
