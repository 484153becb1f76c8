//! What networks learn from: samples by number, written straight into the tensors that an iteration reads.
//!
//! Which samples an iteration gets follows from the seed and from how many samples came before, and from nothing
//! else, so a resumed run sees what the run that was stopped would have seen.

mod idx;
mod images;
pub mod pick;
mod text;
mod write;

use std::path::Path;

use tiercel_workload::graph::{Graph, Init, Op, Value, ValueId};

pub use idx::{Idx, IdxError};
pub use images::{Images, Pictures};
pub use text::{Text, grammar};

/// What part of a sample an input holds, as far as the graph tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Numbers: an image.
    Features,
    /// Ids that a table of weights is looked up with: words.
    Words,
    /// What the network should say: the class, or the word that comes next.
    Labels {
        /// How many there are to choose from.
        classes: u64,
    },
    /// Anything else; it is filled as the network says.
    Other,
}

/// Which samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Those to learn from, shuffled.
    Train,
    /// Those to be judged by, in order.
    Test,
}

/// One input of one iteration that wants to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The input.
    pub value: &'a Value,
    /// What it holds.
    pub part: Part,
    /// Samples in a batch.
    pub batch: u64,
    /// Whether time steps, not samples, are the outermost axis of words and labels.
    pub time_first: bool,
    /// Which samples.
    pub split: Split,
    /// How many samples came before this batch.
    pub position: u64,
    /// The seed of the run.
    pub seed: u64,
}

/// Samples to learn from and to be judged by.
pub trait Data {
    /// What it is, in a few words.
    fn about(&self) -> String;

    /// How many samples there are; 0 for a split that is not there, `None` where they never end.
    fn samples(&self, split: Split) -> Option<u64>;

    /// Whether this data can feed a network with these inputs, or a sentence that says what does not fit.
    fn check(&self, inputs: &[Input<'_>]) -> Result<(), DataError> {
        let _ = inputs;
        Ok(())
    }

    /// Writes a batch of one input; false where the data has nothing for it, which is then filled as the network says.
    fn fill(&mut self, request: &Request<'_>, bytes: &mut [u8]) -> Result<bool, DataError>;
}

/// An input of a network and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The input.
    pub value: &'a Value,
    /// What it holds.
    pub part: Part,
    /// Samples in a batch.
    pub batch: u64,
}

/// Random data without meaning: every input as the network says, anew for every iteration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Synthetic;

impl Data for Synthetic {
    fn about(&self) -> String {
        "synthetic data".to_string()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        if split == Split::Train { None } else { Some(0) }
    }

    fn fill(&mut self, _request: &Request<'_>, _bytes: &mut [u8]) -> Result<bool, DataError> {
        Ok(false)
    }
}

/// What the input `id` of a graph holds, by who reads it.
pub(crate) fn part(graph: &Graph, id: ValueId) -> Part {
    let value = graph.value(id);
    if matches!(value.init, Init::Ascending | Init::Constant(_)) {
        return Part::Other;
    }
    if !value.dtype.is_integer() {
        return Part::Features;
    }
    for node in &graph.nodes {
        match (&node.op, &node.inputs[..]) {
            (Op::CrossEntropy, [logits, labels, ..]) if graph.root(*labels) == id => {
                return Part::Labels { classes: graph.value(*logits).shape.last() };
            }
            (Op::Embedding { .. }, [table, ids, ..]) if graph.root(*ids) == id => {
                let looked_up = graph.value(graph.root(*table)).persistent;
                return if looked_up { Part::Words } else { Part::Other };
            }
            _ => {}
        }
    }
    Part::Other
}

/// Opens what lies at a path: a folder with IDX files of images and labels, or a file of text.
pub fn open(path: &Path) -> Result<Box<dyn Data>, DataError> {
    if path.is_dir() { Ok(Box::new(Images::open(path)?)) } else { Ok(Box::new(Text::open(path)?)) }
}

/// What is wrong with data.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read `{path}`: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A folder has no such file.
    #[error("`{folder}` has no file of {what}: there is no {}", .names.join(" and no "))]
    Missing {
        /// The folder.
        folder: String,
        /// What the file would hold.
        what: &'static str,
        /// What it may be called.
        names: Vec<String>,
    },
    /// A file is not in the IDX format.
    #[error("`{path}`: {error}")]
    Form {
        /// The file.
        path: String,
        /// What is wrong with it.
        error: IdxError,
    },
    /// The pieces do not fit each other.
    #[error("`{path}`: {what}")]
    Misfit {
        /// The file or folder.
        path: String,
        /// What does not fit.
        what: String,
    },
    /// The data is nothing that the network could learn from.
    #[error("{0}")]
    Unfit(String),
    /// Images and labels are not as many.
    #[error("{count} labels do not go with {bytes} pixels in images of {rows}x{columns}")]
    Counts {
        /// Labels.
        count: usize,
        /// Pixels in all.
        bytes: usize,
        /// Pixels from top to bottom.
        rows: usize,
        /// Pixels from left to right.
        columns: usize,
    },
    /// Images to learn from and to be judged by are not of one size.
    #[error(
        "images of {}x{} to learn from and of {}x{} to be judged by", .train.0, .train.1, .test.0, .test.1
    )]
    Sizes {
        /// Rows and columns of those to learn from.
        train: (usize, usize),
        /// Rows and columns of those to be judged by.
        test: (usize, usize),
    },
}
