//! Programs with a known result and a known size, to be run under `tiercel keep` and without it: `loads NAME MIB SECONDS`.
//!
//! `gups` updates a table at random, nine times of ten in a hot eighth of it; `zipf` reads and updates records of 1 KiB whose
//! popularity follows Zipf's law; `bfs` searches a random graph; `stream` passes over an array and updates it; `phases` is
//! `gups` whose hot eighth moves every third of the time; `idle` has memory and does nothing. Each prints what it did a second
//! and checks what it holds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, mib, seconds] = &words[..] else { panic!("loads NAME MIB SECONDS") };
    let mib: usize = mib.parse().expect("MiB");
    let time = Duration::from_secs(seconds.parse().expect("seconds"));
    let bytes = mib << 20;
    let (done, unit) = match name.as_str() {
        "gups" => (gups(bytes, time, 1), "updates"),
        "phases" => (gups(bytes, time, 3), "updates"),
        "zipf" => (zipf(bytes, time), "operations"),
        "bfs" => (bfs(bytes, time), "edges"),
        "stream" => (stream(bytes, time), "words"),
        "idle" => (idle(bytes, time), "nothings"),
        other => panic!("no load {other}"),
    };
    println!("{name}: {done:.0} {unit} a second, checked");
}

fn gups(bytes: usize, time: Duration, sets: u32) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let words = bytes / 8;
    let mut table: Vec<u64> = (0..words as u64).collect();
    let began = Instant::now();
    let mut updates = 0u64;
    while began.elapsed() < time {
        let set = (began.elapsed().as_secs_f64() / time.as_secs_f64() * f64::from(sets)) as usize;
        let first = words / 4 + set * words / 5;
        for _ in 0..1000 {
            let at =
                if random.u32(..10) < 9 { first + random.usize(..words / 8) } else { random.usize(..words) };
            // Twice the same number is none: what is left says whether all was kept.
            table[at] = table[at].wrapping_add(1 << 32);
        }
        updates += 1000;
    }
    let rate = updates as f64 / began.elapsed().as_secs_f64();
    let mut sum = 0;
    for (at, word) in table.iter().enumerate() {
        assert_eq!(word & 0xffff_ffff, at as u64 & 0xffff_ffff, "a word kept its place");
        sum += word >> 32;
    }
    assert_eq!(sum, updates, "no update was lost");
    rate
}

fn zipf(bytes: usize, time: Duration) -> f64 {
    let mut random = fastrand::Rng::with_seed(2);
    let count = bytes / 1024;
    let mut records: Vec<[u64; 128]> = (0..count as u64).map(|key| [key; 128]).collect();
    let mut place: Vec<u32> = (0..count as u32).collect();
    random.shuffle(&mut place);
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += 1.0 / (rank as f64).powf(0.99);
            sum
        })
        .collect();
    let began = Instant::now();
    let mut operations = 0u64;
    while began.elapsed() < time {
        for _ in 0..100 {
            let at = random.f64() * sum;
            let rank = cumulative.partition_point(|c| *c < at).min(count - 1);
            let slot = place[rank] as usize;
            let record = &mut records[slot];
            assert!(record[..127].iter().all(|word| *word == slot as u64), "a record is what was stored");
            if random.bool() {
                record[127] = record[127].wrapping_add(1);
            }
            operations += 1;
        }
    }
    operations as f64 / began.elapsed().as_secs_f64()
}

fn bfs(bytes: usize, time: Duration) -> f64 {
    let mut random = fastrand::Rng::with_seed(3);
    // 16 edges of 8 bytes a node, and what is kept of a node.
    let nodes = bytes / (16 * 8 + 16);
    let edges: Vec<u64> = (0..nodes * 16)
        .map(|_| {
            let (a, b) = (random.usize(..nodes), random.usize(..nodes));
            // The smaller of two: some nodes have far more edges than others.
            a.min(b) as u64
        })
        .collect();
    let began = Instant::now();
    let mut visited = 0u64;
    let mut depth = vec![u32::MAX; nodes];
    while began.elapsed() < time {
        depth.fill(u32::MAX);
        let source = random.usize(..nodes);
        depth[source] = 0;
        let mut queue = VecDeque::from([source as u32]);
        while let Some(node) = queue.pop_front() {
            if visited.is_multiple_of(1 << 14) && began.elapsed() >= time {
                break;
            }
            for to in &edges[node as usize * 16..node as usize * 16 + 16] {
                visited += 1;
                if depth[*to as usize] == u32::MAX {
                    depth[*to as usize] = depth[node as usize] + 1;
                    queue.push_back(*to as u32);
                }
            }
        }
    }
    visited as f64 / began.elapsed().as_secs_f64()
}

fn stream(bytes: usize, time: Duration) -> f64 {
    let words = bytes / 8;
    let mut array: Vec<u64> = (0..words as u64).collect();
    let began = Instant::now();
    let (mut at, mut passed) = (0, 0u64);
    while began.elapsed() < time {
        let end = (at + (1 << 17)).min(words);
        array[at..end].iter_mut().for_each(|word| *word = word.wrapping_add(1 << 40));
        passed += (end - at) as u64;
        at = if end == words { 0 } else { end };
    }
    let rate = passed as f64 / began.elapsed().as_secs_f64();
    let sum: u64 = array.iter().map(|word| word >> 40).sum();
    assert_eq!(sum, passed, "no update was lost");
    rate
}

fn idle(bytes: usize, time: Duration) -> f64 {
    let memory = vec![3u8; bytes];
    std::thread::sleep(time);
    assert!(std::hint::black_box(&memory).iter().step_by(4096).all(|byte| *byte == 3));
    0.0
}
