//! The library without the command line: `keeper doctor`, `keeper swap MIB FILE COMMAND…`, `keeper alone MIB FILE COMMAND…` (the
//! kernel's swap with the same limit), `keeper preload MIB FILE COMMAND…`, `keeper nodes PID SECONDS INTERVALS [TRACKER]`.

use std::path::PathBuf;
use std::time::Duration;

use tiercel_pages::real::kept::Kept;
use tiercel_pages::real::preload::Preloaded;
use tiercel_pages::real::session::{Options, Session, Slow, Target};
use tiercel_pages::real::{daemon, doctor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    match word(0) {
        "doctor" => println!("{:#?}", doctor::look()),
        how @ ("swap" | "alone" | "preload") => {
            let fast = word(1).parse::<u64>()? << 20;
            let command = words[3..].iter().map(Into::into).collect();
            let options = Options {
                target: Target::Command(command),
                fast,
                slow: Slow::File(PathBuf::from(word(2))),
                slow_bytes: Some(fast * 4),
                overhead: 0.05,
                steer: how == "swap",
                output_aside: false,
            };
            let mut session: Box<dyn Kept> = match how {
                "preload" => Preloaded::open(&options)?,
                _ => Box::new(Session::open(options)?),
            };
            let status = loop {
                session.step(&mut |_| {});
                if let Some(status) = session.poll() {
                    break status;
                }
            };
            let state = session.state(0);
            eprintln!(
                "{how}: {:.1} s, keeper {:.2} %, {:?}, {status:?}",
                state.seconds,
                state.overhead * 100.0,
                state.counts
            );
            session.close()?;
        }
        "nodes" => {
            let mut daemon = daemon::Daemon::open(daemon::Options {
                pid: word(1).parse()?,
                nodes: None,
                fast: None,
                policy: "tiercel".to_string(),
                tracker: words.get(4).cloned(),
                interval: Duration::from_secs(word(2).parse()?),
                overhead: 0.05,
                rate: 1 << 30,
            })?;
            println!("keeper: watched through {}", daemon.tracker());
            for _ in 0..word(3).parse::<usize>()? {
                let Some(done) = daemon.step()? else { break };
                println!(
                    "keeper: {:.1} s   up {} pages, down {}, refused {}   hot {} KiB of which fast {} KiB   spans {}",
                    done.seconds,
                    done.promoted,
                    done.demoted,
                    done.refused,
                    done.hot >> 10,
                    done.hot_fast >> 10,
                    done.spans
                );
            }
        }
        _ => eprintln!(
            "keeper doctor | swap MIB FILE COMMAND… | alone MIB FILE COMMAND… | preload MIB FILE COMMAND… | nodes PID SECONDS INTERVALS [TRACKER]"
        ),
    }
    Ok(())
}
