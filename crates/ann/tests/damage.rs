//! Index files that are damaged: ten thousand of them, each an error or as good as the whole file, never a crash and never a
//! wrong answer that nobody notices.
//!
//! Two kinds. Most files have bits turned, bytes overwritten or an end missing, as disks and copies do it: checksums notice.
//! The others are made by hand, with every checksum right again, so that what is checked for sense beside is reached: such a
//! file may say something else, but it must not bring the program down.

use std::fs;
use std::path::PathBuf;

use tiercel_ann::{
    AnnError, Ask, Dtype, FastMemory, Index, Matrix, Metric, NOBODY, Neighbours, SaveOptions, Spec, TierAsk,
    Tiered,
};
use tiercel_core::Bytes;

/// How many files are tried by each of the threads; `TIERCEL_FUZZ` is how many times as many.
const ROUNDS: u64 = 5000;

const PAGE: usize = 4096;
const ROOM: usize = PAGE - 4;

/// Where files cost no disk, if the system has such a place.
fn place(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let name = format!("tiercel-ann-damage-{name}-{}", std::process::id());
    let there = memory.is_dir() && fs::write(memory.join(&name), []).is_ok();
    if there { memory.join(name) } else { std::env::temp_dir().join(name) }
}

fn whole() -> (Vec<u8>, Vec<f32>) {
    let mut random = fastrand::Rng::with_seed(4);
    let numbers: Vec<f32> = (0..310 * 40).map(|at| ((at / 40 % 7) * 20 + random.i32(0..60)) as f32).collect();
    let (base, queries) = numbers.split_at(300 * 40);
    let spec = Spec { m: 8, ef_construction: 60, ..Spec::new(40, Metric::L2, Dtype::U8) };
    let mut index = Index::new(spec).unwrap();
    index.add_items(&Matrix::of_f32(40, base).unwrap(), None, 1).unwrap();
    let path = place("whole");
    index.save(&path, &SaveOptions { code_bits: 1, threads: 1, ..SaveOptions::default() }).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    (bytes, queries.to_vec())
}

/// Opens a file in both ways and asks it.
struct Reader {
    path: PathBuf,
    queries: Matrix<'static>,
}

impl Reader {
    fn tiered(&self, bytes: &[u8]) -> Result<Neighbours, AnnError> {
        fs::write(&self.path, bytes).unwrap();
        let ask = TierAsk { ef: Some(40), rerank: Some(20), ..TierAsk::default() };
        let tiered = Tiered::open(&self.path, FastMemory::Bytes(Bytes::mib(1)), 1)?;
        Ok(tiered.knn_query(&self.queries, 5, &ask)?.0)
    }

    fn loaded(&self, bytes: &[u8]) -> Result<Neighbours, AnnError> {
        fs::write(&self.path, bytes).unwrap();
        Index::load(&self.path)?.knn_query(&self.queries, 5, &Ask::default())
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Damage as disks and copies do it.
fn damage(copy: &mut Vec<u8>, random: &mut fastrand::Rng) {
    match random.u32(0..4) {
        0 => copy.truncate(random.usize(0..copy.len())),
        1 => {
            let at = random.usize(0..copy.len());
            copy[at] ^= 1 << random.u32(0..8);
        }
        2 => {
            let start = random.usize(0..copy.len());
            let end = (start + random.usize(1..600)).min(copy.len());
            copy[start..end].iter_mut().for_each(|byte| *byte = random.u8(..));
        }
        // A page that was written to the place of another.
        _ => {
            let pages = copy.len() / PAGE;
            let (from, to) = (random.usize(0..pages) * PAGE, random.usize(0..pages) * PAGE);
            copy.copy_within(from..from + PAGE, to);
        }
    }
}

/// Changes something and makes the checksums right again.
fn forge(copy: &mut [u8], random: &mut fastrand::Rng) {
    let sections = u32::from_le_bytes(copy[40..44].try_into().unwrap()) as usize;
    let at = 76 + random.usize(0..sections) * 24;
    let (kind, start, len) = (copy[at], word(copy, at + 8) as usize, word(copy, at + 16) as usize);
    if len == 0 || random.u32(0..3) == 0 {
        let at = random.usize(12..76 + sections * 24);
        copy[at] = if random.bool() { random.u8(..) } else { copy[at].wrapping_add(1) };
    } else {
        for _ in 0..random.usize(1..4) {
            let at = start + random.usize(0..len);
            copy[at] = random.u8(..);
        }
        if kind == 6 {
            for (page, bytes) in copy[start..start + len].chunks_exact_mut(PAGE).enumerate() {
                let mut sum = crc32fast::Hasher::new();
                sum.update(&(page as u64).to_le_bytes());
                sum.update(&bytes[..ROOM]);
                bytes[ROOM..].copy_from_slice(&sum.finalize().to_le_bytes());
            }
        } else {
            let sum = crc32fast::hash(&copy[start..start + len]);
            copy[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum = crc32fast::hash(&copy[..ROOM]);
    copy[ROOM..PAGE].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn damaged_files_are_errors_and_never_wrong_answers() {
    let rounds = ROUNDS * std::env::var("TIERCEL_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (bytes, queries) = whole();
    let (bytes, queries) = (&bytes, &queries);
    let one = |thread: u64| {
        let queries = Matrix::of_f32(40, queries).unwrap().pick(0..10);
        let reader = Reader { path: place(&format!("bad-{thread}")), queries };
        let (tiered, loaded) = (reader.tiered(bytes).unwrap(), reader.loaded(bytes).unwrap());
        assert!(!tiered.labels.contains(&NOBODY) && !loaded.labels.contains(&NOBODY));
        let mut random = fastrand::Rng::with_seed(8 + thread);
        let (mut refused, mut same, mut forged) = (0, 0, 0);
        for round in 0..rounds {
            let mut copy = bytes.clone();
            if round % 4 == 3 {
                forge(&mut copy, &mut random);
                forged += 1;
                // It may say anything: other answers, an error, but not a crash.
                let _ = if random.bool() { reader.tiered(&copy) } else { reader.loaded(&copy) };
                continue;
            }
            damage(&mut copy, &mut random);
            if copy == *bytes {
                continue;
            }
            let (found, good) = match random.bool() {
                true => (reader.tiered(&copy), &tiered),
                false => (reader.loaded(&copy), &loaded),
            };
            match found {
                Err(_) => refused += 1,
                // The damage is in a part that was not read, or between sections.
                Ok(found) => {
                    assert_eq!(found, *good, "thread {thread}, round {round}");
                    same += 1;
                }
            }
        }
        fs::remove_file(&reader.path).unwrap();
        (refused, same, forged)
    };
    let parts: Vec<(u64, u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no crash")).collect()
    });
    for (refused, same, forged) in parts {
        println!("{refused} refused, {same} damaged where nobody read, {forged} forged");
        assert!(refused > rounds / 4 && same < refused, "{refused} refused, {same} not noticed");
    }
}
