//! Plots numbers over time.

use crate::svg::{Anchor, Area, GRID, Picture, short, ticks};

/// One number over time.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 130.0;
const LEFT: f64 = 90.0;
const GAP: f64 = 46.0;

/// A picture with a panel for each curve. The time before `warm` seconds is shaded.
pub(crate) fn svg(title: &str, curves: &[Curve<'_>], warm: f64) -> String {
    let end = curves.iter().flat_map(|curve| curve.points.last()).map(|(time, _)| *time).fold(1.0, f64::max);
    let height = GAP + curves.len() as f64 * (HEIGHT + GAP);
    let mut picture = Picture::new(LEFT + WIDTH + 20.0, height, title);
    picture.sized((LEFT, 20.0), Anchor::Start, 15.0, title);
    for (at, curve) in curves.iter().enumerate() {
        let panel = Panel { top: GAP + at as f64 * (HEIGHT + GAP), end, warm };
        panel.draw(&mut picture, curve);
    }
    picture.finish()
}

/// The area of one curve, and the time that its width stands for.
struct Panel {
    top: f64,
    end: f64,
    warm: f64,
}

impl Panel {
    fn draw(&self, picture: &mut Picture, curve: &Curve<'_>) {
        let most = curve.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let marks = ticks(most, 3);
        let most = marks[marks.len() - 1];
        let x = |time: f64| LEFT + WIDTH * time / self.end;
        let y = |value: f64| self.top + HEIGHT * (1.0 - value / most);
        let warm = Area { x: LEFT, y: self.top, width: x(self.warm.clamp(0.0, self.end)) - LEFT, height: HEIGHT };
        picture.fill(warm, "#f2f2f2");
        for mark in &marks {
            picture.line((LEFT, y(*mark)), (LEFT + WIDTH, y(*mark)), GRID);
            picture.words((LEFT - 6.0, y(*mark) + 4.0), Anchor::End, &short(*mark));
        }
        picture.words((LEFT, self.top - 6.0), Anchor::Start, curve.name);
        for time in ticks(self.end, 8).into_iter().filter(|time| *time <= self.end) {
            picture.words((x(time), self.top + HEIGHT + 14.0), Anchor::Middle, &format!("{} s", short(time)));
        }
        picture.curve(curve.points.iter().map(|(time, value)| (x(*time), y(*value))), "#1465b0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_its_panel() {
        let curve = Curve { name: "a <b> & c", points: vec![(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)] };
        let text = svg("soak", &[curve], 3.0);
        assert!(text.contains("a &lt;b&gt; &amp; c") && text.ends_with("</svg>\n"));
        let line = text.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a line");
        let points: Vec<(f64, f64)> = line
            .split(' ')
            .filter_map(|point| point.split_once(','))
            .filter_map(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)))
            .collect();
        assert_eq!(points.len(), 3);
        assert_eq!((points[0].0, points[2].0), (LEFT, LEFT + WIDTH));
        assert!(points.iter().all(|(_, y)| (GAP..=GAP + HEIGHT).contains(y)), "{points:?}");
    }

    #[test]
    fn empty_curves_can_be_drawn() {
        assert!(svg("empty", &[Curve { name: "x", points: Vec::new() }], 1.0).contains("polyline"));
    }
}
