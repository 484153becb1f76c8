//! The ONNX reader and importer against broken files: they never panic, and neither time nor memory runs away.
//!
//! Half of the mutations change bytes, the other half take the file apart into its fields, change those and put it together
//! again, so that lengths still fit and the change reaches the importer.

use std::time::{Duration, Instant};

use tiercel_workload::import::onnx;
use tiercel_workload::nets::NetOptions;

const FILES: [&[u8]; 8] = [
    include_bytes!("onnx/mixture.onnx"),
    include_bytes!("onnx/transformer.onnx"),
    include_bytes!("onnx/lstm.onnx"),
    include_bytes!("onnx/mlp.onnx"),
    include_bytes!("onnx/torch-segment.onnx"),
    include_bytes!("onnx/torch-gpt.onnx"),
    include_bytes!("onnx/loop.onnx"),
    include_bytes!("onnx/external.onnx"),
];

/// A small generator of random numbers, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    3,
    4,
    7,
    31,
    127,
    128,
    1000,
    65_536,
    1 << 31,
    1 << 32,
    (1 << 40) + 1,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
    i64::MIN as u64,
];

/// A field of a message.
#[derive(Clone)]
enum Field {
    Number(u64, u64),
    Fixed(u64, u8, Vec<u8>),
    Bytes(u64, Vec<u8>),
    Message(u64, Vec<Field>),
}

fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for i in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 127) << (7 * i);
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

/// The fields of a message, or `None` where the bytes are none.
fn parse(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let key = number(bytes, &mut at)?;
        let id = key >> 3;
        if !(1..=25).contains(&id) {
            return None;
        }
        fields.push(match key & 7 {
            0 => Field::Number(id, number(bytes, &mut at)?),
            wire @ (1 | 5) => {
                let length = if wire == 1 { 8 } else { 4 };
                let piece = bytes.get(at..at + length)?.to_vec();
                at += length;
                Field::Fixed(id, wire as u8, piece)
            }
            2 => {
                let length = number(bytes, &mut at)? as usize;
                let piece = bytes.get(at..at.checked_add(length)?)?;
                at += length;
                match parse(piece).filter(|fields| !fields.is_empty()) {
                    Some(fields) => Field::Message(id, fields),
                    None => Field::Bytes(id, piece.to_vec()),
                }
            }
            _ => return None,
        });
    }
    Some(fields)
}

fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        into.push(value as u8 | 128);
        value >>= 7;
    }
    into.push(value as u8);
}

fn write(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        let (id, wire, piece) = match field {
            Field::Number(id, value) => {
                put(&mut bytes, id << 3);
                put(&mut bytes, *value);
                continue;
            }
            Field::Fixed(id, wire, piece) => {
                put(&mut bytes, id << 3 | u64::from(*wire));
                bytes.extend(piece);
                continue;
            }
            Field::Bytes(id, piece) => (id, 2, piece.clone()),
            Field::Message(id, fields) => (id, 2, write(fields)),
        };
        put(&mut bytes, id << 3 | wire);
        put(&mut bytes, piece.len() as u64);
        bytes.extend(piece);
    }
    bytes
}

/// All texts of a file, to be put into places where others were.
fn texts<'a>(fields: &'a [Field], into: &mut Vec<&'a [u8]>) {
    for field in fields {
        match field {
            Field::Bytes(_, piece) if piece.len() < 40 => into.push(piece),
            Field::Message(_, fields) => texts(fields, into),
            _ => {}
        }
    }
}

