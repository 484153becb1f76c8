//! tmp
use std::time::Duration;
use tiercel_core::Bytes;
use tiercel_plan::Effort;
use tiercel_plan::layout::*;
#[path = "../tests/instances/mod.rs"]
mod instances;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let limit: f64 = args[1].parse().unwrap();
    let cap: Option<u64> = args[2].parse().ok();
    let seed: u64 = std::env::var("SEED").ok().map_or(0, |s| s.parse().unwrap());
    for f in &args[3..] {
        let table = if f.contains(':') {
            let parts: Vec<&str> = f.split(':').collect();
            let n: usize = parts[1].parse().unwrap();
            let s: u64 = parts.get(2).map_or(1, |s| s.parse().unwrap());
            let rows = match parts[0] {
                "random" => instances::random(s, n, 1.0),
                "brief" => instances::random(s, n, 0.001),
                "middle" => instances::random(s, n, 0.03),
                "train" => instances::training(s, n),
                "g" => instances::guillotine(s, n, 1 << 10),
                "f" => instances::even_cut(s, n, 1 << 10),
                "F" => instances::even_cut(s, n, 1 << 20),
                "G" => instances::guillotine(s, n, 1 << 20),
                "equal" => instances::requests(s, n),
                _ => panic!(),
            };
            rows.iter().map(|r| Buffer::new(r.0, r.1, Bytes(r.2))).collect::<Vec<_>>()
        } else {
            table::read(&std::fs::read(f).unwrap()).unwrap().buffers
        };
        let cap = if f.starts_with("g:") || f.starts_with("f:") {
            Some(1 << 10)
        } else if f.starts_with("G:") || f.starts_with("F:") {
            Some(1 << 20)
        } else {
            cap
        };
        let e = Effort { gap: 0.0, time: Duration::from_secs_f64(limit), seed };
        let t = std::time::Instant::now();
        let mut last = (0, 0);
        let v = std::env::var("V").is_ok();
        match pack_watched(&table, cap.map(Bytes), &e, &mut |p| {
            if v && last != (p.peak.0, p.proven.0) {
                println!(
                    "    {:.3}s peak {} bound {} gap {:.3}%",
                    p.time.as_secs_f64(),
                    p.peak.0,
                    p.proven.0,
                    100.0 * (p.peak.0 as f64 / p.proven.0 as f64 - 1.0)
                );
                last = (p.peak.0, p.proven.0);
            }
        }) {
            Ok(l) => {
                verify(&table, &l.offsets, Some(l.peak)).unwrap();
                println!(
                    "{f}: {} buffers peak {} bound {} gap {:.3}% optimal {} {:.3}s",
                    table.len(),
                    l.peak.0,
                    l.lower_bound.0,
                    100.0 * l.gap(),
                    l.is_optimal(),
                    t.elapsed().as_secs_f64()
                )
            }
            Err(LayoutError::DoesNotFit(e)) => println!(
                "{f}: FAIL {} {} {:.3}s",
                e.best.peak.0,
                e.best.lower_bound.0,
                t.elapsed().as_secs_f64()
            ),
            Err(e) => panic!("{e}"),
        }
    }
}
