//! The IDX format of the MNIST files: a magic number with the type and the number of axes, the extents, the elements.
//!
//! Only bytes are read: every set of images in this format has them. Packed files (`.gz`) are unpacked in passing.

use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::DataError;

/// Bytes in a grid of any number of axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The extents, outermost first.
    pub dims: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// Why a file is not in the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdxError {
    /// It does not begin like one.
    #[error("no IDX file of bytes: it begins with {found:02x?}, and 00 00 08 was expected")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// It ends too early or too late.
    #[error("{wanted} bytes were expected and {found} are there")]
    Length {
        /// What its header says, header included.
        wanted: u64,
        /// Its length.
        found: u64,
    },
    /// It has another number of axes.
    #[error("{found} axes, where {wanted} were expected")]
    Axes {
        /// How many it should have.
        wanted: usize,
        /// How many it has.
        found: usize,
    },
}

impl Idx {
    /// Reads the format.
    pub fn parse(bytes: &[u8], axes: usize) -> Result<Idx, IdxError> {
        let [0, 0, 8, found, rest @ ..] = bytes else {
            return Err(IdxError::Magic { found: bytes[..bytes.len().min(3)].to_vec() });
        };
        let found = usize::from(*found);
        if found != axes {
            return Err(IdxError::Axes { wanted: axes, found });
        }
        let length = |wanted: u64| IdxError::Length { wanted, found: bytes.len() as u64 };
        let header = rest.get(..4 * axes).ok_or_else(|| length(4 + 4 * axes as u64))?;
        let dims: Vec<u32> = header.as_chunks::<4>().0.iter().map(|d| u32::from_be_bytes(*d)).collect();
        let elements = dims.iter().fold(1u64, |n, d| n.saturating_mul(u64::from(*d)));
        let elements_there = (rest.len() - header.len()) as u64;
        if elements != elements_there {
            return Err(length(elements.saturating_add(4 + 4 * axes as u64)));
        }
        Ok(Idx { dims: dims.into_iter().map(|d| d as usize).collect(), bytes: rest[header.len()..].to_vec() })
    }

    /// Reads a file of a folder that has one of these names, packed or not.
    pub fn open(folder: &Path, what: &'static str, names: &[&str], axes: usize) -> Result<Idx, DataError> {
        for name in names {
            for name in [name.to_string(), format!("{name}.gz")] {
                let path = folder.join(&name);
                let file = match std::fs::read(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(DataError::File { path: path.display().to_string(), error }),
                    Ok(file) => file,
                };
                let shown = path.display().to_string();
                let bytes = unpack(file).map_err(|error| DataError::File { path: shown.clone(), error })?;
                return Idx::parse(&bytes, axes).map_err(|error| DataError::Form { path: shown, error });
            }
        }
        let mut names: Vec<String> = names.iter().map(|name| format!("{name}[.gz]")).collect();
        names.dedup();
        Err(DataError::Missing { folder: folder.display().to_string(), what, names })
    }
}

/// The contents of a file that may be packed.
fn unpack(file: Vec<u8>) -> io::Result<Vec<u8>> {
    if !file.starts_with(&[0x1f, 0x8b]) {
        return Ok(file);
    }
    let mut bytes = Vec::new();
    MultiGzDecoder::new(&file[..]).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PAIRS: [u8; 16] = [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 10, 20, 30, 40];

    #[test]
    fn reads_what_is_whole_and_refuses_the_rest() {
        let idx = Idx::parse(&TWO_PAIRS, 2).expect("whole");
        assert_eq!((idx.dims, idx.bytes), (vec![2, 2], vec![10, 20, 30, 40]));
        for length in 0..TWO_PAIRS.len() {
            assert!(Idx::parse(&TWO_PAIRS[..length], 2).is_err(), "{length}");
        }
        let error = |bytes: &[u8], axes| Idx::parse(bytes, axes).expect_err("not whole").to_string();
        assert_eq!(error(&TWO_PAIRS[..15], 2), "16 bytes were expected and 15 are there");
        assert_eq!(error(&TWO_PAIRS, 3), "2 axes, where 3 were expected");
        assert_eq!(
            error(b"\x89PNG", 2),
            "no IDX file of bytes: it begins with [89, 50, 4e], and 00 00 08 was expected"
        );
        let huge = [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(error(&huge, 3).ends_with("were expected and 16 are there"));
    }
}
