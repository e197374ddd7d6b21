//! Checks that the guides in `docs` are those of `src/guide`, and that the links of all Markdown pages lead somewhere.

use std::process::Command;
use tollgate_testing::skipped::skip;

#[test]
fn guides_in_docs_are_current() {
    let root = env!("CARGO_MANIFEST_DIR");
    let Ok(output) =
        Command::new("python3").args(["-B", "ci/pages.py", "--check"]).current_dir(root).output()
    else {
        return skip("there is no python3, which checks the guides in docs");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
