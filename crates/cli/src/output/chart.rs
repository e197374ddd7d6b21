//! Admitted and denied requests over time, as SVG: one panel for the algorithms with equal decisions.
//!
//! The colours are from the Okabe-Ito set. They also differ in lightness, for every kind of colour vision and in grey.

use std::path::Path;

use super::axis::{TimeAxis, value_ticks};
use super::svg::{Anchor, Pen, Picture, at};
use super::write_to;
use crate::input::Trace;
use tollgate_report::error::Error;
use tollgate_report::human;

const ADMITTED: &str = "#56B4E9";
const DENIED: &str = "#D55E00";
const INK: &str = "#222222";
const FAINT: &str = "#666666";
const GRID: &str = "#DDDDDD";
const PAPER: &str = "#FFFFFF";

const TITLE: Pen = Pen { size: 19, color: INK };
const LABEL: Pen = Pen { size: 11, color: INK };
const FAINT_LABEL: Pen = Pen { size: 11, color: FAINT };
const FIGURES: Pen = Pen { size: 12, color: FAINT };
const LEGEND: Pen = Pen { size: 13, color: INK };
const NAME: Pen = Pen { size: 14, color: INK };

const WIDTH: i32 = 1200;
const LEFT: i32 = 80;
const RIGHT: i32 = 24;
const HEAD: i32 = 84;
const FOOT: i32 = 52;
const PANEL_TITLE: i32 = 30;
const PANEL_GAP: i32 = 16;
const MOST_COLUMNS: u64 = 300;
/// The width of the label for the day on which a piece begins.
const DAY_WIDTH: i32 = 90;
/// The least height of a nonzero value.
const LEAST: i32 = 2;

/// The content of one panel: a name, and one byte per record, `1` admitted or `0` denied.
pub type Series<'a> = (String, &'a [u8]);

/// Draws the decisions on a trace to a file. `limits` names the limits.
///
/// # Errors
/// Returns an error if writing fails.
pub fn draw(path: &Path, trace: &Trace, limits: &str, series: &[Series<'_>]) -> Result<(), Error> {
    write_to(path, Chart::new(trace, limits, series).svg().as_bytes())
}

/// One algorithm's columns.
struct Panel {
    title: String,
    figures: String,
    admitted: Vec<u64>,
    denied: Vec<u64>,
}

struct Chart {
    subtitle: String,
    axis: TimeAxis,
    panels: Vec<Panel>,
    highest: u64,
}

impl Chart {
    fn new(trace: &Trace, limits: &str, series: &[Series<'_>]) -> Self {
        let axis = TimeAxis::new(trace.records.iter().map(|record| record.at).collect(), MOST_COLUMNS);
        let panels: Vec<Panel> =
            alike(series).iter().map(|series| Panel::new(trace, series, &axis)).collect();
        let columns = panels.first().into_iter().flat_map(|panel| panel.admitted.iter().zip(&panel.denied));
        let highest = columns.map(|(admitted, denied)| admitted + denied).max().unwrap_or(0);
        let subtitle = format!(
            "{limits} · {} of {} · each column is {}",
            human::counted(trace.records.len() as u64, "request"),
            human::counted(trace.distinct(), trace.distinct_what()),
            human::duration(axis.column()),
        );
        Self { subtitle, axis, panels, highest }
    }

    fn panel_height(&self) -> i32 {
        match self.panels.len() {
            0 | 1 => 380,
            2 | 3 => 240,
            _ => 160,
        }
    }

    fn height(&self) -> i32 {
        let panels = i32::try_from(self.panels.len().max(1)).unwrap_or(1);
        HEAD + panels * self.panel_height() + FOOT + self.days_height()
    }

    /// Returns the height of the line with the days on which pieces begin; zero for a single piece.
    fn days_height(&self) -> i32 {
        if self.axis.pieces.len() > 1 { 20 } else { 0 }
    }

    fn svg(&self) -> String {
        let mut picture = Picture::new(WIDTH, self.height());
        self.draw_head(&mut picture);
        let mut top = HEAD;
        for panel in &self.panels {
            self.draw_panel(&mut picture, panel, top);
            top += self.panel_height();
        }
        self.draw_times(&mut picture, top - PANEL_GAP);
        picture.finish()
    }

    fn draw_head(&self, picture: &mut Picture) {
        picture.text("Admitted and denied requests over time", at(LEFT, 16), Anchor::Start, TITLE);
        picture.text(&self.subtitle, at(LEFT, 48), Anchor::Start, FIGURES);
        let legend = [("denied", DENIED, WIDTH - RIGHT - 74), ("admitted", ADMITTED, WIDTH - RIGHT - 180)];
        for (name, color, x) in legend {
            picture.rectangle(at(x, 24), at(x + 14, 38), color);
            picture.text(name, at(x + 20, 26), Anchor::Start, LEGEND);
        }
    }

    fn draw_times(&self, picture: &mut Picture, axis: i32) {
        for (time, label) in self.axis.ticks() {
            let x = LEFT + length_of(self.axis.place(time));
            picture.line(at(x, axis), at(x, axis + 6), FAINT);
            picture.text(&label, at(x, axis + 10), Anchor::Middle, LABEL);
        }
        if self.days_height() > 0 {
            let mut free = 0;
            for piece in &self.axis.pieces {
                let x = self.column_edges(piece.first).0.min(WIDTH - DAY_WIDTH);
                if x >= free {
                    picture.text(&TimeAxis::day(piece), at(x, axis + 28), Anchor::Start, LABEL);
                    free = x + DAY_WIDTH;
                }
            }
        }
        let middle = at(i32::midpoint(LEFT, WIDTH - RIGHT), axis + 32 + self.days_height());
        picture.text(&self.axis.caption(), middle, Anchor::Middle, FAINT_LABEL);
    }

    fn draw_panel(&self, picture: &mut Picture, panel: &Panel, top: i32) {
        let bottom = top + self.panel_height() - PANEL_GAP;
        let plot_top = top + PANEL_TITLE;
        picture.text(&panel.title, at(LEFT, top + 8), Anchor::Start, NAME);
        picture.text(&panel.figures, at(WIDTH - RIGHT, top + 9), Anchor::End, FIGURES);
        let unit = format!("requests per {}", per(self.axis.column()));
        picture.upright(&unit, at(8, i32::midpoint(plot_top, bottom)), FAINT_LABEL);
        let full = self.highest.max(1);
        let y = |value: u64| bottom - proportion(value, full, bottom - plot_top);
        for tick in value_ticks(self.highest, if self.panels.len() > 3 { 3 } else { 6 }) {
            picture.line(at(LEFT, y(tick)), at(WIDTH - RIGHT, y(tick)), GRID);
            // Does not cover the peak's label.
            if y(tick) - plot_top >= 14 {
                picture.text(&human::count(tick), at(LEFT - 8, y(tick) - 5), Anchor::End, FAINT_LABEL);
            }
        }
        picture.text(&human::count(self.highest), at(LEFT - 8, plot_top - 5), Anchor::End, LABEL);
        for (column, (&admitted, &denied)) in (0_u64..).zip(panel.admitted.iter().zip(&panel.denied)) {
            let (left, right) = self.column_edges(column);
            let (middle, upper) = (y(admitted), y(admitted + denied));
            // Every nonzero value stays visible.
            let middle = if admitted > 0 { middle.min(bottom - LEAST) } else { middle };
            if admitted > 0 {
                picture.rectangle(at(left, middle), at(right, bottom), ADMITTED);
            }
            if denied > 0 {
                picture.rectangle(at(left, upper.min(middle - LEAST)), at(right, middle), DENIED);
            }
        }
        picture.line(at(LEFT, bottom), at(WIDTH - RIGHT, bottom), FAINT);
        for pair in self.axis.pieces.windows(2) {
            let (from, to) = (pair[0].first + pair[0].columns, pair[1].first);
            let (left, right) = (self.column_edges(from).0, self.column_edges(to).0);
            picture.rectangle(at(left, plot_top - 1), at(right, bottom + 1), PAPER);
            for x in [left, right - 1] {
                picture.line(at(x, plot_top), at(x, bottom + 4), GRID);
            }
            picture.text("//", at(i32::midpoint(left, right), bottom - 9), Anchor::Middle, FAINT_LABEL);
        }
    }

    fn column_edges(&self, column: u64) -> (i32, i32) {
        let edge = |column| LEFT + proportion(column, self.axis.columns, WIDTH - RIGHT - LEFT);
        (edge(column), edge(column + 1).max(edge(column) + 1))
    }
}

/// Merges series with equal decisions, in the order of the first of them.
pub fn alike<'a>(series: &[Series<'a>]) -> Vec<Series<'a>> {
    let mut groups: Vec<Series<'_>> = Vec::new();
    for (title, decisions) in series {
        match groups.iter_mut().find(|(_, others)| others == decisions) {
            Some((titles, _)) => *titles += &format!(", {title}"),
            None => groups.push((title.clone(), decisions)),
        }
    }
    groups
}

