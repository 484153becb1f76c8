//! A key-value store under YCSB's workload A: half reads, half updates, keys by a Zipf distribution, 1 KiB a record.
//!
//! Records lie in the order in which they were inserted, which says nothing of how popular they are; an index of buckets
//! leads to them, and every update is written to a log that runs in a circle.

use super::{LINE, Recorder, Zipf};

const RECORD: u64 = 1024;
const BUCKET: u64 = 16;

pub(super) fn run(recorder: &mut Recorder, bytes: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7374_6f72);
    let log_bytes = bytes / 32;
    let count = ((bytes - log_bytes) / (RECORD + 2 * BUCKET)) as usize;
    let records = recorder.room(count as u64 * RECORD);
    let buckets = (2 * count) as u64;
    let index = recorder.room(buckets * BUCKET);
    let log = recorder.room(log_bytes);
    // Which record has which key, and the sum that its value must have.
    let mut slot_of: Vec<u32> = (0..count as u32).collect();
    random.shuffle(&mut slot_of);
    let mut table = vec![u32::MAX; buckets as usize];
    let mut values = vec![0u64; count];
    let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    for (key, slot) in slot_of.iter().enumerate() {
        let mut at = hash(key as u64) % buckets;
        while table[at as usize] != u32::MAX {
            at = (at + 1) % buckets;
        }
        table[at as usize] = key as u32;
        values[*slot as usize] = key as u64;
    }
    recorder.stream_write(records, count as u64 * RECORD);
    recorder.stream_write(index, buckets * BUCKET);
    recorder.stream_write(log, log_bytes);
    recorder.begin(150.0);
    let zipf = Zipf::new(count, 0.99);
    let mut written = 0;
    while !recorder.full() {
        let key = zipf.draw(&mut random) as u32;
        let mut at = hash(u64::from(key)) % buckets;
        recorder.read(index + at * BUCKET);
        while table[at as usize] != key {
            let before = at * BUCKET / LINE;
            at = (at + 1) % buckets;
            if at * BUCKET / LINE != before {
                recorder.read(index + at * BUCKET);
            }
        }
        let slot = slot_of[key as usize];
        let place = records + u64::from(slot) * RECORD;
        if random.bool() {
            assert_eq!(values[slot as usize] % count as u64, u64::from(key), "a record is what was stored");
            recorder.read(place);
            recorder.stream_read(place + LINE, RECORD - LINE);
        } else {
            values[slot as usize] += count as u64;
            recorder.write(place);
            recorder.stream_write(place + LINE, RECORD - LINE);
            recorder.stream_write(log + written % (log_bytes - RECORD), RECORD);
            written += RECORD;
        }
    }
}
