//! A picture of rectangles, lines and texts, as SVG.

use std::fmt::Write as _;

/// A place in a picture, from its left and upper edges.
#[derive(Copy, Clone, Debug)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

pub const fn at(x: i32, y: i32) -> Point {
    Point { x, y }
}

/// The part of a text that is at its point.
#[derive(Copy, Clone, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// How a text looks: its size in pixels, and its colour.
#[derive(Copy, Clone, Debug)]
pub struct Pen {
    pub size: u32,
    pub color: &'static str,
}

/// A picture on white paper. A later shape covers earlier ones.
#[derive(Debug)]
pub struct Picture(String);

impl Picture {
    pub fn new(width: i32, height: i32) -> Self {
        let mut picture = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n"
        ));
        picture.rectangle(at(0, 0), at(width, height), "#FFFFFF");
        picture
    }

    /// Fills a rectangle from its upper left corner to its lower right one.
    pub fn rectangle(&mut self, from: Point, to: Point, color: &str) {
        let (x, y, width, height) = (from.x, from.y, to.x - from.x, to.y - from.y);
        self.shape(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{color}\"/>"
        ));
    }

    /// Draws a vertical or horizontal line, one pixel wide. Its ends are moved by half a pixel, so that it covers whole
    /// pixels.
    pub fn line(&mut self, from: Point, to: Point, color: &str) {
        let Point { x, y } = from;
        let way = if x == to.x { format!("V{}", to.y) } else { format!("H{}", to.x) };
        let start = if x == to.x { format!("{x}.5 {y}") } else { format!("{x} {y}.5") };
        self.shape(format_args!("<path d=\"M{start}{way}\" stroke=\"{color}\"/>"));
    }

    /// Writes a text. Its top is at the point.
    pub fn text(&mut self, text: &str, at: Point, anchor: Anchor, pen: Pen) {
        self.write(text, at, anchor, pen, "");
    }

    /// Writes a text from bottom to top, with its middle at the point.
    pub fn upright(&mut self, text: &str, at: Point, pen: Pen) {
        let turned = format!(" transform=\"rotate(270 {} {})\"", at.x, at.y);
        self.write(text, at, Anchor::Middle, pen, &turned);
    }

    fn write(&mut self, text: &str, Point { x, y }: Point, anchor: Anchor, pen: Pen, more: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // XML does not allow most control characters.
        let text = text.replace(|c: char| c.is_control(), "\u{fffd}");
        let (anchor, Pen { size, color }) = (anchor.name(), pen);
        self.shape(format_args!(
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.76em\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"{color}\"{more}>{text}</text>"
        ));
    }

    fn shape(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "{shape}");
    }

    /// Returns the text of the file.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
