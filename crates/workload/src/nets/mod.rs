//! The networks that Tiercel knows by name, one a file, each written as its authors describe it.

use crate::graph::{Builder, ConvLayer, DType, GraphError, Optimizer, ValueId};
use crate::schedule::{self, Program};
use crate::spelling;

mod bert;
mod cnn;
mod dcgan;
mod densenet;
mod dlrm;
mod gpt2;
mod inception_v3;
mod inception_v4;
mod lstm;
mod mlp;
mod mobilenet;
mod resnet;
mod vgg;

/// What can be chosen of a network; what is `None` takes the network's own value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetOptions {
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
    /// Different words of a language model, where the network has that choice: 256 for text by the byte; of a
    /// recommendation model, the most values of a category.
    pub words: Option<u64>,
    /// The number format of weights and activations.
    pub dtype: DType,
    /// How weights change.
    pub optimizer: Option<Optimizer>,
    /// How the graph becomes a trace.
    pub schedule: schedule::ScheduleOptions,
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
    /// The sizes that can be chosen beside the batch, by the names of [`NetOptions`].
    pub takes: &'static [&'static str],
    /// Writes forward pass, backward pass and updates.
    write: fn(&mut Builder, &NetOptions, u64),
}

impl Net {
    /// Samples in a batch under these options.
    pub fn batch(&self, options: &NetOptions) -> u64 {
        options.batch.unwrap_or(self.batch)
    }

    /// The sizes that are chosen in these options, and that the network does not have.
    pub fn refused<'a>(&'a self, options: &NetOptions) -> impl Iterator<Item = &'static str> + 'a {
        let NetOptions { image, sequence, depth, width, words, .. } = *options;
        let sizes =
            [("image", image), ("sequence", sequence), ("depth", depth), ("width", width), ("words", words)];
        let chosen = sizes.into_iter().filter(|(_, size)| size.is_some()).map(|(name, _)| name);
        chosen.filter(|name| !self.takes.contains(name))
    }

    /// Refuses sizes for which no network can be built in reasonable time and memory.
    fn check(&self, options: &NetOptions) -> Result<(), GraphError> {
        let limits = [
            ("batch", options.batch, 1 << 32),
            ("image", options.image, 1 << 16),
            ("sequence", options.sequence, 1 << 20),
            ("depth", options.depth, 1 << 20),
            ("width", options.width, 1 << 20),
            ("words", options.words, 1 << 24),
        ];
        for (name, value, limit) in limits {
            if let Some(value) = value.filter(|v| !(1..=limit).contains(v)) {
                let message = format!("{name} {value} is not between 1 and {limit}");
                return Err(GraphError { place: self.name.to_string(), message });
            }
        }
        Ok(())
    }

    /// The training iteration of the network, or what in the options does not fit it.
    pub fn build(&self, options: &NetOptions) -> Result<Program, GraphError> {
        self.check(options)?;
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

/// The network whose name is most like this one, if any is like it at all.
pub fn nearest(name: &str) -> Option<&'static Net> {
    find(spelling::nearest(name, NETS.iter().map(|net| net.name))?)
}

static NETS: [Net; 23] = [
    vgg::VGG16,
    vgg::VGG19,
    vgg::VGG116,
    vgg::VGG416,
    resnet::RESNET32,
    resnet::RESNET50,
    resnet::RESNET152,
    resnet::RESNET200,
    densenet::DENSENET264,
    inception_v3::INCEPTION_V3,
    inception_v4::INCEPTION_V4,
    mobilenet::MOBILENET,
    dcgan::DCGAN,
    lstm::LSTM,
    bert::BERT_LARGE,
    gpt2::GPT2,
    dlrm::DLRM,
    mlp::MLP,
    cnn::CNN,
    vgg::VGG416_AUTOTM,
    resnet::RESNET200_AUTOTM,
    densenet::DENSENET264_AUTOTM,
    inception_v4::INCEPTION_V4_AUTOTM,
];

/// A convolution and a batch norm as the layer `name`.
fn conv_norm(b: &mut Builder, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
    b.layer(name);
    let x = b.conv(x, layer);
    b.batch_norm(x)
}

/// The end of an image network: a linear layer to the classes, the loss, the backward pass and the updates.
fn classify(b: &mut Builder, x: ValueId, classes: u64, options: &NetOptions) {
    let logits = b.linear(x, classes);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::MOMENTUM));
}
