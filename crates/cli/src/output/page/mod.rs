//! A report as one HTML page, for people who do not have the log or the program.
//!
//! The page loads nothing. Without script it has all figures as tables and pictures; `page.js` adds zoom and pointing.
//! Its size does not depend on the number of requests.

mod html;
mod plot;

use std::path::Path;

use self::html::escaped;
pub use self::html::{Cell, HtmlTable};
use self::plot::Plot;
use super::axis::SECOND;
use super::chart::Series;
use super::write_to;
use crate::input::Trace;
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_report::output::STYLE;

const SCRIPT: &str = include_str!("page.js");

/// The most keys in a table. The page stays small, also with a large `--top`.
pub const MOST_KEYS: usize = 100;

/// A time in UTC, to the second.
pub fn to_second(nanos: u64) -> String {
    human::utc(nanos - nanos % SECOND)
}

/// A heading, sentences, and tables.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub heading: String,
    pub texts: Vec<String>,
    pub tables: Vec<HtmlTable>,
}

/// The content of a page.
pub struct Page<'a> {
    /// What was replayed through.
    pub limits: &'a str,
    /// The lines about the input, as on a terminal.
    pub about: Vec<&'a str>,
    pub trace: &'a Trace,
    pub series: &'a [Series<'a>],
    /// The sections. The first is the summary, and comes before the chart.
    pub sections: Vec<Section>,
}

impl Page<'_> {
    /// Writes the page to a file.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        write_to(path, self.html().as_bytes())
    }

    fn html(&self) -> String {
        let plot = Plot::new(self.trace, self.series);
        let title = escaped(&format!("Replay of {}", self.limits));
        let requests = human::counted(self.trace.records.len() as u64, "request");
        let mut sections = self.sections.iter().map(Section::html);
        let summary = sections.next().unwrap_or_default();
        let sections: String = sections.collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; \
             form-action 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n\
             <p>What a rate limit would have done to {requests} of a log, by the log's own times.</p>\n</header>\n<main>\n\
             {summary}{input}<section>\n<h2>Over time</h2>\n{chart}</section>\n{sections}</main>\n\
             <footer><p>Written by tollgate {version}. This page loads nothing and sends nothing.</p></footer>\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            input = self.input(),
            chart = plot.html(),
            version = env!("CARGO_PKG_VERSION"),
            // Numbers and the program's own names only.
            data = plot.data(),
        )
    }

    /// Returns the lines about the input as a list of names and texts. A line that begins with spaces continues the one
    /// before it.
    fn input(&self) -> String {
        let mut list: Vec<(String, String)> = Vec::new();
        for line in &self.about {
            let (name, text) = line.split_at_checked(LABEL).unwrap_or(("", line));
            match (name.trim(), list.last_mut()) {
                ("", Some((_, before))) => {
                    // A new sentence can begin after a line without a full stop.
                    let is_sentence = text.trim().starts_with(char::is_uppercase) && !before.ends_with('.');
                    *before += &format!("{} {}", if is_sentence { "." } else { "" }, text.trim());
                }
                (name, _) => list.push((name.to_owned(), text.trim().to_owned())),
            }
        }
        let item = |(name, text): &(String, String)| {
            format!("<div><dt>{}</dt><dd><bdi>{}</bdi></dd></div>\n", escaped(name), escaped(text))
        };
        let items: String = list.iter().map(item).collect();
        format!("<section>\n<h2>Input and settings</h2>\n<dl>\n{items}</dl>\n</section>\n")
    }
}

/// The width of the name at the beginning of a line about the input.
const LABEL: usize = 9;

impl Section {
    fn html(&self) -> String {
        let texts: String = self.texts.iter().map(|text| format!("<p>{}</p>\n", escaped(text))).collect();
        let tables: String = self.tables.iter().map(HtmlTable::html).collect();
        format!("<section>\n<h2>{}</h2>\n{texts}{tables}</section>\n", escaped(&self.heading))
    }
}
