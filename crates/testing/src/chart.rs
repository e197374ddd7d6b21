//! Charts of lines and of bars, as SVG, for the guides and the page of benchmarks.

use std::fmt::Write as _;

/// Colours of the Okabe-Ito set, which remain distinct for colour-blind readers.
pub const BLUE: &str = "#0072B2";
pub const VERMILION: &str = "#D55E00";
pub const GREEN: &str = "#009E73";
pub const PURPLE: &str = "#CC79A7";
pub const ORANGE: &str = "#E69F00";
pub const SKY: &str = "#56B4E9";
pub const BLACK: &str = "#222222";
pub const GREY: &str = "#6E7781";
pub const BROWN: &str = "#8B5A2B";

const GRID: &str = "#DDDDDD";

/// An axis, with the values that have a label.
#[derive(Clone, Debug)]
pub struct Axis {
    caption: String,
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero, with labels at round numbers.
    pub fn linear(caption: &str, to: f64) -> Self {
        let steps = (-6..12).flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10_f64.powi(power)));
        let step = steps.into_iter().find(|step| to / step <= 7.0).unwrap_or(to);
        let ticks = (0..8).map(|n| f64::from(n) * step).take_while(|tick| *tick <= to);
        Self {
            caption: caption.to_owned(),
            from: 0.0,
            to,
            is_log: false,
            ticks: ticks.map(labelled).collect(),
        }
    }

    /// Logarithmic, with labels at these values.
    pub fn log(caption: &str, from: f64, to: f64, ticks: Vec<f64>) -> Self {
        Self {
            caption: caption.to_owned(),
            from,
            to,
            is_log: true,
            ticks: ticks.into_iter().map(labelled).collect(),
        }
    }

    /// Logarithmic and a little longer than these values, with labels at powers of ten or, if those are few, also between them.
    pub fn around(caption: &str, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) =
            values.fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)));
        let (from, to) = (least / 1.15, most * 1.15);
        let ticks = |steps: &[f64]| -> Vec<f64> {
            let all = (-9..12).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
            all.filter(|tick| (from..to).contains(tick)).collect()
        };
        let few = [&[1.0][..], &[1.0, 3.0]].into_iter().map(ticks).find(|ticks| ticks.len() >= 4);
        Self::log(caption, from, to, few.unwrap_or_else(|| ticks(&[1.0, 2.0, 5.0])))
    }

    /// With a label at each of these values, the first and the last of which are the ends.
    pub fn named<const N: usize>(caption: &str, labels: [(&str, f64); N]) -> Self {
        let ticks = labels.map(|(label, value)| (value, label.to_owned())).to_vec();
        Self { caption: caption.to_owned(), from: labels[0].1, to: labels[N - 1].1, is_log: false, ticks }
    }

    /// The place of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.ln() } else { value };
        (of(value) - of(self.from)) / (of(self.to) - of(self.from))
    }
}

/// Returns a value with its label: the number, in millions from one million on.
fn labelled(value: f64) -> (f64, String) {
    let label = if value < 1e6 { value.to_string() } else { format!("{} M", value / 1e6) };
    (value, label)
}

/// A line, with a disc at each point unless it is dashed.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub colour: &'static str,
    pub is_dashed: bool,
    pub points: Vec<[f64; 2]>,
}

/// One chart.
#[derive(Clone, Debug)]
pub struct Panel {
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// The place of the legend: 0 is at the left and at the top of the panel, and 1 at the right and at the bottom. Without a
    /// place, the legend is at the right of the lines.
    pub legend: Option<[f64; 2]>,
}

