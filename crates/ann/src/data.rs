//! Vectors and neighbours in files: `npy` of numpy, and `fvecs`, `bvecs` and `ivecs` of the TEXMEX sets, by their endings.

use std::fs;
use std::path::Path;

use crate::element::{Dtype, Matrix};
use crate::error::{AnnError, MAX_DIM};

/// Labels of neighbours, so many a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// How many there are of each query.
    pub width: usize,
    /// All of them, one query after the other.
    pub labels: Vec<u64>,
}

/// What numbers of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Kept(Dtype),
    F64,
    I32,
    I64,
    U32,
    U64,
}

impl Number {
    fn size(self) -> usize {
        match self {
            Number::Kept(dtype) => dtype.size(),
            Number::I32 | Number::U32 => 4,
            Number::F64 | Number::I64 | Number::U64 => 8,
        }
    }
}

/// A table of numbers as a file has it.
struct Table {
    number: Number,
    width: usize,
    bytes: Vec<u8>,
}

/// Reads vectors. Numbers of eight bytes become `f32`.
pub fn read_vectors(path: &Path) -> Result<Matrix<'static>, AnnError> {
    let table = table(path)?;
    let wrong = |what: &str| Err(AnnError::damaged(path, what));
    let (dtype, bytes) = match table.number {
        Number::Kept(dtype) => (dtype, table.bytes),
        Number::F64 => {
            let numbers = table.bytes.as_chunks::<8>().0.iter().map(|n| f64::from_le_bytes(*n) as f32);
            (Dtype::F32, numbers.flat_map(f32::to_ne_bytes).collect())
        }
        Number::I32 => {
            let numbers = table.bytes.as_chunks::<4>().0.iter().map(|n| i32::from_le_bytes(*n) as f32);
            (Dtype::F32, numbers.flat_map(f32::to_ne_bytes).collect())
        }
        _ => return wrong("its numbers are labels rather than vectors"),
    };
    if table.width > MAX_DIM {
        return Err(AnnError::NoSuchDimension(table.width));
    }
    Matrix::new(dtype, table.width, bytes)
}

/// Reads labels of neighbours.
pub fn read_ids(path: &Path) -> Result<Ids, AnnError> {
    let table = table(path)?;
    let fours = || table.bytes.as_chunks::<4>().0.iter();
    let eights = || table.bytes.as_chunks::<8>().0.iter();
    let labels: Vec<u64> = match table.number {
        // -1 stands for nobody.
        Number::I32 => fours().map(|n| i64::from(i32::from_le_bytes(*n)) as u64).collect(),
        Number::U32 => fours().map(|n| u64::from(u32::from_le_bytes(*n))).collect(),
        Number::I64 | Number::U64 => eights().map(|n| u64::from_le_bytes(*n)).collect(),
        _ => {
            return Err(AnnError::damaged(
                path,
                "its numbers are no labels: they are not whole numbers of 4 or 8 bytes",
            ));
        }
    };
    Ok(Ids { width: table.width, labels })
}

/// What labels, or the vectors of a matrix, are as a file of the kind that the path's ending says: `npy` or `ivecs` for labels.
pub fn spell_ids(path: &Path, ids: &Ids) -> Result<Vec<u8>, AnnError> {
    match ending(path) {
        "npy" => {
            let mut bytes = npy_head("<i8", ids.labels.len() / ids.width.max(1), ids.width);
            ids.labels.iter().for_each(|label| bytes.extend((*label as i64).to_le_bytes()));
            Ok(bytes)
        }
        "ivecs" => {
            let mut bytes = Vec::new();
            for row in ids.labels.chunks(ids.width.max(1)) {
                bytes.extend((ids.width as u32).to_le_bytes());
                row.iter().for_each(|label| bytes.extend((*label as i32).to_le_bytes()));
            }
            Ok(bytes)
        }
        _ => Err(AnnError::damaged(path, "labels are written to a file that ends in .npy or .ivecs")),
    }
}

fn npy_head(descr: &str, rows: usize, width: usize) -> Vec<u8> {
    let mut head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    while !(10 + head.len() + 1).is_multiple_of(64) {
        head.push(' ');
    }
    head.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.bytes());
    bytes
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or("")
}

fn table(path: &Path) -> Result<Table, AnnError> {
    let number = match ending(path) {
        "npy" => None,
        "fvecs" => Some(Number::Kept(Dtype::F32)),
        "bvecs" => Some(Number::Kept(Dtype::U8)),
        "ivecs" => Some(Number::I32),
        _ => return Err(AnnError::damaged(path, "a file of vectors ends in .npy, .fvecs, .bvecs or .ivecs")),
    };
    let bytes = fs::read(path).map_err(AnnError::file(path))?;
    let read = match number {
        None => npy(&bytes),
        Some(number) => vecs(&bytes, number),
    };
    read.map_err(|what| AnnError::damaged(path, what))
}

/// Rows that each begin with their length.
fn vecs(bytes: &[u8], number: Number) -> Result<Table, String> {
    let first = bytes.first_chunk::<4>().ok_or("it is empty")?;
    let width = u32::from_le_bytes(*first) as usize;
    let row = width.checked_mul(number.size()).and_then(|row| row.checked_add(4)).unwrap_or(usize::MAX);
    if width == 0 || width > MAX_DIM || !bytes.len().is_multiple_of(row) {
        return Err(format!("its {} bytes are no rows of {width} numbers", bytes.len()));
    }
    let mut all = Vec::with_capacity(bytes.len() / row * (row - 4));
    for (at, row) in bytes.chunks_exact(row).enumerate() {
        if row[..4] != *first {
            return Err(format!("row {at} does not say that it has {width} numbers"));
        }
        all.extend_from_slice(&row[4..]);
    }
    Ok(Table { number, width, bytes: all })
}

