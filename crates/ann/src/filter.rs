//! Searches among some of the vectors only.

/// Which vectors a search may find, by label.
#[derive(Clone, Copy)]
pub enum Filter<'a> {
    /// Those for which this says so.
    Predicate(&'a (dyn Fn(u64) -> bool + Sync)),
    /// Those whose bit is set: of label `n` the bit `n % 64` of word `n / 64`. Labels behind the last word are not wanted.
    Bitmap(&'a [u64]),
}

impl Filter<'_> {
    /// Whether a label is wanted.
    pub fn wants(&self, label: u64) -> bool {
        match self {
            Filter::Predicate(wanted) => wanted(label),
            Filter::Bitmap(words) => {
                words.get((label / 64) as usize).is_some_and(|word| word >> (label % 64) & 1 == 1)
            }
        }
    }
}

/// How a filtered search goes about.
pub(crate) enum Way {
    /// Through the graph, past what is not wanted.
    Graph,
    /// All that is wanted, one after the other: exact.
    All(Vec<u32>),
}

/// How many rows are asked before it is known how much of all is wanted.
const SAMPLE: usize = 512;

/// Chooses the way that computes fewer distances.
///
/// With a share `s` of `n` rows wanted, a beam of width `w` has to follow about `w / s` rows with some ten new ones each;
/// looking at everything wanted takes `s · n`.
pub(crate) fn way(rows: usize, width: usize, wanted: impl Fn(u32) -> bool) -> Way {
    let step = (rows / SAMPLE).max(1);
    let asked = rows.div_ceil(step);
    let found = (0..rows).step_by(step).filter(|row| wanted(*row as u32)).count();
    let share = found as f64 / asked as f64;
    // Twice the threshold, because a sample may be off.
    if share * share > 20.0 * width as f64 / rows as f64 {
        return Way::Graph;
    }
    let all: Vec<u32> = (0..rows as u32).filter(|row| wanted(*row)).collect();
    let share = all.len() as f64 / rows as f64;
    if share * share > 10.0 * width as f64 / rows as f64 { Way::Graph } else { Way::All(all) }
}
