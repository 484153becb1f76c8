//! Our files are files of the format to the library that defines it, and the other way round.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tiercel_train::safetensors::{Reader, Writer, unfinished_path};
use tiercel_workload::graph::{DType, Shape};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let file = format!("tiercel-format-{name}-{}", std::process::id());
        Scratch(std::env::temp_dir().join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_library_reads_what_we_write() {
    let file = Scratch::new("ours");
    let texts = BTreeMap::from([("net".to_string(), "tiny \"quoted\"".to_string())]);
    let tensors: [(&str, DType, Shape); 3] = [
        ("a.weight", DType::F32, [2, 3].into()),
        ("odd \"name\" \u{e9}", DType::Bf16, [5].into()),
        ("step", DType::I64, [].into()),
    ];
    let contents: [Vec<u8>; 3] = [(0..24).collect(), (100..110).collect(), (200..208).collect()];
    let mut writer = Writer::create(&file.0, &texts, &tensors).expect("a file");
    for ((name, ..), bytes) in tensors.iter().zip(&contents) {
        assert!(
            unfinished_path(&file.0).exists() && !file.0.exists(),
            "the file is not there before it is whole"
        );
        writer.add(name, bytes).expect("room");
    }
    writer.finish().expect("a name");
    assert!(!unfinished_path(&file.0).exists());

    let bytes = fs::read(&file.0).expect("it is there");
    let theirs = SafeTensors::deserialize(&bytes).expect("a file of the format");
    assert_eq!(theirs.len(), 3);
    for ((name, dtype, shape), contents) in tensors.iter().zip(&contents) {
        let tensor = theirs.tensor(name).expect(name);
        let expected = match dtype {
            DType::F32 => Dtype::F32,
            DType::Bf16 => Dtype::BF16,
            DType::I32 => Dtype::I32,
            DType::I64 => Dtype::I64,
        };
        assert_eq!((tensor.dtype(), tensor.data()), (expected, contents.as_slice()));
        assert!(tensor.shape().iter().map(|d| *d as u64).eq(shape.dims().iter().copied()));
    }
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    assert_eq!(header.metadata().as_ref().and_then(|m| m.get("net")), Some(&"tiny \"quoted\"".to_string()));
    let mut reader = Reader::open(&file.0).expect("ours too");
    reader.verify().expect("it is whole");
}

#[test]
fn we_read_what_the_library_writes() {
    let file = Scratch::new("theirs");
    let data: Vec<u8> = (0..48).collect();
    let view = |range: std::ops::Range<usize>, shape: &[usize]| {
        TensorView::new(Dtype::F32, shape.to_vec(), &data[range]).expect("it fits")
    };
    let tensors = [("x", view(0..16, &[2, 2])), ("y", view(16..48, &[8]))];
    let texts = HashMap::from([("iteration".to_string(), "5".to_string())]);
    fs::write(&file.0, safetensors::serialize(tensors, Some(texts)).expect("a file")).expect("room");
    let mut reader = Reader::open(&file.0).expect("a file of the format");
    reader.verify().expect("no checksum, no complaint");
    assert_eq!(reader.texts().get("iteration").map(String::as_str), Some("5"));
    let entries = reader.entries().to_vec();
    assert_eq!(entries.len(), 2);
    for (name, range) in [("x", 0..16), ("y", 16..48)] {
        let entry = entries.iter().find(|e| e.name == name).expect(name);
        let mut bytes = vec![0; (entry.end - entry.begin) as usize];
        reader.read(entry, 0, &mut bytes).expect("it is there");
        assert_eq!(bytes, data[range], "{name}");
    }
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let file = Scratch::new("unfinished");
    fs::write(&file.0, "the old one").expect("room");
    let tensors: [(&str, DType, Shape); 1] = [("a", DType::F32, [4].into())];
    let writer = Writer::create(&file.0, &BTreeMap::new(), &tensors).expect("a file");
    drop(writer);
    assert_eq!(fs::read(&file.0).expect("it is there"), b"the old one");
    assert!(!unfinished_path(&file.0).exists());
}
