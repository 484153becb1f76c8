//! How a kept program stands, live: a few lines on standard error that are drawn again and again.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use tiercel_pages::real::session::State;

use super::size;

/// How often it is drawn.
const EVERY: Duration = Duration::from_millis(500);

/// How many parts of the address space a line shows.
pub(super) const PARTS: usize = 72;

/// The lines on the screen.
pub(super) struct Top {
    drawn: usize,
    last: Option<Instant>,
    shown: bool,
}

impl Top {
    /// Nothing drawn yet; where nobody looks, nothing ever is.
    pub(super) fn new(wanted: bool) -> Top {
        Top { drawn: 0, last: None, shown: wanted && stderr().is_terminal() }
    }

    /// Whether it is time to draw.
    pub(super) fn due(&self) -> bool {
        self.shown && self.last.is_none_or(|at| at.elapsed() >= EVERY)
    }

    /// Draws lines over those before.
    pub(super) fn draw(&mut self, lines: &[String]) {
        let mut text = String::new();
        if self.drawn > 0 {
            text += &format!("\x1b[{}A", self.drawn);
        }
        for line in lines {
            text += "\x1b[2K";
            text += line;
            text.push('\n');
        }
        self.drawn = lines.len();
        self.last = Some(Instant::now());
        // Whoever does not look misses nothing.
        let _ = stderr().write_all(text.as_bytes());
    }
}

/// The lines for a program on DRAM and a disk.
pub(super) fn lines(state: &State, fast: u64, limit: f64, last: &str) -> Vec<String> {
    let resident: String =
        state.map.iter().map(|part| shade(part[0].saturating_sub(part[1]), part[0])).collect();
    let heat: String = state.map.iter().map(|part| shade(part[2] * 8, part[0])).collect();
    let counts = &state.counts;
    vec![
        format!(
            "{:7.1} s   in memory {} of {}   swapped out {}   keeper {:.1} % of a core (limit {:.0} %)",
            state.seconds,
            size(state.resident),
            size(fast),
            size(state.swapped),
            state.overhead * 100.0,
            limit * 100.0,
        ),
        format!("in memory  {resident}"),
        format!("came back  {heat}"),
        format!(
            "came back {}   went out {}   read ahead {}   written out {}   room {}   streams {}",
            size(counts.came_back),
            size(counts.went_out),
            size(counts.ahead),
            size(counts.behind),
            size(counts.room),
            state.streams,
        ),
        format!("last: {last}"),
    ]
}

fn shade(part: u64, whole: u64) -> char {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    if whole == 0 || part == 0 {
        return if whole == 0 { '·' } else { ' ' };
    }
    SHADES[(part.min(whole) as u128 * 4).div_ceil(u128::from(whole)) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_say_how_much() {
        let line: String =
            [(0, 0), (0, 8), (1, 8), (4, 8), (8, 8), (80, 8)].map(|(p, w)| shade(p, w)).iter().collect();
        assert_eq!(line, "· ░▒██");
        let state = State { map: vec![[8, 4, 0], [8, 0, 8]], ..State::default() };
        let lines = lines(&state, 1 << 30, 0.05, "nothing");
        assert!(lines[1].ends_with("▒█") && lines[2].ends_with(" █"), "{lines:?}");
    }
}
