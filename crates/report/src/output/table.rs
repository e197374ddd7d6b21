//! Tables that fit the terminal: first headers and long texts wrap, then columns are left out, and then shorter texts wrap.

use std::ops::Range;

use comfy_table::{CellAlignment, ColumnConstraint, LineStyle, Row, Table, TableStyle, Width};
use unicode_width::UnicodeWidthStr as _;

use super::wrap::{columns_of_stdout, wrapped};

/// A longer cell may wrap.
const LONGEST_CELL: usize = 24;
/// A longer text may wrap if the table is too wide otherwise.
const SHORTEST_CELL: usize = 8;
/// The text between two columns.
const BETWEEN: usize = 3;

/// A table without frames. Its header is one text with a bar between two columns; columns in `right` are right-aligned,
/// like numbers. If possible, the table is no wider than the terminal: the columns in `droppable` are left out
/// if needed, in this order, and a line below names them.
pub fn table(
    header: &str,
    right: Range<usize>,
    rows: impl IntoIterator<Item = Vec<String>>,
    droppable: &[usize],
) -> String {
    let table = plain(header, right.clone(), rows);
    match columns_of_stdout() {
        Some(width) => in_width(table, right, droppable, width),
        None => table.to_string(),
    }
}

/// Returns the table at its full width.
fn plain(header: &str, right: Range<usize>, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().header_separator(rule));
    table.set_header(header.split('|'));
    table.add_rows(rows);
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn in_width(mut table: Table, right: Range<usize>, droppable: &[usize], width: usize) -> String {
    let names = texts(table.header());
    let natural: Vec<usize> = table.column_max_content_widths().into_iter().map(usize::from).collect();
    let least = |longest: usize| -> Vec<Option<usize>> {
        // Numbers never wrap further.
        let longest = |at: &usize| if right.contains(at) { LONGEST_CELL } else { longest };
        (0..natural.len()).map(|at| Some(least(&table, &names, at, longest(&at)))).collect()
    };
    let all = |widths: &[Option<usize>]| {
        widths.iter().flatten().map(|width| width + BETWEEN).sum::<usize>().saturating_sub(BETWEEN) + 2
    };
    let mut widths = least(LONGEST_CELL);
    let mut dropped = Vec::new();
    for &at in droppable {
        if all(&widths) <= width {
            break;
        }
        if let Some(place) = widths.get_mut(at) {
            *place = None;
            dropped.push(at);
        }
    }
    // If no further column can be left out, shorter texts wrap.
    for longest in (SHORTEST_CELL..LONGEST_CELL).rev() {
        if all(&widths) <= width {
            break;
        }
        widths = least(longest);
        dropped.iter().for_each(|&at| widths[at] = None);
    }
    // Columns share the remaining width from left to right, up to the width that each needs.
    let mut spare = width.saturating_sub(all(&widths));
    for (place, natural) in widths.iter_mut().zip(natural) {
        if let Some(place) = place {
            let more = natural.saturating_sub(*place).min(spare);
            *place += more;
            spare -= more;
        }
    }
    // Columns of words are split between words; a header such as `token-bucket` has no space to split it at.
    let header = names.iter().zip(&widths).map(|(name, &width)| match width {
        Some(width) if name.width() > width => name.replace('-', "-\n"),
        _ => name.clone(),
    });
    table.set_header(header.collect::<Vec<_>>());
    for (at, width) in widths.iter().enumerate() {
        let constraint = match width {
            // The column has one blank on each side.
            Some(width) => {
                ColumnConstraint::Absolute(Width::Fixed(u16::try_from(width + 2).unwrap_or(u16::MAX)))
            }
            None => ColumnConstraint::Hidden,
        };
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(constraint);
        }
    }
    if dropped.is_empty() {
        return table.to_string();
    }
    dropped.sort_unstable();
    let names: Vec<&str> = dropped.iter().filter_map(|&at| names.get(at)).map(String::as_str).collect();
    let note =
        format!("(Columns left out: {}. The terminal is too narrow; --json shows all.)", names.join(", "));
    format!("{table}\n{}", wrapped(&note, width))
}

fn texts(row: Option<&Row>) -> Vec<String> {
    row.map_or_else(Vec::new, |row| row.cell_iter().map(comfy_table::Cell::content).collect())
}

/// Returns the minimum width of a column. Headers and cells that are longer than `longest` wrap between words.
fn least(table: &Table, names: &[String], at: usize, longest: usize) -> usize {
    let words = names.get(at).into_iter().flat_map(|name| name.split(' '));
    let word = words.flat_map(|word| word.split_inclusive('-')).map(str::width).max().unwrap_or(0);
    let cells = table.row_iter().filter_map(|row| texts(Some(row)).get(at).map(|text| text.width()));
    word.max(cells.max().unwrap_or(0).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        let long = row(["an address that is longer than the others", "1,234", "1 h 20 min", "7"]);
        plain("Key|Keys denied|Longest wait|Line", 1..4, [long, row(["short", "1", "-", "12,345"])])
    }

    #[test]
    fn tables_fit_any_width() {
        let natural = table().to_string();
        assert_eq!(in_width(table(), 1..4, &[3], 200), natural);
        for width in 57..100 {
            let text = in_width(table(), 1..4, &[3], width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for part in ["1,234", "1 h 20 min", "12,345"] {
                assert!(text.contains(part), "{part}:\n{text}");
            }
        }
        // In a narrower table, a column is left out, and a note names it.
        let text = in_width(table(), 1..4, &[3], 45);
        assert!(!text.contains("12,345") && text.contains("1,234"), "{text}");
        assert!(
            text.ends_with("(Columns left out: Line. The terminal is too\nnarrow; --json shows all.)"),
            "{text}"
        );
        // If no column can be left out, more texts wrap.
        let text = in_width(table(), 1..4, &[], 45);
        assert!(text.lines().all(|line| line.width() <= 45) && text.contains("12,345"), "{text}");
        // If the width is too small, the table is wider, and no column is lost.
        assert!(in_width(table(), 1..4, &[], 5).contains("1 h 20 min"));
    }
}
