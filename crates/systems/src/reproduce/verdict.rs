//! How a figure of ours stands to the paper's: it holds, it differs by so much, or it was fitted and so proves nothing.
//!
//! Papers round, and read bars off their own charts, so a figure that a paper states alone holds within a tenth, and one
//! that counts percent also within two points. Figures that were looked at while a model was made are named as such,
//! whether they agree or not.

use std::fmt;

use super::{Claim, Row};

/// How far a figure may be from one that a paper states alone.
const TENTH: f64 = 0.1;

/// The same for figures in percent, in points.
const POINTS: f64 = 2.0;

/// How a figure of ours stands to the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It is what the paper says.
    Holds,
    /// It is not, by so much.
    Differs(Difference),
    /// It was looked at when a model was made, so it is no evidence, whatever it is.
    Fitted,
    /// The paper states none.
    Alone,
    /// We have none.
    Missing,
}

impl Verdict {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs(_) => "differs",
            Verdict::Fitted => "fitted",
            Verdict::Alone => "alone",
            Verdict::Missing => "missing",
        }
    }
}

/// How far a figure of ours is from the paper's, or from the nearest that the paper allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// A share of the paper's figure.
    Share(f64),
    /// Points, of figures in percent.
    Points(f64),
}

impl Difference {
    fn between(ours: f64, paper: f64, unit: &str) -> Difference {
        match paper {
            _ if counts_points(unit) => Difference::Points(ours - paper),
            // Nothing is a share of nothing.
            0.0 => Difference::Points(ours),
            _ => Difference::Share(ours / paper - 1.0),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figure, unit) = match self {
            Difference::Share(share) => (share * 100.0, "%"),
            Difference::Points(points) => (*points, "points"),
        };
        let sign = if figure < 0.0 { '−' } else { '+' };
        let digits = if figure.abs() < 10.0 { 1 } else { 0 };
        write!(f, "{sign}{:.digits$} {unit}", figure.abs())
    }
}

fn counts_points(unit: &str) -> bool {
    unit.starts_with('%') || unit == "points"
}

impl Row {
    /// How our figure stands to the paper's.
    pub fn verdict(&self) -> Verdict {
        match (&self.ours, self.paper) {
            (Err(_), _) => Verdict::Missing,
            (_, Claim::Silent) => Verdict::Alone,
            _ if self.fitted => Verdict::Fitted,
            _ => self.difference().map_or(Verdict::Holds, Verdict::Differs),
        }
    }

    /// By how much it differs, whether or not it was fitted; `None` where it is as the paper says or one of them is missing.
    pub fn difference(&self) -> Option<Difference> {
        let ours = *self.ours.as_ref().ok()?;
        let (low, high) = match self.paper {
            Claim::Silent => return None,
            Claim::About(figure) => {
                let points = if counts_points(self.unit) { POINTS } else { 0.0 };
                // A little more than a tenth of it: 2.2 is a tenth above 2.0 for people, not quite for numbers in binary.
                let near = (figure.abs() * TENTH * (1.0 + 1e-9)).max(points);
                if (ours - figure).abs() <= near {
                    return None;
                }
                (figure, figure)
            }
            Claim::Between(low, high) => (low, high),
            Claim::AtLeast(low) => (low, f64::INFINITY),
            Claim::AtMost(high) => (f64::NEG_INFINITY, high),
        };
        let paper = match ours {
            _ if ours < low => low,
            _ if ours > high => high,
            _ => return None,
        };
        Some(Difference::between(ours, paper, self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(paper: Claim, ours: f64, unit: &'static str) -> Row {
        Row { what: String::new(), place: "", paper, ours: Ok(ours), unit, note: None, fitted: false }
    }

    #[test]
    fn every_figure_is_judged() {
        let differs = |by: f64| Verdict::Differs(Difference::Share(by));
        for (paper, ours, unit, verdict) in [
            (Claim::About(2.0), 2.2, "times", Verdict::Holds),
            (Claim::About(2.0), 3.0, "times", differs(0.5)),
            (Claim::About(2.0), 1.0, "times", differs(-0.5)),
            (Claim::About(0.0), 1.9, "% more time", Verdict::Holds),
            (Claim::About(0.0), 3.0, "% more time", Verdict::Differs(Difference::Points(3.0))),
            (Claim::About(27.0), 15.0, "% of the speed", Verdict::Differs(Difference::Points(-12.0))),
            (Claim::Between(3.0, 8.0), 8.0, "times", Verdict::Holds),
            (Claim::Between(3.0, 8.0), 12.0, "times", differs(0.5)),
            (Claim::AtLeast(2.0), 9.0, "times", Verdict::Holds),
            (Claim::AtLeast(2.0), 1.0, "times", differs(-0.5)),
            (Claim::AtMost(1.0), 1.5, "times", differs(0.5)),
            (Claim::Silent, 1.5, "times", Verdict::Alone),
        ] {
            assert_eq!(row(paper, ours, unit).verdict(), verdict, "{paper:?} {ours} {unit}");
        }
        let missing = Row { ours: Err("no room".to_string()), ..row(Claim::About(1.0), 0.0, "times") };
        assert_eq!(missing.verdict(), Verdict::Missing);
        let fitted = Row { fitted: true, ..row(Claim::Between(3.0, 8.0), 9.0, "times") };
        assert_eq!(fitted.verdict(), Verdict::Fitted);
        assert_eq!(fitted.difference(), Some(Difference::Share(0.125)));
    }

    #[test]
    fn differences_are_printed_with_their_sign() {
        assert_eq!(Difference::Share(0.125).to_string(), "+12 %");
        assert_eq!(Difference::Share(-0.0625).to_string(), "−6.2 %");
        assert_eq!(Difference::Points(-12.0).to_string(), "−12 points");
    }
}
