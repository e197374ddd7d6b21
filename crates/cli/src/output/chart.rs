//! Admitted and denied requests over time, as SVG or PNG: one panel for the algorithms with equal decisions.
//!
//! The colours are from the Okabe-Ito set. They also differ in lightness, for every kind of colour vision and in grey.
//! Both formats measure text with a font inside the program, so the machine needs no fonts.

use std::io::Cursor;
use std::path::Path;
use std::sync::Once;

use image::{ColorType, ImageOutputFormat, write_buffer_with_format};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, FontTransform, IntoFont, RGBColor, TextStyle, register_font};

use super::axis::{TimeAxis, value_ticks};
use super::write_to;
use crate::error::Error;
use crate::human;
use crate::input::Trace;

const ADMITTED: RGBColor = RGBColor(0x56, 0xB4, 0xE9);
const DENIED: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);

const FONT: &str = "sans-serif";
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

/// Draws the decisions on a trace to a file, in the format of its extension. `limits` names the limits.
///
/// # Errors
/// Returns an error if drawing or writing fails.
pub fn draw(path: &Path, trace: &Trace, limits: &str, series: &[Series<'_>]) -> Result<(), Error> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // It fails only for bytes that are not a font; then drawing text returns the error.
        let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
    let chart = Chart::new(trace, limits, series);
    let png = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let bytes = if png { chart.png()? } else { chart.svg()? };
    write_to(path, &bytes)
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

    fn svg(&self) -> Result<Vec<u8>, Error> {
        let mut text = String::new();
        let size = (WIDTH.unsigned_abs(), self.height().unsigned_abs());
        self.paint(&Canvas { area: SVGBackend::with_string(&mut text, size).into_drawing_area(), scale: 1 })?;
        Ok(text.into_bytes())
    }

    /// Two pixels per unit, so that the image is sharp on dense screens and in print.
    fn png(&self) -> Result<Vec<u8>, Error> {
        let scale = 2;
        let (width, height) = ((WIDTH * scale).unsigned_abs(), (self.height() * scale).unsigned_abs());
        let mut pixels = vec![0; width as usize * height as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        self.paint(&Canvas { area, scale })?;
        let mut file = Cursor::new(Vec::new());
        write_buffer_with_format(&mut file, &pixels, width, height, ColorType::Rgb8, ImageOutputFormat::Png)
            .map_err(|error| Error::run(format!("cannot encode the chart: {error}")))?;
        Ok(file.into_inner())
    }

    fn paint<B: DrawingBackend>(&self, canvas: &Canvas<B>) -> Result<(), Error> {
        self.try_paint(canvas).map_err(|error| Error::run(format!("cannot draw the chart: {error}")))
    }

    fn try_paint<B: DrawingBackend>(&self, canvas: &Canvas<B>) -> Drawn<B> {
        canvas.area.fill(&PAPER)?;
        canvas.text("Admitted and denied requests over time", (LEFT, 16), 24, &INK, HPos::Left)?;
        canvas.text(&self.subtitle, (LEFT, 48), 15, &FAINT, HPos::Left)?;
        let legend = [("denied", DENIED, WIDTH - RIGHT - 74), ("admitted", ADMITTED, WIDTH - RIGHT - 180)];
        for (name, color, x) in legend {
            canvas.rectangle((x, 24), (x + 14, 38), &color)?;
            canvas.text(name, (x + 20, 26), 16, &INK, HPos::Left)?;
        }
        let mut top = HEAD;
        for panel in &self.panels {
            self.paint_panel(canvas, panel, top)?;
            top += self.panel_height();
        }
        let axis = top - PANEL_GAP;
        for (at, label) in self.axis.ticks() {
            let x = LEFT + length_of(self.axis.place(at));
            canvas.line((x, axis), (x, axis + 6), &FAINT)?;
            canvas.text(&label, (x, axis + 10), 14, &INK, HPos::Center)?;
        }
        if self.days_height() > 0 {
            let mut free = 0;
            for piece in &self.axis.pieces {
                let x = self.column_edges(piece.first).0.min(WIDTH - DAY_WIDTH);
                if x >= free {
                    canvas.text(&TimeAxis::day(piece), (x, axis + 28), 14, &INK, HPos::Left)?;
                    free = x + DAY_WIDTH;
                }
            }
        }
        canvas.text(
            &self.axis.caption(),
            (i32::midpoint(LEFT, WIDTH - RIGHT), axis + 32 + self.days_height()),
            14,
            &FAINT,
            HPos::Center,
        )?;
        canvas.area.present()
    }

    fn paint_panel<B: DrawingBackend>(&self, canvas: &Canvas<B>, panel: &Panel, top: i32) -> Drawn<B> {
        let bottom = top + self.panel_height() - PANEL_GAP;
        let plot_top = top + PANEL_TITLE;
        canvas.text(&panel.title, (LEFT, top + 8), 17, &INK, HPos::Left)?;
        canvas.text(&panel.figures, (WIDTH - RIGHT, top + 9), 15, &FAINT, HPos::Right)?;
        let unit = format!("requests per {}", per(self.axis.column()));
        canvas.upright(&unit, (8, i32::midpoint(plot_top, bottom)), 13, &FAINT)?;
        let ticks = value_ticks(self.highest, if self.panels.len() > 3 { 3 } else { 6 });
        let full = self.highest.max(1);
        let y = |value: u64| bottom - proportion(value, full, bottom - plot_top);
        for &tick in &ticks {
            canvas.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), &GRID)?;
            // Does not cover the peak's label.
            if y(tick) - plot_top >= 14 {
                canvas.text(&human::count(tick), (LEFT - 8, y(tick) - 5), 14, &FAINT, HPos::Right)?;
            }
        }
        canvas.text(&human::count(self.highest), (LEFT - 8, plot_top - 5), 14, &INK, HPos::Right)?;
        for (column, (&admitted, &denied)) in (0_u64..).zip(panel.admitted.iter().zip(&panel.denied)) {
            let (left, right) = self.column_edges(column);
            let (middle, upper) = (y(admitted), y(admitted + denied));
            // Every nonzero value stays visible.
            let middle = if admitted > 0 { middle.min(bottom - LEAST) } else { middle };
            if admitted > 0 {
                canvas.rectangle((left, middle), (right, bottom), &ADMITTED)?;
            }
            if denied > 0 {
                canvas.rectangle((left, upper.min(middle - LEAST)), (right, middle), &DENIED)?;
            }
        }
        canvas.line((LEFT, bottom), (WIDTH - RIGHT, bottom), &FAINT)?;
        for pair in self.axis.pieces.windows(2) {
            let (from, to) = (pair[0].first + pair[0].columns, pair[1].first);
            let (left, right) = (self.column_edges(from).0, self.column_edges(to).0);
            canvas.rectangle((left, plot_top - 1), (right, bottom + 1), &PAPER)?;
            for x in [left, right - 1] {
                canvas.line((x, plot_top), (x, bottom + 4), &GRID)?;
            }
            canvas.text("//", (i32::midpoint(left, right), bottom - 9), 16, &FAINT, HPos::Center)?;
        }
        Ok(())
    }

    fn column_edges(&self, column: u64) -> (i32, i32) {
        let edge = |column| LEFT + proportion(column, self.axis.columns, WIDTH - RIGHT - LEFT);
        (edge(column), edge(column + 1).max(edge(column) + 1))
    }
}

