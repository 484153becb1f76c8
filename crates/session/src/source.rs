//! What a network learns from, by the name that a user gives it: the digits that come with Tiercel, nothing but numbers, or
//! files of one's own.

use std::path::Path;

use tiercel_train::data::{Idx, Pictures};
use tiercel_train::{Data, DataError, Images, Synthetic, Text};

use crate::SessionError;

/// What is learnt from, before it is known whether it fits a network.
pub enum Source {
    /// Random data without meaning.
    Synthetic,
    /// Images with classes.
    Images(Box<Images>),
    /// Text, of which the next byte is to be told.
    Text(Text),
}

impl Source {
    /// `synthetic`, `digits` (they come with Tiercel), a folder of IDX files as MNIST has them, or a file of text.
    pub fn open(what: &str) -> Result<Source, SessionError> {
        match what {
            "synthetic" => Ok(Source::Synthetic),
            "digits" => Ok(Source::Images(Box::new(digits()?))),
            path if Path::new(path).is_dir() => Ok(Source::Images(Box::new(Images::open(Path::new(path))?))),
            path => Ok(Source::Text(Text::open(Path::new(path))?)),
        }
    }

    /// The data itself.
    pub fn data(self) -> Box<dyn Data> {
        match self {
            Source::Synthetic => Box::new(Synthetic),
            Source::Images(images) => images,
            Source::Text(text) => Box::new(text),
        }
    }
}

/// The digits that come with Tiercel (see data/README.md).
pub fn digits() -> Result<Images, DataError> {
    macro_rules! file {
        ($name:literal, $axes:literal) => {
            Idx::parse(include_bytes!(concat!("../data/digits/", $name)), $axes)
                .map_err(|error| DataError::Form { path: $name.to_string(), error })?
        };
    }
    let pictures =
        |images: Idx, labels: Idx| Pictures::new(images.dims[1], images.dims[2], images.bytes, labels.bytes);
    let train = pictures(file!("train-images-idx3-ubyte", 3), file!("train-labels-idx1-ubyte", 1));
    let test = pictures(file!("t10k-images-idx3-ubyte", 3), file!("t10k-labels-idx1-ubyte", 1));
    Images::new("digits", train?, test?)
}
