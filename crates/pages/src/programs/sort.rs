//! An external sort, after TeraSort: records of 100 bytes, sorted run by run in a buffer, then merged; job after job.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Recorder;

const RECORD: u64 = 100;
/// How many runs are merged.
const RUNS: usize = 16;

pub(super) fn run(recorder: &mut Recorder, bytes: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x736f_7274);
    let part = bytes * 47 / 100;
    let count = (part / RECORD) as usize;
    let input = recorder.room(part);
    let runs_at = recorder.room(part);
    let length = count.div_ceil(RUNS);
    let buffer = recorder.room(length as u64 * 16);
    recorder.stream_write(input, part);
    recorder.stream_write(runs_at, part);
    recorder.stream_write(buffer, length as u64 * 16);
    recorder.begin(80.0);
    let at = |base: u64, record: usize| base + record as u64 * RECORD;
    while !recorder.full() {
        let mut keys: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
        for (which, chunk) in keys.chunks_mut(length).enumerate() {
            let first = which * length;
            // Keys and where they come from go to the buffer, which is sorted with as many passes as a merge sort needs.
            recorder.stream_read(at(input, first), chunk.len() as u64 * RECORD);
            let passes = chunk.len().next_power_of_two().trailing_zeros() / 3 + 1;
            for _ in 0..passes {
                recorder.stream_read(buffer, chunk.len() as u64 * 16);
                recorder.stream_write(buffer, chunk.len() as u64 * 16);
            }
            let mut order: Vec<usize> = (0..chunk.len()).collect();
            order.sort_unstable_by_key(|record| chunk[*record]);
            for (to, from) in order.iter().enumerate() {
                recorder.read(at(input, first + from));
                recorder.stream_write(at(runs_at, first + to), RECORD);
            }
            chunk.sort_unstable();
            if recorder.full() {
                return;
            }
        }
        // All runs at once, back to where the input was.
        let mut heads: BinaryHeap<Reverse<(u64, usize, usize)>> =
            keys.chunks(length).enumerate().map(|(run, chunk)| Reverse((chunk[0], run, 0))).collect();
        let mut last = 0;
        for to in 0..count {
            let Some(Reverse((key, run, offset))) = heads.pop() else { break };
            assert!(key >= last, "the output is sorted");
            last = key;
            recorder.stream_read(at(runs_at, run * length + offset), RECORD);
            recorder.stream_write(at(input, to), RECORD);
            let next = run * length + offset + 1;
            if offset + 1 < length && next < count {
                heads.push(Reverse((keys[next], run, offset + 1)));
            }
            if recorder.full() {
                return;
            }
        }
    }
}
