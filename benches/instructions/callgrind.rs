//! Runs this program under callgrind, and reads the instruction count of each path.

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::process::Command;

use crate::paths::CALLS;

/// Instructions per check, by path.
pub(crate) type Counts = BTreeMap<String, f64>;

/// Returns the inclusive count of each path's function.
pub(crate) fn count(flag: &str) -> Result<Counts> {
    let program = std::env::current_exe()?;
    let out = std::env::temp_dir().join(format!("tollgate-instructions-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg(flag)
        .output()?;
    if !output.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = std::fs::read_to_string(&out)?;
    std::fs::remove_file(&out)?;
    let counts = inclusive(&text);
    let missing: Vec<&str> =
        crate::paths::NAMES.iter().copied().filter(|name| !counts.contains_key(*name)).collect();
    if missing.is_empty() {
        Ok(counts)
    } else {
        Err(Error::other(format!(
            "callgrind's output has no function for {missing:?}; it may be inlined or merged"
        )))
    }
}

/// Sums the calls of each path's `counted`. In callgrind's format, a call has three lines: `cfn=` with the callee's
/// name, `calls=`, and a line with the position and the inclusive cost.
fn inclusive(text: &str) -> Counts {
    let mut counts = Counts::new();
    let (mut callee, mut is_cost) = (None, false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            callee = name.split_once("paths::").and_then(|(_, rest)| rest.split_once("::counted"));
        } else if line.starts_with("calls=") {
            is_cost = true;
        } else if is_cost {
            is_cost = false;
            let cost = line.split_ascii_whitespace().next_back().and_then(|cost| cost.parse::<u32>().ok());
            if let Some(((path, _), cost)) = callee.take().zip(cost) {
                *counts.entry(path.to_owned()).or_default() += f64::from(cost) / f64::from(CALLS);
            }
        }
    }
    counts
}
