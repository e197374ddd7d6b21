//! Counts the methods of `RateLimiter`. A user finds a verb in its list, so a new method should replace or join an old one.

use std::collections::BTreeSet;

use super::{files, read};

const MOST: usize = 65;

/// Adds the names of the public methods in blocks `impl … RateLimiter<…> {`, for any store.
fn in_file(text: &str, names: &mut BTreeSet<String>) {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let inner = line.trim_start();
        let indent = &line[..line.len() - inner.len()];
        if !inner.starts_with("impl") {
            continue;
        }
        // rustfmt may write a head on several lines.
        let mut head = inner.to_owned();
        while !head.ends_with(['{', '}', ';']) {
            head.push(' ');
            head.push_str(lines.next().unwrap().trim());
        }
        let of = head.split(" where ").next().unwrap();
        let is_inherent = of.contains("> RateLimiter<") && !of.contains(" for ");
        let (end, method) = (format!("{indent}}}"), format!("{indent}    pub "));
        let mut is_hidden = false;
        for line in lines.by_ref().take_while(|line| *line != end).filter(|_| is_inherent) {
            if let Some((_, name)) = line.strip_prefix(&method).and_then(|rest| rest.split_once("fn "))
                && !is_hidden
            {
                names.insert(name.split(['<', '(']).next().unwrap().to_owned());
            }
            is_hidden = line.contains("#[doc(hidden)]") || is_hidden && line.trim_start().starts_with("#[");
        }
    }
}

#[test]
fn limiter_has_few_methods() {
    let mut names = BTreeSet::new();
    files("src", "rs").iter().for_each(|file| in_file(&read(file), &mut names));
    for name in ["check", "peek", "set_quota", "until_ready", "len", "fill", "hold", "give_back"] {
        assert!(names.contains(name), "the search misses `{name}`: {names:?}");
    }
    assert!(names.len() <= MOST, "{} methods, at most {MOST}: {names:?}", names.len());
    println!("{} methods: {names:?}", names.len());
}

#[test]
fn methods_are_found_in_each_form_of_a_block() {
    let mut names = BTreeSet::new();
    let text = "
impl<P, C> RateLimiter<P, C>
where
    P: Store,
{
    /// One.
    pub const fn one<Q: ?Sized>(&self) {}

    pub(crate) fn inner(&self) {}
    #[doc(hidden)]
    #[inline]
    pub fn hidden(&self) {}
    fn own() {}
}
macro_rules! methods {
    () => {
        impl<A, C> RateLimiter<A, C> {
            pub async fn two(&self) {}
        }
    };
}
impl<C> fmt::Debug for RateLimiter<S, C> {
    pub fn other(&self) {}
}
impl<S, C> At<'_, RateLimiter<S, C>> {
    pub fn timed(self) {}
}
";
    in_file(text, &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["one", "two"]);
}
