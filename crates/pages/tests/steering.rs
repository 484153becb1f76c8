//! A command that execs is still seen: what of the memory that it has now goes to the slow tier and comes back. What is kept
//! is this very file, run again (`kept_program`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tiercel_pages::real::KeepError;
use tiercel_pages::real::session::{Options, Session, Slow, Target};

/// How long it may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes over 64 MiB until it is killed.
#[test]
fn kept_program() {
    if std::env::var_os("TIERCEL_KEPT").is_none() {
        return;
    }
    let begun = Instant::now();
    let mut memory = vec![1u8; 64 << 20];
    while begun.elapsed() < 2 * PATIENCE {
        std::hint::black_box(&mut memory)
            .iter_mut()
            .step_by(4096)
            .for_each(|byte| *byte = byte.wrapping_add(1));
    }
}

#[test]
fn memory_is_seen_through_an_exec() {
    let folder = std::env::var_os("TIERCEL_TEST_DISK").map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("tiercel-steering-{}", std::process::id()));
    let here = std::env::current_exe().expect("a program has a path");
    // The shell is seen before it becomes the program.
    let shell = format!("sleep 0.7; TIERCEL_KEPT=1 exec '{}' kept_program --exact", here.display());
    let words = ["sh", "-c", &shell];
    let opened = Session::open(Options {
        target: Target::Command(words.map(Into::into).to_vec()),
        fast: 32 << 20,
        slow: Slow::File(file.clone()),
        slow_bytes: Some(192 << 20),
        overhead: 0.05,
        steer: true,
        output_aside: false,
    });
    let mut session = match opened {
        Ok(session) => session,
        Err(error @ (KeepError::NoGroups | KeepError::MaySwap)) => return eprintln!("skipped: {error}"),
        Err(
            error @ (KeepError::Group { .. }
            | KeepError::SwapFile { .. }
            | KeepError::DiskFull { .. }
            | KeepError::Limit { .. }),
        ) => {
            return eprintln!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let until = Instant::now() + PATIENCE;
    let seen = |session: &Session| {
        let counts = session.state(0).counts;
        counts.went_out > 0 && counts.came_back > 0
    };
    while !seen(&session) && session.poll().is_none() && Instant::now() < until {
        session.step(&mut |_| {});
    }
    let state = session.state(72);
    session.kill();
    while session.poll().is_none() && Instant::now() < until + PATIENCE {
        session.step(&mut |_| {});
    }
    let closed = session.close();
    assert!(state.counts.went_out > 0 && state.counts.came_back > 0, "{state:?}");
    assert!(state.map.iter().any(|part| part[1] > 0), "the map has it: {state:?}");
    assert_eq!(closed, Ok(()));
    assert!(!file.exists());
}
