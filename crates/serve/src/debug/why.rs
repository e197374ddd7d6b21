//! Which rules apply to a request, and why others do not. Charges nothing.

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::{Value, json};
use tollgate_rules::{Explanation, Rules};

use super::answer::KEY;
use super::read::{Refusal, WhyRequest};
use tollgate_report::descriptor::{Entries, described};
use tollgate_report::explanation::{COLUMNS, explanation_json, outcome, row};
use tollgate_report::output::merged;
use tollgate_report::text::printable;

/// The rules that apply to a request, and those that nearly apply.
pub(super) struct Because {
    explanation: Explanation,
    domain: String,
    rows: Vec<Vec<String>>,
}

/// Explains what the rules in force would do with a request.
///
/// # Errors
/// If the domain has no rules.
pub(super) fn why(rules: &Rules, question: &WhyRequest) -> Result<Because, Refusal> {
    let entries: Vec<Entries<'_>> = question.descriptors.iter().map(|one| one.entries().collect()).collect();
    let descriptors = described(&entries, question.tier.as_deref());
    let explanation = rules.explain(&question.domain, &descriptors, question.cost);
    if !explanation.answer().has_domain() {
        let domain = printable(question.domain.as_bytes(), KEY);
        return Err((StatusCode::NOT_FOUND, format!("no rules are in force for the domain {domain}")));
    }
    let place = |mut row: Vec<String>, identity: &str| {
        if let (Some(line), Some(file)) = (row.last_mut(), rules.file_of(&question.domain, identity)) {
            *line = printable(format!("{file}:{line}").as_bytes(), KEY);
        }
        row
    };
    let rows = explanation.rules().map(|one| place(row(&one, &entries), &one.rule().identity)).collect();
    Ok(Because { explanation, domain: question.domain.clone(), rows })
}

impl Because {
    pub(super) fn text(&self) -> String {
        let mut page = format!("{}\n{}\n", outcome(self.explanation.answer()), COLUMNS.replace('|', "  "));
        for row in &self.rows {
            let _ = writeln!(page, "{}", row.join("  "));
        }
        let _ = writeln!(page, "{} others do not match", self.explanation.others());
        page
    }

    /// The fields of `tollgate rules explain --json`, and the table for people.
    pub(super) fn json(&self) -> Value {
        let head = json!({ "domain": self.domain });
        let columns: Vec<&str> = COLUMNS.split('|').collect();
        let table =
            json!({ "answer": outcome(self.explanation.answer()), "columns": columns, "rows": self.rows });
        merged([head, explanation_json(&self.explanation), json!({ "table": table })])
    }
}
