//! Reads the requests that the command line names.

use std::path::Path;

use crate::input::row::Row;
use crate::input::sample::Sample;
use crate::input::wanted::Fields;
use crate::input::{self, Selection, Trace};
use crate::output::progress::{bar, bar_of_bytes, size};
use crate::synthetic;
use tollgate_report::error::Error;

/// Reads the requests, with a key or these fields: from files, with a progress bar, or from the generated day.
pub fn requests(input: &Selection, json: Option<&Path>, fields: Option<Fields>) -> Result<Trace, Error> {
    if input.files.is_empty() {
        return fields.map_or_else(|| Ok(synthetic::day()), generated_fields);
    }
    let progress = match size(&input.files) {
        Some(size) => bar(size, "reading"),
        None => bar_of_bytes(),
    };
    let trace = input::load(input, fields, &progress);
    progress.finish_and_clear();
    match (trace, &input.files[..]) {
        // `--json out.json` names a second input, which is rarely the intention.
        (Err(Error::Run(message)), [_, .., last])
            if json == Some(Path::new("-"))
                && last.extension().is_some_and(|extension| extension == "json") =>
        {
            Err(Error::Run(format!(
                "{message}\n(to write JSON to a file, use an equals sign: --json={})",
                last.display()
            )))
        }
        (trace, _) => trace,
    }
}

/// The generated day; its requests have a client and no other field.
fn generated_fields(mut fields: Fields) -> Result<Trace, Error> {
    let mut trace = synthetic::day();
    let sample = Sample::of_header(&["client".to_owned()]);
    let names = fields.resolve(&sample, None, "the generated day")?;
    let mut row = Row::new(None);
    for record in &mut trace.records {
        row.clear();
        let client = trace.keys.name(record.key);
        for name in &names {
            row.add_field(name.as_ref().map(|_| client.as_bytes()));
        }
        record.key = fields
            .intern(&row)
            .ok_or_else(|| Error::run("more than 2^32 keys; choose fields with fewer values"))?;
    }
    trace.fields = Some(fields);
    Ok(trace)
}
