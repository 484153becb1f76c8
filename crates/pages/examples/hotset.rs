//! A program with a known hot set, for tests on machines with several nodes: 48 MiB on the node that is named, of which 6 MiB
//! are written and read all the time; every second it says where the hot pages are.
//!
//! `hotset NODE SECONDS`

use std::time::{Duration, Instant};

use tiercel_pages::real::calls;

const PAGE: usize = 4096;
const ALL: usize = 12_288;
const HOT: std::ops::Range<usize> = 5_000..6_536;

fn main() {
    let words: Vec<i32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [node, seconds] = words[..] else { panic!("hotset NODE SECONDS") };
    let mut memory = vec![1u8; (ALL + 1) * PAGE];
    let first = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let offset = first - memory.as_ptr() as usize;
    let pages: Vec<u64> = (0..ALL).map(|page| (first + page * PAGE) as u64).collect();
    let own = std::process::id();
    let placed = calls::move_pages(own, &pages, Some(&vec![node; ALL])).expect("the node is there");
    let there = placed.iter().filter(|status| **status == node).count();
    println!("hotset: {there} of {ALL} pages on node {node}, {} of them hot", HOT.len());
    let began = Instant::now();
    let mut next = Duration::from_secs(1);
    let mut sum = 0u64;
    while began.elapsed() < Duration::from_secs(seconds as u64) {
        for page in HOT {
            let at = offset + page * PAGE;
            memory[at] = memory[at].wrapping_add(1);
            sum += u64::from(memory[at + 64]);
        }
        if began.elapsed() >= next {
            next += Duration::from_secs(1);
            let status = calls::move_pages(own, &pages, None).expect("our own pages");
            let on = |node: i32, range: std::ops::Range<usize>| {
                status[range].iter().filter(|s| **s == node).count()
            };
            println!(
                "hotset: {} s: {} of {} hot pages on node 0, {} of all; {} of all where they were",
                began.elapsed().as_secs(),
                on(0, HOT),
                HOT.len(),
                on(0, 0..ALL),
                on(node, 0..ALL)
            );
        }
    }
    println!("hotset: done {sum}");
}