/// Merges series with equal decisions, in the order of the first of them.
fn alike<'a>(series: &[Series<'a>]) -> Vec<Series<'a>> {
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
fn per(length: std::time::Duration) -> String {
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

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// A drawing area with a unit of one or more pixels.
struct Canvas<B: DrawingBackend> {
    area: DrawingArea<B, Shift>,
    scale: i32,
}

impl<B: DrawingBackend> Canvas<B> {
    fn point(&self, (x, y): (i32, i32)) -> (i32, i32) {
        (x * self.scale, y * self.scale)
    }

    /// Draws text with its top at the point's height.
    fn text(&self, text: &str, at: (i32, i32), size: i32, color: &RGBColor, side: HPos) -> Drawn<B> {
        let style = TextStyle::from((FONT, size * self.scale).into_font())
            .color(color)
            .pos(Pos::new(side, VPos::Top));
        self.area.draw_text(text, &style, self.point(at))
    }

    /// Draws text rotated by 90 degrees, centred at the point. It reads from bottom to top.
    fn upright(&self, text: &str, at: (i32, i32), size: i32, color: &RGBColor) -> Drawn<B> {
        let font = (FONT, size * self.scale).into_font().transform(FontTransform::Rotate270);
        let style = TextStyle::from(font).color(color).pos(Pos::new(HPos::Center, VPos::Top));
        self.area.draw_text(text, &style, self.point(at))
    }

    /// Fills a rectangle from one corner to the other. The second corner is not included.
    fn rectangle(&self, from: (i32, i32), to: (i32, i32), color: &RGBColor) -> Drawn<B> {
        let (from, to) = (self.point(from), self.point(to));
        self.area.draw(&Rectangle::new([from, to], color.filled()))
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), color: &RGBColor) -> Drawn<B> {
        let width = self.scale.unsigned_abs();
        self.area.draw(&PathElement::new(vec![self.point(from), self.point(to)], color.stroke_width(width)))
    }
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
