#!/usr/bin/env python3
"""Tests of house.py: it accepts a small house, and finds each violation that is added to it."""
import tempfile
from pathlib import Path

from house import House

HOUSE = {
    "Cargo.toml": "",
    "docs/design.md": "| 1 | `base` | words |\n| 2.1 | `store` | tables |\n| 2.2 | `limiter` | limiters |\n",
    "src/lib.rs": "mod base;\nmod limiter;\nmod store;\npub use limiter::Limiter;\n",
    "src/base/mod.rs": "mod pair;\nmod word;\npub(crate) use self::{pair::Pair, word::Word};\n",
    "src/base/pair.rs": "use super::Word;\npub(crate) struct Pair(Word);\n",
    "src/base/word.rs": "//! Not an import: crate::limiter::Limiter\npub(in crate::base) struct Word;\n",
    "src/store/mod.rs": "use crate::base::Word;\n#[cfg(all(test, unix))]\nmod tests {\n    use crate::limiter::Limiter;\n}\n",
    "src/limiter/mod.rs": "mod part;\nuse self::part::Part;\npub struct Limiter(Part);\nenum Full {\n    Grow,\n    Spill,\n    Wait,\n}\n",
    "crates/layer/Cargo.toml": "",
    "crates/layer/src/lib.rs": "mod limit;\npub use limit::Limit;\npub use tollgate::Limiter;\n",
    "crates/layer/src/limit.rs": "pub struct Limit;\n",
    "src/limiter/part.rs": "use super::Limiter;\nuse crate::{base::{Word as W}, store::Store};\nstruct Part(W, Store, Limiter);\n",
}
OVERFLOW = "enum Overflow {\n    /// Text.\n    Spill { to: u8 },\n    Wait(Word),\n    #[default]\n    Grow = 2,\n}\n"
for path, text, expected in [
    ("src/lib.rs", "", ""),
    ("src/base/word.rs", "fn f() { let _ = crate::limiter::Limiter; }\n", "src/base/word.rs: imports up, from src/limiter/mod.rs"),
    ("src/base/word.rs", "use super::super::{store::{self, Store}};\n", "src/base/word.rs: imports up, from src/store/mod.rs"),
    ("src/base/word.rs", "use super::Pair;\n", "a circle of modules: src/base/"),
    ("src/limiter/part.rs", "fn f(limiter: crate::Limiter) {}\n", "src/limiter/part.rs: imports from the root of the crate"),
    ("src/other.rs", "use crate::base::Word;\n", "src/other.rs: no row of docs/design.md contains it"),
    ("src/store/mod.rs", OVERFLOW, "limiter::Full and store::Overflow are two types for one choice: Grow, Spill, Wait"),
    ("src/lib.rs", "pub use limiter::Limit;\n", "src/lib.rs and crates/layer/src/lib.rs both export an item `Limit`"),
    ("ci/choices.tsv", "store::Overflow\tlimiter::Full\tA reason.\n", "have no variants in common"),
]:
    with tempfile.TemporaryDirectory() as name:
        for place, content in {**HOUSE, path: HOUSE.get(path, "") + text}.items():
            Path(name, place).parent.mkdir(parents=True, exist_ok=True)
            Path(name, place).write_text(content)
        found = "\n".join(House(Path(name)).violations())
        assert expected in found and bool(expected) == bool(found), f"{path}: {found!r} instead of {expected!r}"
