//! The bars of a page: requests over time, as pictures that need no script, and as numbers for the script.
//!
//! The numbers are counts in fine columns of time; a picture adds up several columns to one bar. The pictures are
//! stretched to the page's width, so they have no texts; the texts are elements of the page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::html::{Cell, HtmlTable, escaped};
use crate::input::Trace;
use crate::output::axis::{TimeAxis, value_ticks};
use crate::output::chart::{Series, alike, per};
use tollgate_report::human;

/// The most columns of the numbers.
const MOST_COLUMNS: u64 = 3_000;
/// The most bars of a picture without script.
const MOST_BARS: u64 = 200;
/// The most rows of the table.
const MOST_ROWS: u64 = 30;
/// The size of a picture, in its own units.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 200.0;
/// The least height of a nonzero value.
const LEAST: f64 = 3.0;

/// What the script uses and shows. Without a script it stays hidden.
const CONTROLS: &str = r#"<div id="controls" hidden>
<div class="buttons"><button type="button" id="in">Zoom in</button> <button type="button" id="out">Zoom out</button>
<button type="button" id="earlier">Earlier</button> <button type="button" id="later">Later</button>
<button type="button" id="whole">Whole time</button></div>
<label>Time <input type="range" id="at" min="0" max="0" step="1" value="0"></label>
<p class="hint">Drag across the bars to zoom. Point at a bar, or move the slider, to see its figures.
Keys on the slider: + and - zoom, 0 shows the whole time.</p>
<p id="said" aria-live="polite"></p>
</div>
"#;

/// The columns of time, and the requests in each.
pub struct Plot {
    axis: TimeAxis,
    requests: Vec<u64>,
    panels: Vec<Panel>,
}

/// The algorithms with equal decisions, and the requests that they deny in each column.
struct Panel {
    title: String,
    denied: Vec<u64>,
}

/// Adds up the columns of each bar.
fn bars(counts: &[u64], columns_each: usize) -> Vec<u64> {
    counts.chunks(columns_each).map(|counts| counts.iter().sum()).collect()
}

impl Plot {
    pub fn new(trace: &Trace, series: &[Series<'_>]) -> Self {
        let axis = TimeAxis::new(trace.records.iter().map(|record| record.at).collect(), MOST_COLUMNS);
        let columns: Vec<usize> = trace.records.iter().map(|record| axis.column_of(record.at)).collect();
        let none = || vec![0_u64; usize::try_from(axis.columns).unwrap_or(0)];
        let mut requests = none();
        columns.iter().for_each(|&column| requests[column] += 1);
        let panel = |(title, decisions): &Series<'_>| {
            let mut denied = none();
            let refused = columns.iter().zip(*decisions).filter(|&(_, &decision)| decision == b'0');
            refused.for_each(|(&column, _)| denied[column] += 1);
            Panel { title: title.clone(), denied }
        };
        let panels = alike(series).iter().map(panel).collect();
        Self { axis, requests, panels }
    }

    /// Returns the section of the page.
    pub fn html(&self) -> String {
        let columns_each = self.axis.columns_each(MOST_BARS);
        let requests = bars(&self.requests, columns_each);
        let highest = requests.iter().copied().max().unwrap_or(0);
        let length = self.axis.column().saturating_mul(u32::try_from(columns_each).unwrap_or(u32::MAX));
        let mut html = format!(
            "<p class=\"legend\"><span class=\"key admitted\"></span> admitted <span class=\"key denied\"></span> denied</p>\n\
             <p id=\"unit\">Requests per {}; each bar is this long.</p>\n<div id=\"plots\">\n",
            per(length)
        );
        let grid: Vec<u64> = value_ticks(highest, 4).into_iter().filter(|&tick| tick > 0).collect();
        for panel in &self.panels {
            html += &self.panel(panel, &requests, &bars(&panel.denied, columns_each), &grid);
        }
        html += "<div class=\"times\" aria-hidden=\"true\">";
        for (time, label) in self.axis.ticks() {
            let left = self.axis.place(time) * 100.0;
            let _ = write!(html, "<span style=\"left:{left:.2}%\">{label}</span>");
        }
        let _ = write!(html, "</div>\n</div>\n<p>{}</p>\n", escaped(&self.axis.caption()));
        html += CONTROLS;
        html + &self.table()
    }

