//! Every program under every policy on the machines of the paper and a two-tier one, simulated: a table of times.
//!
//! `sweep [PROGRAM…] [--variants] [--windows=N] [--machine=FILE]… [--systems=A,B]`: with parts of hm-keeper and of ours taken
//! away, longer or shorter than 100 intervals (1200 windows), on other machines, under some of the policies.

use tiercel_core::Machine;
use tiercel_pages::programs::{self, Size};
use tiercel_pages::sim::{memory_mode, setting, simulate};
use tiercel_pages::systems;
use tiercel_pages::tiers::Tiers;

fn main() {
    let variants = std::env::args().any(|argument| argument == "--variants");
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let shipped = [
        ("optane-4tier", include_str!("../../../machines/optane-4tier.toml")),
        ("optane-4tier-emulated", include_str!("../../../machines/optane-4tier-emulated.toml")),
        ("cxl", include_str!("../../../machines/cxl.toml")),
    ];
    let given = |what: &'static str| {
        std::env::args().filter_map(move |argument| argument.strip_prefix(what).map(str::to_string))
    };
    let mut machines: Vec<(String, String)> = given("--machine=")
        .map(|file| (file.clone(), std::fs::read_to_string(&file).expect("a machine file")))
        .collect();
    if machines.is_empty() {
        machines = shipped.map(|(name, text)| (name.to_string(), text.to_string())).to_vec();
    }
    let wanted: Vec<String> = given("--systems=")
        .flat_map(|list| list.split(',').map(str::to_string).collect::<Vec<_>>())
        .collect();
    let windows = std::env::args().find_map(|argument| argument.strip_prefix("--windows=")?.parse().ok());
    let size = Size { windows: windows.unwrap_or(Size::DEFAULT.windows), ..Size::DEFAULT };
    for program in programs::ALL.iter().filter(|p| only.is_empty() || only.iter().any(|o| o == p.name)) {
        let started = std::time::Instant::now();
        let recording = program.record(size);
        let touches: usize = recording.windows.iter().map(|window| window.len()).sum();
        println!(
            "{}: {} pages, {touches} touches, recorded in {:.1?}",
            program.name,
            recording.pages,
            started.elapsed()
        );
        for (name, text) in &machines {
            let tiers = Tiers::of(&Machine::parse(text).expect("a shipped machine"), size.scale);
            println!("  {name}");
            let mut first = 0.0;
            let list: Vec<_> = systems::ALL
                .iter()
                .chain(systems::VARIANTS.iter().filter(|_| variants || !wanted.is_empty()))
                .filter(|system| wanted.is_empty() || wanted.iter().any(|name| name == system.name))
                .collect();
            for system in list {
                let setting = setting(recording.pages, size.scale, 0.05, 0);
                let started = std::time::Instant::now();
                let out = if system.is_cache() {
                    memory_mode(&recording, &tiers, 8.0)
                } else {
                    simulate(&recording, &tiers, system.keeper(setting, &tiers), setting, 8.0)
                };
                if first == 0.0 {
                    first = out.ns;
                }
                let all: f64 = out.accesses.iter().sum();
                let shares: Vec<String> =
                    out.accesses.iter().map(|a| format!("{:.0}", a / all * 100.0)).collect();
                let last = out.points.last();
                println!(
                    "    {:<26} {:>7.2} ms {:>6.1} % prof {:>4.1} % stall {:>4.1} % tiers {:<14} up {:>6} down {:>6} KiB {} spans {:.0} R {:.2} P {:.2} placed {:.2} ({:.1?})",
                    system.name,
                    out.ns / 1e6,
                    out.ns / first * 100.0,
                    out.profile_ns / out.ns * 100.0,
                    out.stall_ns / out.ns * 100.0,
                    shares.join("/"),
                    out.promoted >> 10,
                    out.demoted >> 10,
                    out.intervals,
                    out.spans,
                    last.map_or(0.0, |p| p.recall),
                    last.map_or(0.0, |p| p.precision),
                    last.map_or(0.0, |p| p.placed),
                    started.elapsed()
                );
            }
        }
    }
}