/// Returns a length of time for use after `per`.
pub fn per(length: std::time::Duration) -> String {
    match human::duration(length).as_str() {
        "1 s" => "second".to_owned(),
        "1 min" => "minute".to_owned(),
        "1 h" => "hour".to_owned(),
        "1 d" => "day".to_owned(),
        text => text.to_owned(),
    }
}

/// Returns a part of the plot's width.
#[expect(clippy::cast_possible_truncation, reason = "a part of the width is an i32")]
fn length_of(part: f64) -> i32 {
    (part * f64::from(WIDTH - RIGHT - LEFT)).round() as i32
}

impl Panel {
    fn new(trace: &Trace, (title, decisions): &Series<'_>, axis: &TimeAxis) -> Self {
        let columns = usize::try_from(axis.columns).unwrap_or(0);
        let (mut admitted, mut denied) = (vec![0; columns], vec![0; columns]);
        for (record, decision) in trace.records.iter().zip(*decisions) {
            let column = axis.column_of(record.at);
            if *decision == b'1' { admitted[column] += 1 } else { denied[column] += 1 }
        }
        let (total_admitted, refused): (u64, u64) = (admitted.iter().sum(), denied.iter().sum());
        let figures = format!(
            "{} admitted, {} denied ({})",
            human::count(total_admitted),
            human::count(refused),
            human::share(refused, total_admitted + refused),
        );
        Self { title: title.clone(), figures, admitted, denied }
    }
}

/// Returns `length` times `value / full`, rounded.
fn proportion(value: u64, full: u64, length: i32) -> i32 {
    let full = u128::from(full.max(1));
    let scaled = (u128::from(value) * u128::from(length.unsigned_abs()) + full / 2) / full;
    i32::try_from(scaled).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_round_and_saturate() {
        assert_eq!([proportion(0, 3, 100), proportion(1, 3, 100), proportion(3, 3, 100)], [0, 33, 100]);
        assert_eq!(proportion(u64::MAX, u64::MAX, 1_000), 1_000);
        assert_eq!(proportion(5, 0, 10), 50);
    }
}
