//! Escaped text and tables in HTML.

use std::fmt::Write as _;
use std::ops::Range;

/// A text as HTML shows it, in an element or in an attribute in double quotes.
pub fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if c.is_control() => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A text of the program.
    Text(String),
    /// A text of the log or of a rule file. It may contain anything, also marks that change the direction of writing.
    Foreign(String),
    /// A time, which may break only between the date and the time of day.
    Time(String),
    /// Small bars, with the text that a screen reader reads in their place.
    Bars(Vec<u64>, String),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Text(text) => escaped(text),
            Self::Foreign(text) => format!("<bdi>{}</bdi>", escaped(text)),
            Self::Time(text) => unbroken(text),
            Self::Bars(bars, text) => {
                let (width, highest) = (bars.len(), bars.iter().copied().max().unwrap_or(0).max(1));
                let mut path = String::new();
                for (x, &bar) in bars.iter().enumerate().filter(|&(_, &bar)| bar > 0) {
                    // At least 2 of 12 units are visible.
                    let height = 2 + u128::from(bar) * 10 / u128::from(highest);
                    let _ = write!(path, "M{x} 12v-{height}h1v{height}z");
                }
                format!(
                    "<svg class=\"bars\" viewBox=\"0 0 {width} 12\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
                     <path d=\"{path}\"/></svg><small>{}</small>",
                    unbroken(text)
                )
            }
        }
    }
}

/// A text that may break only at its blanks. A browser would also break a date at its hyphens.
fn unbroken(text: &str) -> String {
    let words = text.split(' ').map(|word| format!("<span class=\"word\">{}</span>", escaped(word)));
    words.collect::<Vec<_>>().join(" ")
}

/// A table with a caption. Its header is one text with a bar between two columns; columns in `numbers` are right-aligned.
/// The first cell of a row is the row's header.
#[derive(Clone, Debug)]
pub struct HtmlTable {
    pub caption: String,
    pub header: String,
    pub numbers: Range<usize>,
    pub rows: Vec<Vec<Cell>>,
}

impl HtmlTable {
    /// Returns the table. Each cell also has its column's name, because a narrow page shows each row as a list, and the
    /// roles, because such a layout hides them from screen readers.
    pub fn html(&self) -> String {
        let names: Vec<String> = self.header.split('|').map(escaped).collect();
        let class = |at: usize| if self.numbers.contains(&at) { " class=\"n\"" } else { "" };
        let mut html = format!(
            "<div class=\"wide\"><table role=\"table\"><caption>{}</caption>\n<thead role=\"rowgroup\"><tr role=\"row\">",
            escaped(&self.caption)
        );
        for (at, name) in names.iter().enumerate() {
            let _ = write!(html, "<th role=\"columnheader\" scope=\"col\"{}>{name}</th>", class(at));
        }
        html += "</tr></thead>\n<tbody role=\"rowgroup\">\n";
        for row in &self.rows {
            html += "<tr role=\"row\">";
            for (at, (cell, name)) in row.iter().zip(&names).enumerate() {
                let (tag, role) = match at {
                    0 => ("th", "rowheader\" scope=\"row"),
                    _ => ("td", "cell"),
                };
                let _ = write!(
                    html,
                    "<{tag} role=\"{role}\"{} data-name=\"{name}\">{}</{tag}>",
                    class(at),
                    cell.html()
                );
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_texts_is_escaped() {
        assert_eq!(escaped("</script>\"'&\u{1b}é"), "&lt;/script&gt;&quot;&#39;&amp;\u{fffd}é");
        let table = HtmlTable {
            caption: "a<b".to_owned(),
            header: "Key|\"Denied\"".to_owned(),
            numbers: 1..2,
            rows: vec![vec![
                Cell::Foreign("<img src=x>".to_owned()),
                Cell::Bars(vec![0, 3, 1], "'".to_owned()),
            ]],
        };
        let html = table.html();
        assert!(html.contains("<caption>a&lt;b</caption>"), "{html}");
        assert!(html.contains("data-name=\"&quot;Denied&quot;\""), "{html}");
        assert!(
            html.contains("<bdi>&lt;img src=x&gt;</bdi>")
                && html.contains("<small><span class=\"word\">&#39;</span></small>"),
            "{html}"
        );
        assert!(html.contains("M1 12v-12h1v12zM2 12v-5h1v5z"), "{html}");
    }
}
