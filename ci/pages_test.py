#!/usr/bin/env python3
"""Tests of pages.py: what it makes of a small guide, and that it finds each mistake that a test adds."""
import tempfile
import unittest
from pathlib import Path

from pages import Pages

LIBRARY = '''//! A limiter.
//!
//! # Guides
//!
//! | [`guide::one`], [`guide::two`] | topics |
//! | [`design`], [`telemetry`] | more |

pub mod guide {
    pub mod one {
        #![doc = include_str!("guide/one.md")]
        #![cfg_attr(feature = "x", doc = include_str!("guide/chart.svg"))]
    }
    pub mod two {
        #![doc = include_str!("../TWO.md")]
    }
}

'''
ONE = """# The first guide

See [`guide::two`](crate::guide::two#a-part), [the
design](crate::design), [`Gcra`](crate::Gcra), [peek](crate::RateLimiter::peek), `guide::two`, `design` and `[x](crate::y)`.

```
# fn main() {
#[derive(Debug)]
struct Gate;

# }
```

# A part: `on_failure`

[above](#the-first-guide), [here](#a-part-on_failure)

```text
# not hidden
```
"""
MADE = """<!-- Written by ci/pages.py from src/guide/one.md, src/guide/chart.svg -->

# The first guide

See [Two](../TWO.md#a-part), [the
design](../src/design.md), `Gcra`, peek (`RateLimiter::peek`), [Two](../TWO.md), `design` and `[x](crate::y)`.

```rust
#[derive(Debug)]
struct Gate;
```

## A part: `on_failure`

[above](#the-first-guide), [here](#a-part-on_failure)

```text
# not hidden
```

![Denied by hour](../src/guide/chart.svg)

---

[All guides](README.md)
"""
FILES = {
    "src/lib.rs": LIBRARY,
    "src/design.md": "# Design\n",
    "src/guide/one.md": ONE,
    "src/guide/chart.svg": '<svg>\n<text x="1">\nDenied by hour\n</text>\n</svg>\n',
    "TWO.md": "# Two\n\n## A part\n",
    "examples/x.rs": "",
}


class Tests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        for name, text in FILES.items():
            self.add(name, text)
        Pages(self.root).write()

    def add(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + text)

    def problems(self):
        return "\n".join(Pages(self.root).problems())

    def test_guide(self):
        self.assertEqual((self.root / "docs/one.md").read_text(), MADE)

    def test_index_has_titles(self):
        index = (self.root / "docs/README.md").read_text()
        self.assertIn("| [The first guide](one.md), [Two](../TWO.md) | topics |\n", index)
        self.assertIn("| [Design](../src/design.md), `telemetry` | more |\n", index)

    def test_pages_without_mistakes(self):
        self.assertEqual((self.problems(), Pages(self.root).stale()), ("", {}))

    def test_stale_pages(self):
        self.add("src/guide/one.md", "More.\n")
        self.add("docs/old.md", "# Old\n")
        self.assertEqual(list(Pages(self.root).stale()), ["old.md", "one.md"])

    def test_mistakes(self):
        for mistake in ["[x](no.md)", "[x](TWO.md#no)", "[x](crate::Gcra)", "[`Gcra`]", "[x]: no.md", "[x](src/guide/one.md)", "```\ncode\n```"]:
            self.add("TWO.md", f"\n{mistake}\n")
            self.assertTrue(self.problems(), mistake)
            (self.root / "TWO.md").write_text(FILES["TWO.md"])

    def test_guide_without_link(self):
        (self.root / "src/lib.rs").write_text(LIBRARY.replace("[`guide::two`]", "two"))
        self.assertIn("guide::two", self.problems())


if __name__ == "__main__":
    unittest.main()
