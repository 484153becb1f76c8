//! The networks that Tiercel knows by name, one a file, each written as its authors describe it.

use crate::graph::{Builder, DType, GraphError, Optimizer};
use crate::schedule::{self, Program};

mod mlp;
mod vgg;

/// What can be chosen of a network; what is `None` takes the network's own value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Samples in a batch.
    pub batch: Option<u64>,
    /// Height and width of an image.
    pub image: Option<u64>,
    /// Positions or time steps of a sequence.
    pub sequence: Option<u64>,
    /// Number of layers or blocks, where the network has that choice.
    pub depth: Option<u64>,
    /// Features of a layer, where the network has that choice.
    pub width: Option<u64>,
    /// The number format of weights and activations.
    pub dtype: DType,
    /// How weights change.
    pub optimizer: Option<Optimizer>,
    /// How the graph becomes a trace.
    pub schedule: schedule::Options,
}

/// A network that can be built by name.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Samples in a batch unless chosen otherwise.
    pub batch: u64,
    /// Writes forward pass, backward pass and updates.
    write: fn(&mut Builder, &Options, u64),
}

impl Net {
    /// Samples in a batch under these options.
    pub fn batch(&self, options: &Options) -> u64 {
        options.batch.unwrap_or(self.batch)
    }

    /// The training iteration of the network, or what in the options does not fit it.
    pub fn build(&self, options: &Options) -> Result<Program, GraphError> {
        let mut builder = Builder::new(self.name, options.dtype);
        (self.write)(&mut builder, options, self.batch(options));
        Ok(Program::new(builder.finish()?, options.schedule))
    }
}

/// Every network.
pub fn all() -> &'static [Net] {
    &NETS
}

/// The network of this name.
pub fn find(name: &str) -> Option<&'static Net> {
    NETS.iter().find(|net| net.name == name)
}

static NETS: [Net; 5] = [vgg::VGG16, vgg::VGG19, vgg::VGG116, vgg::VGG416, mlp::MLP];
