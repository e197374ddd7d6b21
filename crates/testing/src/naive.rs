//! A naive matcher that follows the specification literally, and a generator of files for it.

use std::fmt::Write as _;

/// One descriptor of a file. Its rule's name is the descriptor's number in the order of declaration.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub key: String,
    pub value: Option<String>,
    pub is_limited: bool,
    /// Each tier's name with its members.
    pub tiers: Vec<(String, Vec<String>)>,
    pub children: Vec<Entry>,
}

/// Makes random entries valid: drops entries that repeat a key and value, repeated tiers, and members that are in
/// another tier already or that do not match the entry's value.
pub fn valid_entries(entries: Vec<Entry>) -> Vec<Entry> {
    let mut tidy: Vec<Entry> = Vec::new();
    for mut entry in entries {
        entry.value = entry.value.filter(|value| !value.is_empty());
        if entry.key.is_empty() || tidy.iter().any(|one| one.key == entry.key && one.value == entry.value) {
            continue;
        }
        let mut taken: Vec<String> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        entry.tiers.retain(|(name, _)| {
            !name.is_empty() && !names.contains(name) && {
                names.push(name.clone());
                true
            }
        });
        for (_, members) in &mut entry.tiers {
            members.retain(|member| {
                let fits =
                    entry.value.as_ref().is_none_or(|value| value.contains('*') && glob(value, member));
                let free = !taken.contains(member);
                if fits && free {
                    taken.push(member.clone());
                }
                fits && free
            });
        }
        entry.children = valid_entries(entry.children);
        tidy.push(entry);
    }
    tidy
}

/// Returns the file as YAML. Each rule's name identifies its entry.
pub fn yaml(entries: &[Entry]) -> String {
    let mut text = "domain: d\ntollgate: {}\n".to_owned();
    let mut number = 0;
    write_entries(&mut text, entries, 0, &mut number);
    text
}

fn write_entries(text: &mut String, entries: &[Entry], depth: usize, number: &mut usize) {
    let indent = "  ".repeat(depth * 2);
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(text, "{indent}descriptors:");
    for entry in entries {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let name = *number;
        *number += 1;
        let _ = writeln!(text, "{indent}  - key: {}", quoted(&entry.key));
        if let Some(value) = &entry.value {
            let _ = writeln!(text, "{indent}    value: {}", quoted(value));
        }
        let limit = |name: String| {
            format!("rate_limit: {{ unit: day, requests_per_unit: 1, name: {} }}", quoted(&name))
        };
        if entry.is_limited {
            let _ = writeln!(text, "{indent}    {}", limit(name.to_string()));
        }
        if !entry.tiers.is_empty() {
            let _ = writeln!(text, "{indent}    tiers:");
        }
        for (tier, members) in &entry.tiers {
            let members: Vec<String> = members.iter().map(|member| quoted(member)).collect();
            let _ = writeln!(text, "{indent}      {}:", quoted(tier));
            let _ = writeln!(text, "{indent}        members: [{}]", members.join(", "));
            let _ = writeln!(text, "{indent}        {}", limit(format!("{name} {tier}")));
        }
        write_entries(text, &entry.children, depth + 1, number);
    }
}

/// Returns the name of the rule that limits a request, if there is one.
pub fn find(entries: &[Entry], request: &[(&str, &str)], tier: Option<&str>) -> Option<String> {
    let mut number = 0;
    let ((key, value), deeper) = request.split_first().map(|(first, deeper)| (*first, deeper))?;
    let numbers: Vec<usize> = entries
        .iter()
        .map(|entry| {
            let own = number;
            number += size(entry);
            own
        })
        .collect();
    let is_wild = |entry: &Entry| {
        entry.key.contains('*') || entry.value.as_ref().is_some_and(|value| value.contains('*'))
    };
    let exact = entries.iter().position(|entry| entry.key == key && entry.value.as_deref() == Some(value));
    let wild = || {
        entries.iter().position(|entry| {
            is_wild(entry)
                && glob(&entry.key, key)
                && entry.value.as_ref().is_none_or(|pattern| glob(pattern, value))
        })
    };
    let bare = || entries.iter().position(|entry| entry.key == key && entry.value.is_none());
    let at = exact.or_else(wild).or_else(bare)?;
    let (entry, number) = (&entries[at], numbers[at]);
    if deeper.is_empty() {
        let named = entry.tiers.iter().find(|(name, _)| Some(&**name) == tier);
        let member = || entry.tiers.iter().find(|(_, members)| members.iter().any(|member| member == value));
        return match named.or_else(member) {
            Some((name, _)) => Some(format!("{number} {name}")),
            None => entry.is_limited.then(|| number.to_string()),
        };
    }
    let below = find(&entry.children, deeper, tier)?;
    let (inner, rest) =
        below.split_once(' ').map_or((&*below, String::new()), |(inner, tier)| (inner, format!(" {tier}")));
    let inner: usize = inner.parse().expect("the name of a rule begins with its number");
    Some(format!("{}{rest}", number + 1 + inner))
}

fn size(entry: &Entry) -> usize {
    1 + entry.children.iter().map(size).sum::<usize>()
}

/// Returns whether a pattern matches, by trying all divisions of the text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // matches[t]: the part of the pattern up to here matches the first t characters.
    let mut matches: Vec<bool> = (0..=text.len()).map(|taken| taken == 0).collect();
    for wanted in pattern {
        matches = match wanted {
            '*' => (0..=text.len()).map(|taken| matches[..=taken].contains(&true)).collect(),
            _ => (0..=text.len())
                .map(|taken| taken > 0 && matches[taken - 1] && text[taken - 1] == wanted)
                .collect(),
        };
    }
    matches[text.len()]
}
