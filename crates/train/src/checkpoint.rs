//! What a run leaves for the one that goes on: weights, optimizer state and where the run was.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use tiercel_workload::Program;
use tiercel_workload::graph::{Shape, Value, ValueId};
use tiercel_workload::trace::{Role, Tensor};

use super::safetensors::{Entry, Reader, Writer, dtype_name, unfinished_path};

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Iterations done.
    pub iteration: u64,
    /// Samples seen.
    pub position: u64,
    /// The seed that everything random follows from.
    pub seed: u64,
    /// The learning-rate schedule.
    pub schedule: String,
    /// The learning rate of the last iteration, for people to read: the optimizer's own times the schedule's factor.
    pub rate: String,
}

/// Why there is no going on from a file, or no writing to it.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error("checkpoint `{}`: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file ends too early, or has something behind its end.
    #[error("checkpoint `{}`: {wanted} bytes were expected and {found} are there{}", .path.display(),
        if found < wanted { ": it is cut off" } else { "" })]
    Length {
        /// The file.
        path: PathBuf,
        /// The bytes that it should have.
        wanted: u64,
        /// The bytes that it has.
        found: u64,
    },
    /// It is no file of this format.
    #[error("checkpoint `{}`: {what}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Its contents are not what was written.
    #[error("checkpoint `{}` is damaged: its checksum is {found}, and {stated} was written", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The checksum in the file.
        stated: String,
        /// The checksum of the file.
        found: String,
    },
    /// It does not say where the run was.
    #[error("checkpoint `{}`: its metadata has no `{key}`, or not one that can be read", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is missing.
        key: &'static str,
    },
    /// It belongs to another network.
    #[error("checkpoint `{}` is of the network `{found}`; `{expected}` is to be trained", .path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// The network that is to be trained.
        expected: String,
        /// The network of the file.
        found: String,
    },
    /// A tensor is not there, or too many are, or one has another form.
    #[error("checkpoint `{}`, tensor `{tensor}`: {expected} was expected, {found} is there", .path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the network has.
        expected: String,
        /// What the file has.
        found: String,
    },
}

/// The tensors that are what a run must remember, by their names.
pub fn kept(program: &Program) -> HashMap<String, ValueId> {
    let is_kept = |t: &&Tensor| t.persistent && matches!(t.role, Role::Weight | Role::State);
    let names: HashSet<&str> =
        program.trace.tensors.iter().filter(is_kept).map(|tensor| tensor.name.as_str()).collect();
    let values = (0..).map(ValueId).zip(&program.graph.values);
    let kept = values.filter(|(_, value)| names.contains(value.name.as_str()));
    kept.map(|(id, value)| (value.name.clone(), id)).collect()
}

/// The values that a checkpoint of this program has, in the order of its trace; what comes in parts is one.
fn saved(program: &Program) -> Vec<&Value> {
    let (kept, mut seen) = (kept(program), HashSet::new());
    let wholes =
        program.trace.tensors.iter().filter_map(|t| Some(program.graph.whole(*kept.get(&t.name)?).0));
    wholes.filter(|id| seen.insert(*id)).map(|id| program.graph.value(id)).collect()
}

/// Starts to write a checkpoint; the tensors follow in the order of their names, the same however it is scheduled.
pub(crate) fn create(path: &Path, program: &Program, progress: &Progress) -> io::Result<Writer> {
    let texts = [
        ("format", "tiercel 1".to_string()),
        ("net", program.graph.name.clone()),
        ("iteration", progress.iteration.to_string()),
        ("position", progress.position.to_string()),
        ("seed", progress.seed.to_string()),
        ("schedule", progress.schedule.clone()),
        ("rate", progress.rate.clone()),
    ];
    let texts: BTreeMap<String, String> = texts.map(|(key, text)| (key.to_string(), text)).into();
    let mut saved = saved(program);
    saved.sort_by_key(|value| &value.name);
    let tensors: Vec<_> = saved.iter().map(|v| (v.name.as_str(), v.dtype, v.shape)).collect();
    Writer::create(path, &texts, &tensors)
}

/// Removes what a run that was killed while it wrote has left beside a checkpoint.
pub fn tidy(path: &Path) -> Result<(), CheckpointError> {
    match std::fs::remove_file(unfinished_path(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CheckpointError::File { path: unfinished_path(path), error })
        }
        _ => Ok(()),
    }
}

/// A checkpoint that fits a program, ready to be loaded tensor by tensor.
#[derive(Debug)]
pub struct Checkpoint {
    reader: Reader,
    by_name: HashMap<String, Entry>,
    /// Where the run was.
    pub progress: Progress,
}

impl Checkpoint {
    /// Opens a checkpoint and holds it against a program, tensor by tensor.
    pub fn open(path: &Path, program: &Program) -> Result<Checkpoint, CheckpointError> {
        let mut reader = Reader::open(path)?;
        let here = || path.to_path_buf();
        let text = |key: &'static str| {
            let text = reader.texts().get(key).cloned();
            text.ok_or_else(|| CheckpointError::Text { path: here(), key })
        };
        let number = |key: &'static str| {
            let text = text(key)?;
            text.parse::<u64>().map_err(|_| CheckpointError::Text { path: here(), key })
        };
        let found = text("net")?;
        let progress = Progress {
            iteration: number("iteration")?,
            position: number("position")?,
            seed: number("seed")?,
            schedule: text("schedule")?,
            rate: text("rate")?,
        };
        if found != program.graph.name {
            return Err(CheckpointError::Network {
                path: here(),
                expected: program.graph.name.clone(),
                found,
            });
        }
        let by_name: HashMap<String, Entry> =
            reader.entries().iter().map(|e| (e.name.clone(), e.clone())).collect();
        compare(path, &by_name, &saved(program))?;
        reader.verify()?;
        Ok(Checkpoint { reader, by_name, progress })
    }

    /// Reads a tensor, or a part of it behind its first `skipped` bytes; false where the checkpoint has none of that name.
    pub fn load(&mut self, name: &str, skipped: u64, bytes: &mut [u8]) -> Result<bool, CheckpointError> {
        let Some(entry) = self.by_name.get(name) else { return Ok(false) };
        self.reader.read(entry, skipped, bytes).map(|()| true)
    }
}

/// Holds the tensors of a file against those of a network.
fn compare(path: &Path, found: &HashMap<String, Entry>, wanted: &[&Value]) -> Result<(), CheckpointError> {
    let misfit = |tensor: &str, expected: String, found: String| {
        Err(CheckpointError::Tensor { path: path.to_path_buf(), tensor: tensor.to_string(), expected, found })
    };
    let shown = |dtype: &str, dims: &[u64]| {
        let shape = Shape::new(dims).map_or_else(|| format!("{dims:?}"), |shape| shape.to_string());
        format!("{dtype} {shape}")
    };
    for value in wanted {
        let expected = shown(dtype_name(value.dtype), value.shape.dims());
        let Some(entry) = found.get(&value.name) else {
            return misfit(&value.name, expected, "none".to_string());
        };
        if entry.dtype != dtype_name(value.dtype) || entry.shape != value.shape.dims() {
            return misfit(&value.name, expected, shown(&entry.dtype, &entry.shape));
        }
    }
    if found.len() > wanted.len() {
        let mut surplus: Vec<&Entry> =
            found.values().filter(|entry| wanted.iter().all(|value| value.name != entry.name)).collect();
        surplus.sort_by_key(|entry| entry.begin);
        if let Some(entry) = surplus.first() {
            return misfit(&entry.name, "none".to_string(), shown(&entry.dtype, &entry.shape));
        }
    }
    Ok(())
}
