//! The safetensors format, written and read one tensor at a time, and never half-written.
//!
//! A file is the length of its header in eight bytes, the header in JSON (every tensor's format, shape and place, and a
//! table of texts), and the tensors' bytes. The crate of that name wants every tensor in memory at once; here one
//! passes through at a time, because weights may be larger than memory that is free. A file is written under another
//! name beside its own, forced to the disk, and renamed; whoever opens it finds the old one or the new one, whole.
//!
//! A text `digest` in the table is the checksum of everything else, so that damage is told from contents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tiercel_workload::graph::{DType, Shape};

use super::checkpoint::CheckpointError;
use super::digest::Digest;
use tiercel_run::files;

/// What a checksum is replaced by when it is computed.
const NO_DIGEST: &str = "0000000000000000";
/// Headers above this are refused, as the format's own library does.
const LARGEST_HEADER: u64 = 100_000_000;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its number format, as the file calls it.
    pub dtype: String,
    /// Its extents.
    pub shape: Vec<u64>,
    /// Its first byte, counted from the first byte of the first tensor.
    pub begin: u64,
    /// One past its last byte.
    pub end: u64,
}

/// What the format calls a number format.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::Bf16 => "BF16",
        DType::I32 => "I32",
        DType::I64 => "I64",
    }
}

/// The bytes of one element of a format that files name; `None` for one that is not known here.
fn dtype_size(name: &str) -> Option<u64> {
    Some(match name {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        "I8" | "U8" | "BOOL" => 1,
        _ => return None,
    })
}

/// The name under which a file is written before it has its own.
pub fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// A file being written.
pub struct Writer {
    path: PathBuf,
    unfinished: PathBuf,
    file: Option<BufWriter<File>>,
    digest: Digest,
    /// Where the checksum goes.
    digest_at: u64,
    /// The tensors still to come, last first.
    to_come: Vec<(String, u64)>,
}

impl Writer {
    /// Starts a file with these texts and tensors; their bytes follow in the same order.
    pub fn create(
        path: &Path,
        texts: &BTreeMap<String, String>,
        tensors: &[(&str, DType, Shape)],
    ) -> io::Result<Writer> {
        let mut header = Map::new();
        let mut table: Map<String, Value> =
            texts.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
        table.insert("digest".to_string(), NO_DIGEST.into());
        header.insert("__metadata__".to_string(), table.into());
        let mut end = 0;
        let mut to_come = Vec::with_capacity(tensors.len());
        for (name, dtype, shape) in tensors {
            let begin = end;
            end += shape.bytes(*dtype).0;
            let place =
                json!({ "dtype": dtype_name(*dtype), "shape": shape.dims(), "data_offsets": [begin, end] });
            header.insert(name.to_string(), place);
            to_come.push((name.to_string(), end - begin));
        }
        to_come.reverse();
        let mut header = Value::Object(header).to_string();
        header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
        let within = digest_place(&header).expect("the header has a digest");
        let mut digest = Digest::default();
        digest.add(header.as_bytes());

        let unfinished = unfinished_path(path);
        let mut writer = Writer {
            path: path.to_path_buf(),
            file: Some(BufWriter::with_capacity(1 << 20, files::begin(&unfinished)?)),
            unfinished,
            digest,
            digest_at: 8 + within as u64,
            to_come,
        };
        let file = writer.file.as_mut().expect("just opened");
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        Ok(writer)
    }

    /// Writes the next tensor, or the next part of one; all but the last have a multiple of 32 bytes.
    ///
    /// # Panics
    /// If it is not the one that comes next.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let next = self.to_come.last_mut().filter(|(next, _)| next == name);
        let left = next.and_then(|(_, left)| {
            *left = left.checked_sub(bytes.len() as u64)?;
            Some(*left)
        });
        self.digest.more(bytes);
        if left.expect("tensors come in the order announced") == 0 {
            self.to_come.pop();
            self.digest.end();
        }
        self.file.as_mut().expect("open until finished").write_all(bytes)
    }

    /// Forces everything to the disk and gives the file its name.
    ///
    /// # Panics
    /// If a tensor is missing.
    pub fn finish(mut self) -> io::Result<()> {
        assert!(self.to_come.is_empty(), "{} tensors have not come", self.to_come.len());
        let mut file = self.file.take().expect("open until finished");
        file.seek(SeekFrom::Start(self.digest_at))?;
        write!(file, "{:016x}", self.digest.value())?;
        let file = file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        let renamed = fs::rename(&self.unfinished, &self.path);
        if renamed.is_err() {
            let _ = fs::remove_file(&self.unfinished);
        }
        files::finished(&self.unfinished);
        renamed?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.file.is_some() {
            // What was not finished is nobody's; that it may be gone already is no matter.
            let _ = fs::remove_file(&self.unfinished);
            files::finished(&self.unfinished);
        }
    }
}

