//! Numbers over time as a picture.

use std::fmt::Write as _;

/// One number over time.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 130.0;
const LEFT: f64 = 90.0;
const GAP: f64 = 46.0;

/// A picture with a panel for each curve; what is before `warm` seconds is shaded.
pub(crate) fn svg(title: &str, curves: &[Curve<'_>], warm: f64) -> String {
    let whole = GAP + curves.len() as f64 * (HEIGHT + GAP);
    let end = curves.iter().flat_map(|curve| curve.points.last()).map(|(time, _)| *time).fold(1.0, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {whole}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        LEFT + WIDTH + 20.0,
        escaped(title),
    );
    for (at, curve) in curves.iter().enumerate() {
        let top = GAP + at as f64 * (HEIGHT + GAP);
        // A string can be written to.
        let _ = writeln!(text, "{}", panel(curve, top, end, warm));
    }
    text.push_str("</svg>\n");
    text
}

fn panel(curve: &Curve<'_>, top: f64, end: f64, warm: f64) -> String {
    let most = curve.points.iter().map(|(_, value)| *value).fold(1.0, f64::max) * 1.1;
    let x = |time: f64| LEFT + WIDTH * time / end;
    let y = |value: f64| top + HEIGHT * (1.0 - value / most);
    let points: Vec<String> =
        curve.points.iter().map(|(time, value)| format!("{:.1},{:.1}", x(*time), y(*value))).collect();
    format!(
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"#eee\"/>\n\
         <rect x=\"{LEFT}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\n\
         <text x=\"{LEFT}\" y=\"{:.1}\">{}</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{most:.0}</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end:.0} s</text>\n\
         <polyline fill=\"none\" stroke=\"#1465b0\" stroke-width=\"1.2\" points=\"{}\"/>",
        WIDTH * (warm / end).clamp(0.0, 1.0),
        top - 6.0,
        escaped(curve.name),
        LEFT - 6.0,
        top + 10.0,
        LEFT - 6.0,
        top + HEIGHT,
        LEFT + WIDTH,
        top + HEIGHT + 14.0,
        points.join(" "),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_its_panel() {
        let curve = Curve { name: "a <b> & c", points: vec![(0.0, 0.0), (5.0, 100.0), (10.0, 50.0)] };
        let text = svg("soak", &[curve], 3.0);
        assert!(text.contains("a &lt;b> &amp; c") && text.ends_with("</svg>\n"));
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
    fn nothing_is_a_picture_too() {
        assert!(svg("empty", &[Curve { name: "x", points: Vec::new() }], 1.0).contains("polyline"));
    }
}
