//! A fixed load on the other core, because servers are not idle: a process that reads and writes random words of 64 MiB.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use crate::support::{XorShift, has, length};

const CHILD: &str = "--neighbour";
const WORDS: u64 = (64 << 20) / 8;

/// The process with the load. It ends when this is dropped, or with its parent.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().expect("the path of this bench");
        Self(
            Command::new(program)
                .arg(CHILD)
                .stdin(Stdio::piped())
                .spawn()
                .expect("this bench can start itself"),
        )
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().expect("the load ends only here");
        self.0.wait().expect("the load was killed");
    }
}

/// In the child process: makes the load until the parent ends. Returns whether this process is such a child.
pub(crate) fn answer_parent() -> bool {
    if !has(CHILD) {
        return false;
    }
    std::thread::spawn(|| {
        let mut words = vec![1_u64; length(WORDS)];
        let mut random = XorShift::new(1);
        loop {
            let word = &mut words[length(random.below(WORDS))];
            *word = std::hint::black_box(word.wrapping_add(1));
        }
    });
    // The pipe has no bytes and closes with the parent.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the pipe from the parent");
    true
}
