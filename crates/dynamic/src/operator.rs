//! Operators as nine numbers (DyNN-Offload, section 6.4.1): how often each of six idioms of memory access occurs in them,
//! and the dimensions of their inputs, added up.
//!
//! The idioms of ATen's operators stand in a checked-in table (`data/aten-idioms.csv`, made by `scripts/aten-idioms`). An
//! operator that is not in it, one of a user's own for instance, gets its idioms by the sizes of what it reads and makes:
//! see [`guessed`].

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The six idioms, in the order of the paper's list.
pub const IDIOMS: [&str; 6] = ["transpose", "gather", "scatter", "reduction", "stream", "stencil"];

/// How often each of the six idioms occurs in an operator.
pub type Idioms = [u16; 6];

/// An operator's nine numbers: six idioms, three accumulated dimensions.
pub type Nine = [f64; 9];

const TABLE: &str = include_str!("../data/aten-idioms.csv");

/// An operator as it was seen to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operator {
    /// Its name, without the name space of the library.
    pub name: Arc<str>,
    /// How often each idiom occurs in it.
    pub idioms: Idioms,
    /// For each of three dimensions, its size in all inputs together; dimensions beyond the third count with it.
    pub dims: [u64; 3],
}

impl Operator {
    /// An operator by its name, with the shapes of what it reads and makes.
    pub fn new(name: &str, reads: &[&[u64]], writes: &[&[u64]]) -> Operator {
        let bare = plain(name);
        let idioms = known(bare).unwrap_or_else(|| guessed(reads, writes));
        let mut dims = [0; 3];
        for shape in reads {
            for (at, size) in shape.iter().enumerate() {
                dims[at.min(2)] += size;
            }
        }
        Operator { name: Arc::from(bare), idioms, dims }
    }

    /// The nine numbers.
    pub fn nine(&self) -> Nine {
        let mut nine = [0.0; 9];
        for (at, count) in self.idioms.iter().enumerate() {
            nine[at] = f64::from(*count);
        }
        for (at, size) in self.dims.iter().enumerate() {
            nine[6 + at] = *size as f64;
        }
        nine
    }
}

/// A name without its library and its overload: `aten::add_.Tensor` is `add`.
fn plain(name: &str) -> &str {
    let bare = name.rsplit("::").next().unwrap_or(name);
    let bare = bare.strip_prefix("aten.").unwrap_or(bare);
    let bare = bare.split('.').next().unwrap_or(bare);
    match bare.strip_suffix('_') {
        Some(short) if !short.ends_with('_') && !short.is_empty() => short,
        _ => bare,
    }
}

fn table() -> &'static HashMap<&'static str, Idioms> {
    static PARSED: OnceLock<HashMap<&'static str, Idioms>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
        rows.map(|row| {
            let mut cells = row.split(',');
            let name = cells.next().expect("a row begins with a name");
            let mut idioms = [0; 6];
            for count in &mut idioms {
                *count = cells.next().and_then(|cell| cell.parse().ok()).expect("six counts follow");
            }
            (name, idioms)
        })
        .collect()
    })
}

/// The idioms of one of ATen's operators, where the table has it.
pub fn known(name: &str) -> Option<Idioms> {
    table().get(plain(name)).copied()
}

/// How many operators the table knows.
pub fn count() -> usize {
    table().len()
}

/// The rule for operators that the table does not know, by what they read and make. An input as large as the largest
/// output streams; a larger one is reduced; a smaller one is gathered from, if there are larger ones or the output has as
/// many rows, else scattered. Two inputs of which the output has one dimension each are multiplied: transposed and reduced.
pub fn guessed(reads: &[&[u64]], writes: &[&[u64]]) -> Idioms {
    let elements = |shape: &&[u64]| shape.iter().product::<u64>();
    let out = writes.iter().map(elements).max().unwrap_or(0);
    let [mut transpose, mut gather, mut scatter, mut reduction, mut stream] = [0; 5];
    let product = |a: &[u64], b: &[u64]| match (a, b, writes.first()) {
        ([.., m, k], [.., l, n], Some([.., x, y])) => k == l && m == x && n == y && k != n,
        _ => false,
    };
    if let [a, b, ..] = reads
        && product(a, b)
    {
        (transpose, reduction) = (1, 1);
    }
    for shape in reads.iter().skip(if transpose > 0 { 2 } else { 0 }) {
        match elements(shape) {
            size if size == out => stream += 1,
            size if size > out => reduction += 1,
            _ if shape.first() == writes.first().and_then(|w| w.first()) => gather += 1,
            _ => scatter += 1,
        }
    }
    if reads.is_empty() && out > 0 {
        stream = 1;
    }
    [transpose, gather, scatter, reduction, stream, 0]
}

/// One number for each operator's type, whatever it does: the representation that the paper compares with
/// (section 6.6.6). Numbers are given in the order in which types are first seen.
#[derive(Clone, Debug, Default)]
pub struct GlobalIds {
    ids: HashMap<Arc<str>, usize>,
}

impl GlobalIds {
    /// The number of an operator's type.
    pub fn of(&mut self, operator: &Operator) -> usize {
        let next = self.ids.len();
        *self.ids.entry(Arc::clone(&operator.name)).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_knows_common_operators_by_all_their_names() {
        assert!(count() > 900, "{}", count());
        for name in ["relu", "aten::relu_", "aten.relu.default", "aten::relu"] {
            assert_eq!(known(name), Some([0, 0, 0, 0, 1, 0]), "{name}");
        }
        assert_eq!(known("sigmoid"), known("relu"), "what moves memory alike is alike");
        assert_eq!(known("my_own_operator"), None);
        assert_eq!(known("convolution_backward").map(|i| i[5]), Some(2));
    }

    #[test]
    fn unknown_operators_get_idioms_by_their_shapes() {
        for (reads, writes, idioms) in [
            (vec![&[8, 4][..], &[8, 4]], vec![&[8, 4][..]], [0, 0, 0, 0, 2, 0]),
            (vec![&[8, 4]], vec![&[8]], [0, 0, 0, 1, 0, 0]),
            (vec![&[8, 4], &[4, 16]], vec![&[8, 16]], [1, 0, 0, 1, 0, 0]),
            (vec![&[3, 4]], vec![&[9, 4]], [0, 0, 1, 0, 0, 0]),
            (vec![], vec![&[9, 4]], [0, 0, 0, 0, 1, 0]),
        ] {
            assert_eq!(guessed(&reads, &writes), idioms, "{reads:?} {writes:?}");
        }
    }

    #[test]
    fn dimensions_add_up() {
        let operator = Operator::new("aten::addmm", &[&[7], &[32, 5], &[5, 7]], &[&[32, 7]]);
        assert_eq!(operator.dims, [44, 12, 0]);
        assert_eq!(operator.nine()[..6], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    }
}