/// Draws panels side by side.
pub fn draw(title: &str, width: u32, height: u32, panels: &[Panel]) -> String {
    let mut svg = page(title, f64::from(width), f64::from(height));
    let each = f64::from(width) / panels.len() as f64;
    for (number, panel) in panels.iter().enumerate() {
        let left = each * number as f64;
        panel.draw(&mut svg, [left + 70.0, 60.0], [left + each - 24.0, f64::from(height) - 52.0]);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The bars of one measure, from the top down, each with its value and the text at its end.
#[derive(Clone, Debug)]
pub struct Bars {
    pub caption: String,
    pub values: Vec<(f64, String)>,
}

/// Draws bars that begin at zero, in one row for each name and side by side for each measure.
pub fn draw_bars(title: &str, width: u32, names: &[(&str, &'static str)], measures: &[Bars]) -> String {
    const NAMES: f64 = 172.0;
    const ROW: f64 = 26.0;
    const HEAD: f64 = 70.0;
    const TEXT: f64 = 96.0;
    let mut svg = page(title, f64::from(width), HEAD + ROW * names.len() as f64);
    let middle = |row: usize| HEAD + 4.0 + ROW * row as f64;
    for (row, (name, _)) in names.iter().enumerate() {
        text(&mut svg, name, [NAMES - 10.0, middle(row) + 4.0], "end", 12);
    }
    let each = (f64::from(width) - NAMES) / measures.len() as f64;
    for (number, Bars { caption, values }) in measures.iter().enumerate() {
        let left = NAMES + each * number as f64;
        text(&mut svg, caption, [left, 50.0], "start", 13);
        let most = values.iter().map(|(value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
        for (row, ((value, label), (_, colour))) in values.iter().zip(names).enumerate() {
            let long = (each - TEXT) * value / most;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"16\" fill=\"{colour}\"/>",
                middle(row) - 8.0
            );
            text(&mut svg, label, [left + long + 5.0, middle(row) + 4.0], "start", 12);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Begins a picture. In a narrow page of rustdoc, it is as wide as the page.
fn page(title: &str, width: f64, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" style=\"max-width:100%;height:auto\" font-family=\"sans-serif\" \
         fill=\"{BLACK}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
    );
    text(&mut svg, title, [width / 2.0, 24.0], "middle", 15);
    svg
}

impl Panel {
    /// Draws the panel between two corners.
    fn draw(&self, svg: &mut String, [left, top]: [f64; 2], [right, bottom]: [f64; 2]) {
        let longest = self.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
        let (wide, high) = (longest as f64 * 6.6 + 42.0, self.lines.len() as f64 * 17.0 + 8.0);
        let right = if self.legend.is_some() { right } else { right - wide - 12.0 };
        let at = |[x, y]: [f64; 2]| {
            let (x, y) = (self.x.share(x).clamp(0.0, 1.0), self.y.share(y).clamp(0.0, 1.0));
            [left + x * (right - left), bottom - y * (bottom - top)]
        };
        text(svg, &self.caption, [f64::midpoint(left, right), top - 12.0], "middle", 13);
        for (tick, label) in &self.y.ticks {
            let [_, y] = at([self.x.from, *tick]);
            line(svg, &[[left, y], [right, y]], GRID, "");
            text(svg, label, [left - 8.0, y + 4.0], "end", 12);
        }
        for (tick, label) in &self.x.ticks {
            let [x, _] = at([*tick, self.y.from]);
            line(svg, &[[x, bottom], [x, bottom + 5.0]], BLACK, "");
            text(svg, label, [x, bottom + 20.0], "middle", 12);
        }
        line(svg, &[[left, top], [left, bottom], [right, bottom]], BLACK, "");
        text(svg, &self.x.caption, [f64::midpoint(left, right), bottom + 40.0], "middle", 13);
        let (x, y) = (left - 54.0, f64::midpoint(top, bottom));
        let _ = writeln!(svg, "<g transform=\"translate({x} {y}) rotate(270)\">");
        text(svg, &self.y.caption, [0.0, 0.0], "middle", 13);
        svg.push_str("</g>\n");
        for Line { colour, is_dashed, points, .. } in &self.lines {
            let points: Vec<[f64; 2]> = points.iter().copied().map(at).collect();
            line(svg, &points, colour, if *is_dashed { "4 4" } else { "1 0" });
            for [x, y] in points.iter().filter(|_| !is_dashed) {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
            }
        }
        let (x, y) = self.legend.map_or((right + 12.0, top), |[x, y]| {
            (left + 10.0 + x * (right - left - wide - 20.0), top + 10.0 + y * (bottom - top - high - 20.0))
        });
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"#FFFFFF\" stroke=\"{GRID}\"/>"
        );
        for (number, Line { name, colour, is_dashed, .. }) in self.lines.iter().enumerate() {
            let middle = y + 12.5 + number as f64 * 17.0;
            let dash = if *is_dashed { "4 4" } else { "1 0" };
            line(svg, &[[x + 8.0, middle], [x + 28.0, middle]], colour, dash);
            text(svg, name, [x + 34.0, middle + 4.0], "start", 12);
        }
    }
}

/// Draws a line through points. `dash` is empty for a thin line.
fn line(svg: &mut String, points: &[[f64; 2]], colour: &str, dash: &str) {
    let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    let width = if dash.is_empty() { 1 } else { 2 };
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dash}\"/>",
        points.join(" ")
    );
}

fn text(svg: &mut String, text: &str, [x, y]: [f64; 2], anchor: &str, size: u32) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
    );
}