/// Changes one field somewhere in the tree.
fn change(fields: &mut Vec<Field>, words: &[Vec<u8>], random: &mut Random) {
    if fields.is_empty() {
        return;
    }
    let at = random.below(fields.len());
    if let Field::Message(_, inner) = &mut fields[at]
        && random.below(8) > 0
    {
        return change(inner, words, random);
    }
    match random.below(6) {
        0 => drop(fields.remove(at)),
        1 => {
            let copy = fields[at].clone();
            let to = random.below(fields.len() + 1);
            fields.insert(to, copy);
        }
        2 => {
            let other = random.below(fields.len());
            fields.swap(at, other);
        }
        _ => match &mut fields[at] {
            Field::Number(_, value) => *value = random.of(&EDGES),
            Field::Fixed(_, _, piece) => {
                let place = random.below(piece.len());
                piece[place] = random.below(256) as u8;
            }
            Field::Bytes(_, piece) => match random.below(3) {
                0 => put(piece, random.of(&EDGES)),
                1 => {
                    // A list of numbers, as dims and pads are.
                    piece.clear();
                    (0..random.below(8)).for_each(|_| put(piece, random.of(&EDGES)));
                }
                _ => *piece = words[random.below(words.len())].clone(),
            },
            Field::Message(id, _) => *id = 1 + random.below(16) as u64,
        },
    }
}

/// Changes bytes, without regard for lengths; or just those.
fn scramble(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(40)).min(bytes.len());
    match random.below(6) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let other = random.of(&FILES);
            let from = random.below(other.len());
            let to = (from + random.below(60)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        4 => {
            let mut edge = Vec::new();
            put(&mut edge, random.of(&EDGES));
            let end = (at + edge.len()).min(bytes.len());
            bytes.splice(at..end, edge);
        }
        _ => bytes.truncate(bytes.len() - random.below(bytes.len() / 4 + 1)),
    }
}

/// The most memory that this process ever had, in MiB, where the system says so.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// What one run of the fuzzer saw.
struct Seen {
    imported: u32,
    slowest: Duration,
}

/// Imports so many mutated files.
fn fuzz(seed: u64, rounds: u32) -> Seen {
    let trees: Vec<Vec<Field>> = FILES.iter().map(|file| parse(file).expect("a message")).collect();
    let mut words: Vec<Vec<u8>> = onnx::operators().iter().map(|name| name.as_bytes().to_vec()).collect();
    for tree in &trees {
        let mut found = Vec::new();
        texts(tree, &mut found);
        words.extend(found.into_iter().map(<[u8]>::to_vec));
    }
    let mut random = Random(seed);
    let mut seen = Seen { imported: 0, slowest: Duration::ZERO };
    for round in 0..rounds {
        let file = random.below(FILES.len());
        let bytes = if round % 2 == 0 {
            let mut tree = trees[file].clone();
            (0..=random.below(3)).for_each(|_| change(&mut tree, &words, &mut random));
            write(&tree)
        } else {
            let mut bytes = FILES[file].to_vec();
            (0..=random.below(3)).for_each(|_| scramble(&mut bytes, &mut random));
            bytes
        };
        let batch = Some(random.of(&[1, 2, 5])).filter(|_| random.below(2) == 0);
        let options = NetOptions { batch, sequence: (file == 1).then_some(5), ..NetOptions::default() };
        let begin = Instant::now();
        seen.imported += u32::from(onnx::read(&bytes, "net", &options).is_ok());
        seen.slowest = seen.slowest.max(begin.elapsed());
    }
    seen
}

