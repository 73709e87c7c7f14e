//! A bar per figure that both servers have: how many times better ours is.
use std::fmt::Write;

use super::report::{Row, figure};

const LABELS: f64 = 460.0;
const BARS: f64 = 400.0;
const LINE: f64 = 22.0;
const TOP: f64 = 46.0;

/// The chart as SVG. Bars are on a logarithmic scale, from as good to sixty-four times as good; grey is worse.
pub fn ratios(theirs: &[Row], ours: &[Row]) -> String {
    let pairs: Vec<(&str, f64)> = ours
        .iter()
        .filter_map(|own| {
            let other = theirs.iter().find(|row| row.what == own.what)?;
            Some((own.what, own.unit.ratio(own.value, other.value)))
        })
        .collect();
    let (width, height) = (LABELS + BARS + 90.0, TOP + LINE * pairs.len() as f64 + 14.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">How many times better than etcd + kube-apiserver (logarithmic)</text>\n"
    );
    for power in 0..=6 {
        let at = LABELS + BARS * f64::from(power) / 6.0;
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#666\" font-size=\"10\" text-anchor=\"middle\">{}</text>",
            height - 12.0,
            TOP - 4.0,
            1 << power
        );
    }
    for (index, (what, ratio)) in pairs.iter().enumerate() {
        let middle = TOP + LINE * (index as f64 + 0.5);
        // A bar of no length would not be seen.
        let length = (ratio.log2() / 6.0 * BARS).clamp(2.0, BARS);
        let colour = if *ratio >= 1.0 { "#2a7de1" } else { "#999" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{what}</text>\
             <rect x=\"{LABELS}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LABELS - 8.0,
            middle + 4.0,
            middle - 7.0,
            LABELS + length + 6.0,
            middle + 4.0,
            figure(*ratio),
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::report::Unit;
    use super::*;

    #[test]
    fn a_bar_per_common_figure() {
        let row = |what, value| Row::new(what, Unit::PerSecond, value);
        let svg = ratios(&[row("a", 1.0), row("b", 8.0)], &[row("a", 8.0), row("b", 4.0), row("c", 1.0)]);
        assert_eq!(svg.matches("#2a7de1").count(), 1);
        assert_eq!(svg.matches("\"#999\"").count(), 1);
        assert!(svg.contains("width=\"200.0\"") && !svg.contains(">c<"), "{svg}");
    }
}
