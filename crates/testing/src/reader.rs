//! A client that parses the fields by RFC 9651 and decodes the policies' names.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

/// One member of a list: its value and its parameters.
pub struct Member(Item);

/// Returns the members of a list field from all of its lines.
pub fn list(headers: &HeaderMap, name: &str) -> Vec<Member> {
    let lines: Vec<&str> = lines(headers, name);
    let list: List =
        Parser::new(&lines.join(",")).parse().unwrap_or_else(|error| panic!("{lines:?}: {error}"));
    list.into_iter()
        .map(|entry| match entry {
            ListEntry::Item(item) => Member(item),
            ListEntry::InnerList(inner) => panic!("unexpected inner list: {inner:?}"),
        })
        .collect()
}

/// Returns an integer from a dictionary field.
pub fn entry(headers: &HeaderMap, name: &str, key: &str) -> u64 {
    let lines = lines(headers, name);
    let entries: Dictionary =
        Parser::new(&lines.join(",")).parse().unwrap_or_else(|error| panic!("{lines:?}: {error}"));
    match entries.get(key) {
        Some(ListEntry::Item(item)) => integer(&item.bare_item).expect("the item is an integer"),
        other => panic!("{key} is {other:?}"),
    }
}

/// Returns the integer of a field that holds one integer.
pub fn number(headers: &HeaderMap, name: &str) -> u64 {
    let lines = lines(headers, name);
    assert_eq!(lines.len(), 1, "{name}");
    let item: Item = Parser::new(lines[0]).parse().expect("the field is a valid item");
    assert!(item.params.is_empty());
    integer(&item.bare_item).expect("the item is an integer")
}

fn lines<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    let name: HeaderName = name.parse().expect("a valid field name");
    headers.get_all(name).iter().map(|value| value.to_str().expect("visible ASCII")).collect()
}

fn integer(item: &BareItem) -> Option<u64> {
    item.as_integer().and_then(|integer| u64::try_from(i64::from(integer)).ok())
}

impl Member {
    /// Returns the policy's name after percent-decoding.
    pub fn name(&self) -> String {
        percent_decoded(self.0.bare_item.as_string().expect("the item is a string").as_str())
    }

    /// Returns the value, which must be an integer.
    pub fn value(&self) -> u64 {
        integer(&self.0.bare_item).expect("the item is an integer")
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.0.params.get(key).map(|item| integer(item).expect("the item is an integer"))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.params.get(key).map(|item| item.as_string().expect("the item is a string").as_str())
    }

    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.0.params.get(key).map(|item| item.as_byte_sequence().expect("the item is a byte sequence"))
    }
}

pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [
                rest.next().expect("two hexadecimal digits follow"),
                rest.next().expect("two hexadecimal digits follow"),
            ];
            let hex = std::str::from_utf8(&hex).expect("ASCII");
            bytes.push(u8::from_str_radix(hex, 16).expect("hexadecimal"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}