/// Where in a header the checksum stands.
fn digest_place(header: &str) -> Option<usize> {
    // In JSON a quote within a name or a text is escaped, so this can only be a key and the start of its text.
    const KEY: &str = "\"digest\":\"";
    header.find(KEY).map(|at| at + KEY.len()).filter(|at| header.get(*at..at + NO_DIGEST.len()).is_some())
}

/// A file being read.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    header: String,
    texts: BTreeMap<String, String>,
    /// In the order of their bytes.
    entries: Vec<Entry>,
}

impl Reader {
    /// Opens a file and verifies its form: every tensor has its bytes, and every byte its tensor.
    pub fn open(path: &Path) -> Result<Reader, CheckpointError> {
        let failed = |error| CheckpointError::File { path: path.to_path_buf(), error };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let found = file.get_ref().metadata().map_err(failed)?.len();
        let short = |wanted| CheckpointError::Length { path: path.to_path_buf(), wanted, found };
        if found < 8 {
            return Err(short(8));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        let form = |what: String| CheckpointError::Form { path: path.to_path_buf(), what };
        if length > LARGEST_HEADER {
            return Err(form(format!(
                "its header would have {length} bytes, and {LARGEST_HEADER} is the most"
            )));
        }
        if found - 8 < length {
            return Err(short(8 + length));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(failed)?;
        let header = String::from_utf8(header).map_err(|_| form("its header is no text".to_string()))?;
        let (texts, entries) = parse(&header).map_err(form)?;
        let wanted = 8 + length + entries.last().map_or(0, |e| e.end);
        if wanted != found {
            return Err(short(wanted));
        }
        Ok(Reader { path: path.to_path_buf(), file, header, texts, entries })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The table of texts.
    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// Every tensor, in the order of their bytes.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Reads one tensor, or what of it comes behind its first `skipped` bytes; the caller sees to it that there is as much.
    pub fn read(&mut self, entry: &Entry, skipped: u64, bytes: &mut [u8]) -> Result<(), CheckpointError> {
        let start = 8 + self.header.len() as u64 + entry.begin + skipped;
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(bytes));
        read.map_err(|error| CheckpointError::File { path: self.path.clone(), error })
    }

    /// Reads everything and compares it with the checksum, where there is one.
    pub fn verify(&mut self) -> Result<(), CheckpointError> {
        let Some(stated) = self.texts.get("digest").cloned() else { return Ok(()) };
        let mut digest = Digest::default();
        let mut header = self.header.clone();
        if let Some(at) = digest_place(&header) {
            header.replace_range(at..at + NO_DIGEST.len(), NO_DIGEST);
        }
        digest.add(header.as_bytes());
        let mut bytes = Vec::new();
        for entry in self.entries.clone() {
            bytes.resize((entry.end - entry.begin) as usize, 0);
            self.read(&entry, 0, &mut bytes)?;
            digest.add(&bytes);
        }
        let found = format!("{:016x}", digest.value());
        if found != stated {
            return Err(CheckpointError::Damaged { path: self.path.clone(), stated, found });
        }
        Ok(())
    }
}

/// Reads a header, and verifies that the tensors lie one behind the other without a gap.
fn parse(header: &str) -> Result<(BTreeMap<String, String>, Vec<Entry>), String> {
    let header: Map<String, Value> = serde_json::from_str(header)
        .map_err(|error| format!("its header is not what it should be: {error}"))?;
    let mut texts = BTreeMap::new();
    let mut entries = Vec::new();
    for (name, value) in header {
        if name == "__metadata__" {
            texts =
                serde_json::from_value(value).map_err(|_| "its metadata is no table of texts".to_string())?;
            continue;
        }
        entries
            .push(entry(&name, &value).ok_or_else(|| format!("its header has no sense in it at `{name}`"))?);
    }
    entries.sort_by_key(|entry| (entry.begin, entry.end));
    let mut end = 0;
    for entry in &entries {
        if entry.begin != end {
            return Err(format!("`{}` begins at byte {}, where {end} was expected", entry.name, entry.begin));
        }
        end = entry.end;
    }
    Ok((texts, entries))
}

/// One tensor of a header, if its place has the size of its shape.
fn entry(name: &str, value: &Value) -> Option<Entry> {
    let dtype = value.get("dtype")?.as_str()?.to_string();
    let numbers =
        |key: &str| -> Option<Vec<u64>> { value.get(key)?.as_array()?.iter().map(Value::as_u64).collect() };
    let shape = numbers("shape")?;
    let [begin, end] = numbers("data_offsets")?[..] else { return None };
    let bytes = shape.iter().try_fold(dtype_size(&dtype)?, |n, d| n.checked_mul(*d))?;
    (end.checked_sub(begin)? == bytes).then(|| Entry { name: name.to_string(), dtype, shape, begin, end })
}