#[test]
fn mutated_files_never_panic() {
    let rounds = std::env::var("ONNX_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(50_000);
    let seed = std::env::var("ONNX_FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let start = Instant::now();
    let runs =
        [seed, seed + 1].map(|seed: u64| std::thread::spawn(move || fuzz(seed << 32 | 0x5eed, rounds)));
    let runs = runs.map(|run| run.join().expect("no panic"));
    let imported: u32 = runs.iter().map(|seen| seen.imported).sum();
    let slowest = runs.iter().map(|seen| seen.slowest).max().unwrap_or_default();
    println!(
        "{imported} of {} imported in {:?}, the slowest in {slowest:?}, {:?} MiB at most",
        2 * rounds,
        start.elapsed(),
        peak_memory()
    );
    assert!(
        imported > rounds / 5,
        "only {imported} were harmless: the fuzzer no longer gets past the reader"
    );
    assert!(slowest < Duration::from_secs(5), "one took {slowest:?}");
    assert!(peak_memory().is_none_or(|mib| mib < 1024), "{:?} MiB", peak_memory());
}

/// Small files that ask for a lot.
#[test]
fn hostile_sizes_are_refused() {
    let text = |id: u64, text: &str| Field::Bytes(id, text.as_bytes().to_vec());
    let node = |op: &str, inputs: &[&str], output: &str| {
        let mut fields: Vec<Field> = inputs.iter().map(|name| text(1, name)).collect();
        fields.extend([text(2, output), text(4, op)]);
        Field::Message(1, fields)
    };
    let floats = |name: &str, dims: &[u64]| {
        let mut fields: Vec<Field> = dims.iter().map(|d| Field::Number(1, *d)).collect();
        fields.extend([Field::Number(2, 1), text(8, name)]);
        Field::Message(5, fields)
    };
    let input = |name: &str, dims: &[u64]| {
        let dims = dims.iter().map(|d| Field::Message(1, vec![Field::Number(1, *d)])).collect();
        let tensor = vec![Field::Number(1, 1), Field::Message(2, dims)];
        Field::Message(11, vec![text(1, name), Field::Message(2, vec![Field::Message(1, tensor)])])
    };
    let model = |mut graph: Vec<Field>| {
        graph.push(Field::Message(12, vec![text(1, "out")]));
        write(&[Field::Message(7, graph), Field::Message(8, vec![Field::Number(2, 13)])])
    };
    let refused = |graph: Vec<Field>| {
        let begin = Instant::now();
        let error =
            onnx::read(&model(graph), "net", &NetOptions::default()).expect_err("is refused").to_string();
        assert!(begin.elapsed() < Duration::from_secs(2), "{error} took {:?}", begin.elapsed());
        error
    };
    // Tensors beyond all memory.
    let error = refused(vec![
        input("x", &[1, 1 << 40]),
        floats("w", &[1 << 40, 1 << 40]),
        node("MatMul", &["x", "w"], "out"),
    ]);
    assert!(error.starts_with("node 0"), "{error}");
    // Products whose operations cannot be counted.
    let error = refused(vec![
        input("x", &[1 << 28, 1 << 28]),
        floats("w", &[1 << 28, 1 << 28]),
        node("MatMul", &["x", "w"], "out"),
    ]);
    assert!(error.contains("2^62") || error.contains("no size"), "{error}");
    // A sequence of a million steps.
    let error = refused(vec![
        input("x", &[1 << 20, 1, 1]),
        floats("w", &[1, 4, 1]),
        floats("r", &[1, 4, 1]),
        node("LSTM", &["x", "w", "r"], "out"),
    ]);
    assert!(error.contains("more than 65536 recurrent steps"), "{error}");
    // Constants that double 60 times over, and a reader of the last.
    let mut graph = vec![input("x", &[1, 2]), floats("w", &[2, 2]), node("Shape", &["x"], "c0")];
    for i in 0..60 {
        let name = format!("c{i}");
        graph.push(node("Concat", &[&name, &name], &format!("c{}", i + 1)));
    }
    graph.push(node("Reshape", &["x", "c60"], "y"));
    graph.push(node("MatMul", &["y", "w"], "out"));
    let error = refused(graph);
    assert!(error.contains("not in the file") || error.contains("axes"), "{error}");
    // A long name on every one of many layers, and no end of nodes.
    let name = "n".repeat(100_000);
    let mut graph = vec![input(&name, &[1, 4]), floats("w", &[4, 4]), node("MatMul", &[&name, "w"], "y0")];
    for i in 0..20_000 {
        graph.push(node("Relu", &[&format!("y{i}")], &format!("y{}", i + 1)));
    }
    graph.push(node("Relu", &["y20000"], "out"));
    let begin = Instant::now();
    let imported = onnx::read(&model(graph), "net", &NetOptions::default()).expect("is fine");
    assert!(imported.program.trace.kernels.len() > 40_000);
    assert!(begin.elapsed() < Duration::from_secs(5), "took {:?}", begin.elapsed());
}
