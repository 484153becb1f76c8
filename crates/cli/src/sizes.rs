//! What a user names and chooses of a workload: arguments that verbs share.

use clap::{Args, ValueEnum};
use tiercel_workload::graph::{DType, Optimizer};
use tiercel_workload::{Workload, nets, open};

use crate::amounts::count;
use crate::failure::Failure;
use crate::torch::Torch;

/// A workload in some size.
#[derive(Args)]
pub struct Subject {
    /// A network (`tiercel list` names them), an ONNX file or a trace
    #[arg(value_name = "NET|FILE", required_unless_present = "torch", conflicts_with = "torch")]
    what: Option<String>,
    #[command(flatten)]
    pub torch: Torch,
    #[command(flatten)]
    pub sizes: Sizes,
}

impl Subject {
    /// The network of this name, or else the file, in these sizes; a PyTorch step with the times that it takes on a machine.
    pub fn open(&self, machine: &str) -> anyhow::Result<Workload> {
        match &self.torch.torch {
            None => self.sizes.open(self.what()),
            Some(step) => {
                self.sizes.only_batch("a PyTorch step")?;
                self.torch.trace(step, machine, self.sizes.batch).map(Workload::Trace)
            }
        }
    }

    /// What the user wrote.
    pub fn what(&self) -> &str {
        self.what.as_deref().or(self.torch.torch.as_deref()).unwrap_or_default()
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
    /// The network of this name, or else the file, in these sizes, all of which it must have.
    pub fn open(&self, what: &str) -> anyhow::Result<Workload> {
        self.check(&[what])?;
        self.open_unchecked(what)
    }

    /// The same; sizes that a network does not have are left out.
    pub fn open_unchecked(&self, what: &str) -> anyhow::Result<Workload> {
        Ok(open(what, &self.options())?)
    }

    /// Refuses sizes that none of these networks has; files speak for themselves.
    pub fn check(&self, names: &[&str]) -> anyhow::Result<()> {
        let options = self.options();
        let refused =
            |name: &str| -> Option<Vec<&str>> { nets::find(name).map(|net| net.refused(&options).collect()) };
        let Some(all) = names.iter().map(|name| refused(name)).collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let Some(option) = all
            .first()
            .and_then(|first| first.iter().find(|option| all.iter().all(|refused| refused.contains(option))))
        else {
            return Ok(());
        };
        match names {
            [name] => {
                // Words come with the data.
                let takes = nets::find(name).map_or(&[][..], |net| net.takes);
                let takes = ["batch"].iter().chain(takes).filter(|option| **option != "words");
                let takes: Vec<String> = takes.map(|option| format!("--{option}")).collect();
                Err(Failure::usage(format!("no size `--{option}` of {name}; it has {}", takes.join(", ")))
                    .into())
            }
            _ => Err(Failure::usage(format!("no size `--{option}` of any of these networks")).into()),
        }
    }

    /// Refuses every size but the batch.
    fn only_batch(&self, what: &str) -> anyhow::Result<()> {
        let sizes = [
            ("image", self.image),
            ("sequence", self.sequence),
            ("depth", self.depth),
            ("width", self.width),
        ];
        match sizes.iter().find(|(_, size)| size.is_some()) {
            Some((size, _)) => {
                Err(Failure::usage(format!("no size `--{size}` of {what}; it has --batch")).into())
            }
            None => Ok(()),
        }
    }

    /// The number format's name.
    pub fn dtype(&self) -> &'static str {
        self.options().dtype.name()
    }

    /// What a network is built by.
    pub fn options(&self) -> nets::NetOptions {
        nets::NetOptions {
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
            ..nets::NetOptions::default()
        }
    }
}
