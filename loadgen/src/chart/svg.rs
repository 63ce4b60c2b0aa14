//! An SVG under construction, and its frame. Writing to a String cannot fail, so results of writes
//! are dropped.

use std::fmt::Write;

/// The size of a chart and the room around its plot.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// For pages that are as wide as a page may be.
    pub const WIDE: Frame =
        Frame { width: 760.0, height: 280.0, left: 64.0, right: 18.0, top: 26.0, bottom: 34.0 };
    /// For telephones: drawn at its own size, so that its text can be read.
    pub const NARROW: Frame =
        Frame { width: 360.0, height: 250.0, left: 52.0, right: 12.0, top: 22.0, bottom: 30.0 };

    pub(super) fn x_at(&self, share: f64) -> f64 {
        self.left + share * (self.width - self.left - self.right)
    }

    pub(super) fn y_at(&self, share: f64) -> f64 {
        self.height - self.bottom - share * (self.height - self.top - self.bottom)
    }

    /// Most labels beside each other on the lower axis.
    pub(super) fn labels_max(&self) -> usize {
        ((self.width - self.left - self.right) / 56.0) as usize
    }

    /// Most points of a line: one per two pixels.
    pub fn points_max(&self) -> usize {
        ((self.width - self.left - self.right) / 2.0) as usize
    }

    /// The room between two bars.
    pub(super) fn bar_gap(&self) -> f64 {
        self.width / 540.0
    }
}

/// The text of the SVG so far.
pub(super) struct Svg {
    pub(super) frame: Frame,
    pub(super) text: String,
}

impl Svg {
    pub(super) fn new(frame: Frame, label: &str) -> Svg {
        let Frame { width, height, .. } = frame;
        let label = escape(label);
        let text =
            format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">");
        Svg { frame, text }
    }

    pub(super) fn grid_x(&mut self, share: f64, label: &str) {
        let (x, bottom) = (self.frame.x_at(share), self.frame.y_at(0.0));
        // A centred label at the right edge would be cut off.
        let anchor = if share > 0.98 { "end" } else { "middle" };
        let _ = write!(
            self.text,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>",
            self.frame.top
        );
        self.label("tick", (x, bottom + 18.0), anchor, label);
    }

    pub(super) fn grid_y(&mut self, share: f64, label: &str) {
        let (left, right, y) = (self.frame.left, self.frame.x_at(1.0), self.frame.y_at(share));
        let _ = write!(
            self.text,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"
        );
        self.label("tick", (left - 8.0, y + 4.0), "end", label);
    }

    /// Writes a text at a point. `anchor` says which part of the text stands there.
    pub(super) fn label(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let _ = write!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}\
             </text>"
        );
    }

    /// Draws a curve through points, given as shares of both axes.
    pub(super) fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        let _ = write!(self.text, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    /// Fills the area below points.
    pub(super) fn area(&mut self, points: &[(f64, f64)]) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let path = self.path(&[&[(first.0, 0.0)], points, &[(last.0, 0.0)]].concat());
        let _ = write!(self.text, "<path class=\"area s0\" d=\"{path}Z\"/>");
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.frame.x_at(*x), self.frame.y_at(*y));
        }
        path
    }

    pub(super) fn dot(&mut self, series: usize, (x, y): (f64, f64), title: &str) {
        let _ = write!(
            self.text,
            "<circle class=\"dot s{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\">\
             <title>{title}</title></circle>"
        );
    }

    /// Adds an invisible mark over one of many columns, which tells its value.
    pub(super) fn hover(&mut self, index: usize, count: usize, title: &str) {
        let Frame { top, .. } = self.frame;
        let (x, end) = (index as f64 / count as f64, (index + 1) as f64 / count as f64);
        let (x, end) = (self.frame.x_at(x), self.frame.x_at(end));
        let _ = write!(
            self.text,
            "<rect class=\"hover\" x=\"{x:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\">\
             <title>{title}</title></rect>",
            end - x,
            self.frame.y_at(0.0) - top
        );
    }

    pub(super) fn end(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}

/// Escapes text for HTML and for attributes in double quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
    }
}
