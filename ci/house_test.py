#!/usr/bin/env python3
"""Tests of house.py: it accepts a small house, and finds each violation that a test adds to it."""
import tempfile
import unittest
from pathlib import Path

from house import House

TABLE = """
| floor | room | contents | lines |
|---|---|---|---|
| 1 | `base` | words | 20 |
| 2.1 | `store` | tables | 20 |
| 2.2 | `limiter` | limiters | 20 |
"""
HOUSE = {
    "Cargo.toml": "",
    "docs/design.md": TABLE,
    "src/lib.rs": "mod base;\nmod limiter;\nmod store;\npub use limiter::Limiter;\n",
    "src/base/mod.rs": "mod word;\npub(crate) use self::word::Word;\n",
    "src/base/word.rs": "//! Not an import: crate::limiter::Limiter\npub(in crate::base) struct Word;\n",
    "src/store/mod.rs": (
        "use crate::base::Word;\npub(crate) struct Store { word: Word }\n"
        "#[cfg(all(test, unix))]\nmod tests {\n    use crate::limiter::Limiter;\n}\n"
    ),
    "src/limiter/mod.rs": "mod part;\nuse self::part::Part;\npub struct Limiter(Part);\nenum Full { Spill, Forget, Grow }\n",
    "src/limiter/part.rs": "use super::Limiter;\nuse crate::{base::{Word as W}, store::Store};\nstruct Part(W, Store, Limiter);\n",
    "tests/common/mod.rs": "",
    "fuzz/Cargo.toml": "",
    "fuzz/targets/one.rs": '#[path = "../../tests/common/mod.rs"]\nmod common;\n',
}


class Tests(unittest.TestCase):
    def violations(self, **changes):
        """Returns the violations of the house with some files changed: `src__lib_rs` is `src/lib.rs`."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            files = dict(HOUSE)
            for name, text in changes.items():
                name = name.replace("__", "/").replace("_rs", ".rs").replace("_md", ".md").replace("_tsv", ".tsv")
                files[name] = files.get(name, "") + text
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return "\n".join(House(root).violations())

    def test_house_without_violations(self):
        self.assertEqual(self.violations(), "")

    def test_imports_up(self):
        for planted in [
            "use crate::limiter::Limiter;\n",
            "fn f() { let _ = crate::limiter::Limiter; }\n",
            "use super::super::limiter::{Limiter as L};\n",
            "use crate::{store::{self, Store}};\n",
        ]:
            found = self.violations(src__base__word_rs=planted)
            self.assertIn("src/base/word.rs: imports up, from src/", found, planted)

    def test_root_import(self):
        for planted in ["use crate::Limiter;\n", "fn f(limiter: crate::Limiter) {}\n"]:
            found = self.violations(src__limiter__part_rs=planted)
            self.assertIn("src/limiter/part.rs: imports from the crate's root", found, planted)

    def test_circle_behind_a_page(self):
        found = self.violations(
            src__base__mod_rs="mod pair;\npub(crate) use self::pair::Pair;\n",
            src__base__pair_rs="use super::Word;\npub(crate) struct Pair(Word);\n",
            src__base__word_rs="use super::*;\nfn f(pair: super::Pair) {}\n",
        )
        self.assertIn("src/base/pair.rs -> src/base/word.rs", found)
        self.assertIn("src/base/word.rs -> src/base/pair.rs", found)

    def test_path_into_another_package(self):
        found = self.violations(fuzz__targets__one_rs='#[path = "../../src/base/word.rs"]\nmod word;\n')
        self.assertIn("fuzz/targets/one.rs: `#[path]` leads into another package", found)

    def test_second_type_for_a_choice(self):
        second = "enum Overflow {\n    /// Text.\n    Spill { to: u8 },\n    Forget(Word),\n    #[default]\n    Grow = 2,\n}\n"
        self.assertIn(
            "limiter::Full and store::Overflow are two types for one choice: Forget, Grow, Spill",
            self.violations(src__store__mod_rs=second),
        )
        allowed = "store::Overflow\tlimiter::Full\tA reason.\n"
        self.assertEqual(self.violations(src__store__mod_rs=second, ci__choices_tsv=allowed), "")
        self.assertIn("have no variants in common", self.violations(ci__choices_tsv=allowed))

    def test_room_above_its_budget(self):
        found = self.violations(src__base__word_rs="\n// A comment.\n" + "fn f() {}\n" * 20)
        self.assertIn("base: 23 lines of code, and its budget is 20", found)

    def test_folder_without_a_room(self):
        found = self.violations(src__lib_rs="mod other;\n", src__other_rs="use crate::base::Word;\n")
        self.assertIn("src/other.rs: it is in no room", found)


if __name__ == "__main__":
    unittest.main()
