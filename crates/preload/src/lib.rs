//! A library that is loaded into programs that nobody changes (`LD_PRELOAD`) and keeps them on less fast memory than they
//! have, with a file behind it, where the machine has no swap and none may be turned on.
//!
//! Pages are taken away with userfaultfd (`UFFDIO_MOVE`; Linux 6.11 for what it asks of mappings) and brought back when they are missed. The program's
//! allocator is not touched: what is large, private and without a file is found in `/proc`. The library's own threads are
//! unknown to the C library, have files of their own and use no heap, so that a program that closes all files, ends its
//! threads or blocks all signals does what it did. `tiercel-cli` compiles these files once more, without the standard
//! library, into the shared object that it carries ([`begin`] is called when that is loaded).
//!
//! | file | what |
//! |---|---|
//! | `begin.rs` | how it comes to life in a process, and in its children |
//! | `server.rs` | the thread that keeps a process |
//! | `faults.rs` | what the kernel tells: faults and events |
//! | `evict.rs` | taking pages away |
//! | `mappings.rs` | what is watched |
//! | `room.rs` | pages on their way to the file, and the thread that writes them |
//! | `streams.rs` | what comes next, what was passed |
//! | `table.rs`, `ranges.rs`, `space.rs` | the books: where pages are, what is watched, what of the file is free |
//! | `board.rs` | what keeper and programs know of one another |
//! | `area.rs`, `sys.rs` | memory and system calls without a C library |

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![no_std]

#[cfg(test)]
extern crate std;

mod area;
pub mod begin;
pub mod board;
mod evict;
mod faults;
mod mappings;
mod ranges;
mod room;
mod server;
mod space;
mod streams;
pub mod sys;
mod table;
