//! From what a user names to a workload: a network by its name, or a file by its type.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::graph::GraphError;
use crate::import::onnx::{self, Imported};
use crate::nets::{self, NetOptions};
use crate::schedule::Program;
use crate::text::{self, TextError};
use crate::trace::Trace;

/// Something to describe, plan or run.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// A network, whose kernels can be run.
    Program {
        /// The network.
        program: Program,
        /// Samples in a batch.
        batch: u64,
    },
    /// A trace from a file, which can be planned and simulated.
    Trace(Trace),
}

impl Workload {
    /// Its trace.
    pub fn trace(&self) -> &Trace {
        match self {
            Workload::Program { program, .. } => &program.trace,
            Workload::Trace(trace) => trace,
        }
    }

    /// Its graph beside its trace, where it has one.
    pub fn program(&self) -> Option<&Program> {
        match self {
            Workload::Program { program, .. } => Some(program),
            Workload::Trace(_) => None,
        }
    }

    /// Samples in a batch, where that is known.
    pub fn batch(&self) -> Option<u64> {
        match self {
            Workload::Program { batch, .. } => Some(*batch),
            Workload::Trace(_) => None,
        }
    }
}

/// Why there is no workload.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No network and no file has that name.
    #[error("no network `{name}`; {}", .nearest.map_or("`tiercel list networks` names them".to_string(), |n| format!("did you mean `{n}`?")))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The network whose name is most like it.
        nearest: Option<&'static str>,
    },
    /// The options do not fit the network.
    #[error("{0}")]
    Graph(#[from] GraphError),
    /// The file cannot be read.
    #[error("cannot read `{path}`: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file is not a trace.
    #[error("{path}: {error}")]
    Text {
        /// The file.
        path: String,
        /// What is wrong with it, and where.
        error: TextError,
    },
    /// The file is no ONNX network that can be trained.
    #[error("{path}: {error}")]
    Onnx {
        /// The file.
        path: String,
        /// What is wrong with it, and at which node.
        error: GraphError,
    },
    /// A choice was made that a trace does not offer.
    #[error("{path}: a trace has its sizes already; `{option}` does not apply")]
    Fixed {
        /// The file.
        path: String,
        /// The option.
        option: &'static str,
    },
}

/// Opens the network of this name, or else the file.
pub fn open(what: &str, options: &NetOptions) -> Result<Workload, OpenError> {
    if let Some(net) = nets::find(what) {
        return Ok(Workload::Program { program: net.build(options)?, batch: net.batch(options) });
    }
    let path = Path::new(what);
    if path.exists() || path.extension().is_some() || what.contains('/') {
        return file(what, path, options);
    }
    Err(OpenError::Unknown { name: what.to_string(), nearest: nets::nearest(what).map(|net| net.name) })
}

/// What is read at most of a pipe or a device, which need not have an end.
const MOST: u64 = 256 << 20;

/// All of a file; of a pipe or a device, up to 256 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.read_to_end(&mut bytes)?;
    } else if file.take(MOST + 1).read_to_end(&mut bytes)? as u64 > MOST {
        let endless = "it is no file, and has more than 256 MiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, endless));
    }
    Ok(bytes)
}

/// Opens a file by its type: the one place that knows the types.
fn file(what: &str, path: &Path, options: &NetOptions) -> Result<Workload, OpenError> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let bytes = read(path).map_err(|error| OpenError::File { path: what.to_string(), error })?;
    if extension.eq_ignore_ascii_case("onnx") {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("network");
        let imported = onnx::read(&bytes, name, options);
        return match imported {
            Ok(Imported { program, batch }) => Ok(Workload::Program { program, batch }),
            Err(error) => Err(OpenError::Onnx { path: what.to_string(), error }),
        };
    }
    let chosen = [
        ("--batch", options.batch.is_some()),
        ("--image", options.image.is_some()),
        ("--sequence", options.sequence.is_some()),
        ("--depth", options.depth.is_some()),
        ("--width", options.width.is_some()),
    ];
    if let Some((option, _)) = chosen.into_iter().find(|(_, chosen)| *chosen) {
        return Err(OpenError::Fixed { path: what.to_string(), option });
    }
    let text = text::parse_bytes(&bytes);
    text.map(Workload::Trace).map_err(|error| OpenError::Text { path: what.to_string(), error })
}
