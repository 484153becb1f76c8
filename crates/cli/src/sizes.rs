//! What a user names and chooses of a workload: arguments that verbs share.

use clap::{Args, ValueEnum};
use tiercel_workload::graph::{DType, Optimizer};
use tiercel_workload::{Workload, nets, open};

use crate::amounts::count;

/// A workload in some size.
#[derive(Args)]
pub struct Subject {
    /// A network (`tiercel list` names them), an ONNX file or a trace
    #[arg(value_name = "NET|FILE")]
    pub what: String,
    #[command(flatten)]
    pub sizes: Sizes,
}

impl Subject {
    /// The network of this name, or else the file, in these sizes.
    pub fn open(&self) -> Result<Workload, String> {
        self.sizes.open(&self.what)
    }
}

/// The sizes of a network, and whatever else makes it another.
#[derive(Args)]
pub struct Sizes {
    /// Samples in a batch
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    pub batch: Option<u64>,
    /// Height and width of an image [default: the network's own; where there is data to learn from, its]
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    pub image: Option<u64>,
    /// Positions or time steps of a sequence
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    sequence: Option<u64>,
    /// Layers or blocks, for networks that have the choice
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    depth: Option<u64>,
    /// Features of a layer, for networks that have the choice
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    width: Option<u64>,
    /// Number format of weights and activations
    #[arg(long, value_enum, default_value_t = Format::F32)]
    dtype: Format,
    /// How weights change; each network has its own default
    #[arg(long, value_enum)]
    optimizer: Option<Rule>,
}

/// The number formats on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    F32,
    Bf16,
}

/// The optimizers on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Rule {
    Sgd,
    Momentum,
    Adamw,
}

impl Sizes {
    /// The network of this name, or else the file, in these sizes.
    pub fn open(&self, what: &str) -> Result<Workload, String> {
        open(what, &self.options()).map_err(|error| error.to_string())
    }

    /// The number format's name.
    pub fn dtype(&self) -> &'static str {
        self.options().dtype.name()
    }

    /// What a network is built by.
    pub fn options(&self) -> nets::Options {
        nets::Options {
            batch: self.batch,
            image: self.image,
            sequence: self.sequence,
            depth: self.depth,
            width: self.width,
            dtype: match self.dtype {
                Format::F32 => DType::F32,
                Format::Bf16 => DType::Bf16,
            },
            optimizer: self.optimizer.map(|rule| match rule {
                Rule::Sgd => Optimizer::SGD,
                Rule::Momentum => Optimizer::MOMENTUM,
                Rule::Adamw => Optimizer::ADAMW,
            }),
            ..nets::Options::default()
        }
    }
}
