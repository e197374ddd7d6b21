//! Finds the first declared pattern that matches, among many, by a literal text that each of them needs.
//!
//! One Aho-Corasick automaton over all literals reads a text once and reports each literal that occurs in it. The
//! search tries only the patterns that need a reported literal.
//!
//! A literal that occurs often is reported often, and its patterns are tried each time. The work is bounded: after as
//! many tries as there are patterns, the search tries each pattern once, in order, and stops. A search therefore reads
//! the text once, and takes at worst twice the time of a search without the automaton.

use std::collections::HashMap;

use aho_corasick::Anchored::No;
use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::contiguous::NFA;

/// The maximum length of a literal, in bytes. While an automaton is built, it takes about fifty bytes for each byte of
/// its literals. Reading a file may take at most twenty times the file's length.
pub(super) const LONGEST: usize = 12;

/// A pattern that needs a literal.
#[derive(Copy, Clone, Debug)]
struct Needs {
    /// The index of the pattern among all patterns.
    at: u32,
    /// Whether every text with the literal matches.
    certain: bool,
}

/// A pattern, and the node that it leads to. Nodes are numbered in the order of declaration.
#[derive(Debug)]
pub(super) struct Needing<P> {
    pub(super) literal: Box<[u8]>,
    /// Whether every text with the literal matches.
    pub(super) certain: bool,
    pub(super) node: u32,
    pub(super) pattern: P,
}

#[derive(Debug)]
pub(super) struct Literals<P> {
    /// `None` if there are no patterns, or more than an automaton can hold.
    automaton: Option<NFA>,
    /// For each literal, by its number in the automaton, the patterns that need it, in the order of declaration.
    by_literal: Box<[Box<[Needs]>]>,
    /// All patterns with their nodes, in the order of declaration.
    patterns: Box<[(u32, P)]>,
}

impl<P> Literals<P> {
    /// Builds the search from patterns in the order of declaration. A literal must not be empty.
    pub(super) fn new(all: Vec<Needing<P>>) -> Self {
        let mut literals: Vec<Box<[u8]>> = Vec::new();
        let mut numbers: HashMap<Box<[u8]>, usize> = HashMap::new();
        let mut by_literal: Vec<Vec<Needs>> = Vec::new();
        let mut patterns = Vec::with_capacity(all.len());
        for (at, Needing { literal, certain, node, pattern }) in (0..).zip(all) {
            let number = *numbers.entry(literal).or_insert_with_key(|literal| {
                literals.push(literal.clone());
                by_literal.push(Vec::new());
                by_literal.len() - 1
            });
            by_literal[number].push(Needs { at, certain });
            patterns.push((node, pattern));
        }
        let automaton =
            if literals.is_empty() { None } else { NFA::builder().prefilter(false).build(literals).ok() };
        let by_literal = by_literal.into_iter().map(Vec::into_boxed_slice).collect();
        Self { automaton, by_literal, patterns: patterns.into() }
    }

    /// Returns the first declared node that matches, if it precedes the best so far. `matches` tests a pattern.
    pub(super) fn first(&self, text: &str, best: &mut u32, matches: impl Fn(&P) -> bool) {
        let Some(&(earliest, _)) = self.patterns.first().filter(|(node, _)| node < best) else { return };
        let start =
            self.automaton.as_ref().and_then(|automaton| Some((automaton, automaton.start_state(No).ok()?)));
        let Some((automaton, mut state)) = start else { return self.first_of_all(best, matches) };
        let mut left = self.patterns.len();
        for &byte in text.as_bytes() {
            state = automaton.next_state(No, state, byte);
            if !automaton.is_match(state) {
                continue;
            }
            for report in 0..automaton.match_len(state) {
                let literal = automaton.match_pattern(state, report);
                for needs in self.by_literal.get(literal.as_usize()).into_iter().flatten() {
                    if left == 0 {
                        return self.first_of_all(best, matches);
                    }
                    left -= 1;
                    let Some((node, pattern)) = self.patterns.get(needs.at as usize) else { break };
                    if node >= best {
                        break;
                    }
                    if needs.certain || matches(pattern) {
                        *best = *node;
                        break;
                    }
                }
            }
            if earliest >= *best {
                return;
            }
        }
    }

    /// Does the same by trying the patterns in order.
    #[cold]
    fn first_of_all(&self, best: &mut u32, matches: impl Fn(&P) -> bool) {
        let mut earlier = self.patterns.iter().take_while(|(node, _)| node < best);
        if let Some(&(node, _)) = earlier.find(|(_, pattern)| matches(pattern)) {
            *best = node;
        }
    }
}