/// The format of numpy, versions 1 to 3, in C order.
fn npy(bytes: &[u8]) -> Result<Table, String> {
    if bytes.get(..6) != Some(b"\x93NUMPY") {
        return Err("it does not begin as a file of numpy does".to_string());
    }
    let short = || "its header is cut off".to_string();
    let two = bytes.get(8..10).ok_or_else(short)?;
    let (start, len) = match bytes[6] {
        1 => (10usize, usize::from(u16::from_le_bytes([two[0], two[1]]))),
        _ => {
            let four = bytes.get(8..12).ok_or_else(short)?;
            (12, u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize)
        }
    };
    let head = start.checked_add(len).and_then(|end| bytes.get(start..end)).ok_or_else(short)?;
    let head = std::str::from_utf8(head).map_err(|_| "its header is no text".to_string())?;
    let field = |name: &str| {
        let at = head.find(&format!("'{name}':"))?;
        Some(head[at + name.len() + 3..].trim_start())
    };
    let descr =
        field("descr").and_then(|text| text.strip_prefix('\'')).and_then(|text| text.split('\'').next());
    let number = match descr.ok_or("its header says no element type")? {
        "<f4" => Number::Kept(Dtype::F32),
        "<f2" => Number::Kept(Dtype::F16),
        "|u1" => Number::Kept(Dtype::U8),
        "|i1" => Number::Kept(Dtype::I8),
        "<f8" => Number::F64,
        "<i4" => Number::I32,
        "<i8" => Number::I64,
        "<u4" => Number::U32,
        "<u8" => Number::U64,
        other => {
            return Err(format!(
                "its element type is {other}; float32, float16, uint8, int8 and whole labels are read"
            ));
        }
    };
    if !field("fortran_order").is_some_and(|text| text.starts_with("False")) {
        return Err("its array is in Fortran order; save numpy.ascontiguousarray of it".to_string());
    }
    let shape =
        field("shape").and_then(|text| text.strip_prefix('(')).and_then(|text| text.split(')').next());
    let sizes: Result<Vec<usize>, _> =
        shape.unwrap_or("").split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::parse).collect();
    let (rows, width) = match sizes.as_deref() {
        Ok([rows, width]) => (*rows, *width),
        Ok([width]) => (1, *width),
        _ => return Err("its array has not two dimensions".to_string()),
    };
    let body = &bytes[start + len..];
    let wanted = rows.checked_mul(width).and_then(|all| all.checked_mul(number.size()));
    if width == 0 || wanted != Some(body.len()) {
        return Err(format!(
            "it has {} bytes behind its header for {rows} rows of {width} numbers",
            body.len()
        ));
    }
    Ok(Table { number, width, bytes: body.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tiercel-data-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn every_kind_reads() {
        let mut fvecs = Vec::new();
        for row in [[1.0f32, 2.0], [3.0, 4.0]] {
            fvecs.extend(2u32.to_le_bytes());
            row.iter().for_each(|n| fvecs.extend(n.to_le_bytes()));
        }
        let path = written("a.fvecs", &fvecs);
        let matrix = read_vectors(&path).unwrap();
        assert_eq!((matrix.len(), matrix.numbers(1)), (2, vec![3.0, 4.0]));
        fs::remove_file(path).unwrap();
        let path = written("a.bvecs", &[3, 0, 0, 0, 7, 8, 9]);
        assert_eq!(read_vectors(&path).unwrap().numbers(0), [7.0, 8.0, 9.0]);
        fs::remove_file(path).unwrap();
        let mut npy = npy_head("<f8", 1, 2);
        [0.5f64, -1.0].iter().for_each(|n| npy.extend(n.to_le_bytes()));
        let path = written("a.npy", &npy);
        assert_eq!(read_vectors(&path).unwrap().numbers(0), [0.5, -1.0]);
        fs::remove_file(path).unwrap();
        let ids = Ids { width: 2, labels: vec![1, 2, 3, u64::MAX] };
        for name in ["b.npy", "b.ivecs"] {
            let path = written(name, &spell_ids(Path::new(name), &ids).unwrap());
            assert_eq!(read_ids(&path).unwrap(), ids);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_damaged_is_told() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut npy = npy_head("|u1", 20, 5);
        npy.extend([9; 100]);
        let mut bvecs = Vec::new();
        (0..20).for_each(|_| bvecs.extend([5, 0, 0, 0, 1, 2, 3, 4, 5]));
        for (name, good) in [("c.npy", npy), ("c.bvecs", bvecs)] {
            for _ in 0..1000 {
                let mut bytes = good.clone();
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
                bytes.truncate(random.usize(0..bytes.len() + 1));
                let path = written(name, &bytes);
                if let Ok(matrix) = read_vectors(&path) {
                    assert!(matrix.bytes().len() <= 400);
                }
                let _ = read_ids(&path);
                fs::remove_file(path).unwrap();
            }
        }
        let path = written("d.txt", b"x");
        assert!(read_vectors(&path).is_err());
        fs::remove_file(path).unwrap();
    }
}