    fn panel(&self, panel: &Panel, requests: &[u64], denied: &[u64], grid: &[u64]) -> String {
        let highest = requests.iter().copied().max().unwrap_or(0).max(1) as f64;
        let height = |count: u64| if count == 0 { 0.0 } else { (count as f64 * HEIGHT / highest).max(LEAST) };
        let step = WIDTH / requests.len().max(1) as f64;
        let mut paths = [String::new(), String::new()];
        for (bar, (&requests, &denied)) in requests.iter().zip(denied).enumerate() {
            let (left, middle) = (bar as f64 * step, HEIGHT - height(requests - denied));
            let top = (HEIGHT - height(requests)).min(middle - if denied > 0 { LEAST } else { 0.0 });
            for (path, from, to) in [(0, HEIGHT, middle), (1, middle, top)] {
                if from > to {
                    let _ = write!(paths[path], "M{left:.1} {from:.1}V{to:.1}h{step:.1}V{from:.1}z");
                }
            }
        }
        let y = |tick: u64| tick as f64 / highest;
        let lines: String =
            grid.iter().map(|&tick| format!("M0 {:.1}H{WIDTH}", HEIGHT - y(tick) * HEIGHT)).collect();
        let label = |&tick: &u64| {
            format!("<span style=\"bottom:{:.1}%\">{}</span>", y(tick) * 100.0, human::count(tick))
        };
        let labels: String = grid.iter().map(label).collect();
        let (title, figures, gaps) = (escaped(&panel.title), self.figures(panel), self.gaps());
        let most = escaped(&self.most_denials(panel));
        let [admitted, denied] = paths;
        format!(
            "<div class=\"panel\"><h3>{title}</h3>\n<p class=\"figures\">{figures}</p>\n<div class=\"plot\">\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{title}: {figures}{most}\"><path class=\"grid\" d=\"{lines}\"/>\
             <path class=\"gap\" d=\"{gaps}\"/><path class=\"admitted\" d=\"{admitted}\"/>\
             <path class=\"denied\" d=\"{denied}\"/><path class=\"mark\" d=\"\"/></svg>\
             <div class=\"values\" aria-hidden=\"true\">{labels}</div></div></div>\n"
        )
    }

    fn figures(&self, panel: &Panel) -> String {
        let (all, denied): (u64, u64) = (self.requests.iter().sum(), panel.denied.iter().sum());
        format!(
            "{} admitted, {} denied ({})",
            human::count(all - denied),
            human::count(denied),
            human::share(denied, all)
        )
    }

    /// Describes the columns with the most denials; empty without a denial.
    fn most_denials(&self, panel: &Panel) -> String {
        let each = self.axis.columns_each(MOST_ROWS);
        // Of equal counts, the first.
        let worst = bars(&panel.denied, each).into_iter().enumerate().rev().max_by_key(|&(_, count)| count);
        match worst {
            Some((bar, count @ 1..)) => {
                format!(
                    "; the most denials, {}, begin at {}",
                    human::count(count),
                    self.time_text((bar * each) as u64)
                )
            }
            _ => String::new(),
        }
    }

    /// Returns the start of a column as text, or of the first column after it that is not in a gap.
    fn time_text(&self, column: u64) -> String {
        let at = (column..self.axis.columns).find_map(|column| self.axis.start_of(column));
        at.map_or(String::new(), human::utc)
    }

    /// Returns the path of the gaps that the axis leaves out.
    fn gaps(&self) -> String {
        let x = |column: u64| column as f64 * WIDTH / self.axis.columns as f64;
        let gap = |(from, to): (f64, f64)| format!("M{from:.1} 0H{to:.1}V{HEIGHT}H{from:.1}z");
        let pairs = self.axis.pieces.windows(2);
        pairs.map(|pair| gap((x(pair[0].first + pair[0].columns), x(pair[1].first)))).collect()
    }

    /// Returns the same figures as a table of few rows.
    fn table(&self) -> String {
        let each = self.axis.columns_each(MOST_ROWS);
        let denied: Vec<Vec<u64>> = self.panels.iter().map(|panel| bars(&panel.denied, each)).collect();
        let row = |(at, &requests): (usize, &u64)| {
            let denied = denied.iter().map(|denied| human::count(denied[at]));
            let cells =
                [self.time_text((at * each) as u64), human::count(requests)].into_iter().chain(denied);
            cells.map(Cell::from).collect()
        };
        let requests = bars(&self.requests, each);
        let titles = self.panels.iter().map(|panel| format!("|Denied by {}", panel.title.replace('|', "/")));
        let table = HtmlTable {
            caption: "Requests and denials over time".to_owned(),
            header: format!("From (UTC)|Requests{}", titles.collect::<String>()),
            numbers: 1..2 + self.panels.len(),
            rows: requests.iter().enumerate().filter(|&(_, &requests)| requests > 0).map(row).collect(),
        };
        format!("<details><summary>Show these figures as a table</summary>\n{}</details>\n", table.html())
    }

    /// Returns the numbers for the script, as JSON without any text of the log. Times are in milliseconds: the first
    /// piece's start since 1970, and those of all pieces since then.
    pub fn data(&self) -> Value {
        let start = self.axis.pieces.first().map_or(0, |piece| piece.start);
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let pieces =
            self.axis.pieces.iter().map(|piece| json!([ms(piece.start - start), piece.first, piece.columns]));
        json!({
            "start": ms(start),
            "column": self.axis.column().as_nanos() as f64 / 1e6,
            "pieces": pieces.collect::<Vec<_>>(),
            "requests": self.requests,
            "denied": self.panels.iter().map(|panel| &panel.denied).collect::<Vec<_>>(),
        })
    }
}
