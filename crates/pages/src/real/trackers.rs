//! Ways to see which pages of another program are accessed, behind one trait; the best that a machine offers is taken.
//!
//! - *Idle pages*: `/sys/kernel/mm/page_idle/bitmap`, accessed bits of any page, by its frame.
//! - *DAMON*, on the program's addresses, where nobody else uses it: it samples by itself and tells regions.
//! - *NUMA hint faults*: where the kernel's own balancing is on, the addresses at which the program faults.
//! - *Soft-dirty bits*: which pages were written since they were cleared; reads are not seen.
//! - *clear_refs*: how much of each mapping was accessed, not where: mappings are told apart, parts of them are not.
//!
//! Memory samples by perf, where a processor offers them, need hardware that this file could not be tried on: they are not
//! built. `PAGEMAP_SCAN` says which pages came back from a slow tier (`session.rs`); of pages that stay in the memory of
//! another process it says nothing, because write protection is the process's own to ask for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::KeepError;
use super::calls::{self, kinds};
use super::doctor::{self, Facility};
use super::faults::Faults;

const PAGE: u64 = 4096;

/// Pages of a huge page.
const HUGE: u64 = 512;

/// A run of addresses, and in which share of looks it was seen accessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The addresses.
    pub range: Range<u64>,
    /// Which share of looks found them accessed.
    pub share: f64,
}

/// Sees which pages of a process are accessed.
pub trait Tracker {
    /// Its name, as the doctor says it.
    fn name(&self) -> &'static str;
    /// An interval begins; whether it samples by itself, so that [`Tracker::regions`] has the answer at the end, or is asked
    /// about pages with the other two.
    fn begin(&mut self) -> io::Result<bool> {
        Ok(false)
    }
    /// Forgets what was accessed so far on these pages.
    fn clear(&mut self, _pages: &[u64]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether each of these pages was accessed since.
    fn accessed(&mut self, _pages: &[u64]) -> io::Result<Vec<bool>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// What it knows of all addresses since the interval began, in order.
    fn regions(&mut self) -> io::Result<Vec<Seen>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The frame of the first page of a range, where the kernel tells.
pub fn frame(range: &Range<u64>, pid: u32) -> Option<u64> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let entry = entry(&pagemap, range.start).ok()?;
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

fn entry(pagemap: &File, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    pagemap.read_exact_at(&mut bytes, address / PAGE * 8)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Whether the kernel keeps soft-dirty bits: one that does marks a page that was just written.
pub fn soft_dirty_works() -> bool {
    let mut here = vec![0u8; 2 * PAGE as usize];
    let address = (here.as_ptr() as u64).next_multiple_of(PAGE);
    let offset = (address - here.as_ptr() as u64) as usize;
    std::hint::black_box(&mut here)[offset] = 1;
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return false };
    let marked = entry(&pagemap, address).is_ok_and(|entry| entry >> 55 & 1 == 1);
    std::hint::black_box(&here);
    marked
}

/// The name of the tracker that will be used, of those that a machine offers.
pub fn best(facilities: &[Facility]) -> Option<&'static str> {
    let usable = |name: &str| facilities.iter().any(|facility| facility.name == name && facility.usable);
    if usable("idle pages") && usable("page frames in pagemap") {
        return Some("idle pages");
    }
    let rest = ["DAMON", "NUMA hint faults", "soft-dirty bits", "clear_refs"];
    rest.into_iter().find(|name| usable(name))
}

/// The best tracker for a process, or the one that is named.
pub fn open(pid: u32, named: Option<&str>) -> Result<Box<dyn Tracker>, KeepError> {
    let report = doctor::look();
    let name = match named {
        Some(name) => Some(name),
        None => best(&report.facilities),
    };
    let failed = |what: &str| {
        let what = what.to_string();
        move |error| KeepError::System { what, error }
    };
    match name {
        Some("idle pages" | "idle") => IdlePages::open(pid)
            .map(|t| Box::new(t) as Box<dyn Tracker>)
            .map_err(failed("opening the idle bitmap")),
        Some("DAMON" | "damon") => {
            if doctor::damon_in_use() != Some(false) {
                return Err(KeepError::NoTracker("DAMON is absent, or in use by somebody else".to_string()));
            }
            Damon::open(pid).map(|t| Box::new(t) as Box<dyn Tracker>).map_err(failed("setting DAMON up"))
        }
        Some("soft-dirty bits" | "soft-dirty") => SoftDirty::open(pid)
            .map(|t| Box::new(t) as Box<dyn Tracker>)
            .map_err(failed("opening clear_refs")),
        Some("NUMA hint faults" | "hint-faults") => {
            if !doctor::balances() {
                let why =
                    "NUMA balancing is off, so the kernel makes no pages inaccessible to see who wants them";
                return Err(KeepError::NoTracker(why.to_string()));
            }
            HintFaults::open(pid)
                .map(|t| Box::new(t) as Box<dyn Tracker>)
                .map_err(failed("listening to page faults"))
        }
        Some("clear_refs" | "clear-refs") => ClearRefs::open(pid)
            .map(|t| Box::new(t) as Box<dyn Tracker>)
            .map_err(failed("opening clear_refs")),
        Some(other) => Err(KeepError::NoTracker(format!(
            "there is no tracker `{other}`; there are idle, damon, hint-faults, soft-dirty and clear-refs"
        ))),
        None => {
            let all = report.facilities.iter().filter(|f| !f.usable);
            Err(KeepError::NoTracker(
                all.map(|f| format!("{}: {}", f.name, f.detail)).collect::<Vec<_>>().join("; "),
            ))
        }
    }
}

/// Accessed bits through the idle bitmap.
struct IdlePages {
    pid: u32,
    bitmap: File,
}

/// The page map of a process as it is now: one that stays open is that of the memory before the last exec.
fn pagemap(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/pagemap"))
}

impl IdlePages {
    fn open(pid: u32) -> io::Result<IdlePages> {
        let bitmap = File::options().read(true).write(true).open("/sys/kernel/mm/page_idle/bitmap")?;
        pagemap(pid)?;
        Ok(IdlePages { pid, bitmap })
    }

    fn frame(pagemap: &File, page: u64) -> io::Result<Option<u64>> {
        let entry = entry(pagemap, page)?;
        let frame = entry & ((1 << 55) - 1);
        Ok((entry >> 63 == 1 && frame != 0).then_some(frame))
    }
}

impl Tracker for IdlePages {
    fn name(&self) -> &'static str {
        "idle pages"
    }

    fn clear(&mut self, pages: &[u64]) -> io::Result<()> {
        let pagemap = pagemap(self.pid)?;
        for page in pages {
            if let Some(frame) = IdlePages::frame(&pagemap, *page)? {
                self.bitmap.write_all_at(&(1u64 << (frame % 64)).to_ne_bytes(), frame / 64 * 8)?;
            }
        }
        Ok(())
    }

    fn accessed(&mut self, pages: &[u64]) -> io::Result<Vec<bool>> {
        let pagemap = pagemap(self.pid)?;
        let look = |page: &u64| -> io::Result<bool> {
            let Some(frame) = IdlePages::frame(&pagemap, *page)? else { return Ok(false) };
            let mut word = [0; 8];
            self.bitmap.read_exact_at(&mut word, frame / 64 * 8)?;
            Ok(u64::from_ne_bytes(word) >> (frame % 64) & 1 == 0)
        };
        pages.iter().map(look).collect()
    }
}

/// Which pages were written.
struct SoftDirty {
    pid: u32,
}

impl SoftDirty {
    fn open(pid: u32) -> io::Result<SoftDirty> {
        fs::write(format!("/proc/{pid}/clear_refs"), "4")?;
        pagemap(pid)?;
        Ok(SoftDirty { pid })
    }
}

impl Tracker for SoftDirty {
    fn name(&self) -> &'static str {
        "soft-dirty bits"
    }

    fn clear(&mut self, _pages: &[u64]) -> io::Result<()> {
        // All of the process at once: there is no other way.
        fs::write(format!("/proc/{}/clear_refs", self.pid), "4")
    }

    fn accessed(&mut self, pages: &[u64]) -> io::Result<Vec<bool>> {
        let pagemap = pagemap(self.pid)?;
        pages.iter().map(|page| Ok(entry(&pagemap, *page)? >> 55 & 1 == 1)).collect()
    }
}

/// DAMON on the addresses of one process.
struct Damon {
    folder: std::path::PathBuf,
}

impl Damon {
    fn open(pid: u32) -> io::Result<Damon> {
        let all = Path::new("/sys/kernel/mm/damon/admin/kdamonds");
        let set = |path: &Path, text: &str| fs::write(path, text);
        set(&all.join("nr_kdamonds"), "1")?;
        // From here on what was set up goes when this is dropped.
        let damon = Damon { folder: all.join("0") };
        set(&damon.folder.join("contexts/nr_contexts"), "1")?;
        let context = damon.folder.join("contexts/0");
        set(&context.join("operations"), "vaddr")?;
        set(&context.join("targets/nr_targets"), "1")?;
        set(&context.join("targets/0/pid_target"), &pid.to_string())?;
        let attributes = context.join("monitoring_attrs");
        set(&attributes.join("intervals/sample_us"), "5000")?;
        set(&attributes.join("intervals/aggr_us"), "100000")?;
        set(&attributes.join("intervals/update_us"), "1000000")?;
        // The most first: the least may not be above it.
        set(&attributes.join("nr_regions/max"), "2000")?;
        set(&attributes.join("nr_regions/min"), "200")?;
        set(&context.join("schemes/nr_schemes"), "1")?;
        set(&context.join("schemes/0/action"), "stat")?;
        set(&context.join("schemes/0/apply_interval_us"), "0").or_else(|error| {
            // Older kernels have no such file.
            if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
        })?;
        let pattern = context.join("schemes/0/access_pattern");
        for (what, most) in
            [("sz", u64::MAX), ("nr_accesses", u64::from(u32::MAX)), ("age", u64::from(u32::MAX))]
        {
            set(&pattern.join(what).join("min"), "0")?;
            set(&pattern.join(what).join("max"), &most.to_string())?;
        }
        set(&damon.folder.join("state"), "on")?;
        Ok(damon)
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        // As it was found: nothing set up, nothing on.
        let _ = fs::write(self.folder.join("state"), "off");
        if let Some(all) = self.folder.parent() {
            let _ = fs::write(all.join("nr_kdamonds"), "0");
        }
    }
}

impl Tracker for Damon {
    fn name(&self) -> &'static str {
        "DAMON"
    }

    fn begin(&mut self) -> io::Result<bool> {
        // What was sampled before is asked for and dropped.
        self.read().map(|_| true)
    }

    fn regions(&mut self) -> io::Result<Vec<Seen>> {
        self.read()
    }
}

impl Damon {
    fn read(&self) -> io::Result<Vec<Seen>> {
        let mut state = File::options().write(true).open(self.folder.join("state"))?;
        state.seek(SeekFrom::Start(0))?;
        state.write_all(b"update_schemes_tried_regions")?;
        let folder = self.folder.join("contexts/0/schemes/0/tried_regions");
        let number = |path: std::path::PathBuf| -> io::Result<u64> {
            let mut text = String::new();
            File::open(path)?.read_to_string(&mut text)?;
            text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
        };
        let mut seen = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let at = entry.path();
            let range = number(at.join("start"))?..number(at.join("end"))?;
            // 20 samples an aggregation.
            seen.push(Seen { range, share: (number(at.join("nr_accesses"))? as f64 / 20.0).min(1.0) });
        }
        seen.sort_by_key(|seen| seen.range.start);
        Ok(seen)
    }
}

/// Faults that the kernel's balancing provokes.
struct HintFaults {
    pid: u32,
    faults: Faults,
    /// How often each page faulted, less with every interval that has passed.
    heat: BTreeMap<u64, f64>,
}

impl HintFaults {
    fn open(pid: u32) -> io::Result<HintFaults> {
        Ok(HintFaults { pid, faults: Faults::listen(pid)?, heat: BTreeMap::new() })
    }
}

impl Tracker for HintFaults {
    fn name(&self) -> &'static str {
        "NUMA hint faults"
    }

    fn begin(&mut self) -> io::Result<bool> {
        self.faults.refresh();
        Ok(true)
    }

    fn regions(&mut self) -> io::Result<Vec<Seen>> {
        self.heat.values_mut().for_each(|heat| *heat /= 2.0);
        self.heat.retain(|_, heat| *heat > 0.1);
        let mut pages: BTreeMap<u64, f64> = BTreeMap::new();
        // What was lost is like what was seen: pages that fault most are lost most, and seen most.
        self.faults.drain(&mut |address| *pages.entry(address / PAGE).or_default() += 1.0);
        // A huge page faults once, wherever it is touched.
        let pagemap = pagemap(self.pid)?;
        let mut huge: BTreeMap<u64, bool> = BTreeMap::new();
        for (page, count) in pages {
            let block = page / HUGE * HUGE;
            let addresses = block * PAGE..(block + HUGE) * PAGE;
            let is_huge = *huge.entry(block).or_insert_with(|| {
                calls::scan(&pagemap, addresses, kinds::HUGE).is_ok_and(|runs| !runs.is_empty())
            });
            let all = if is_huge { block..block + HUGE } else { page..page + 1 };
            all.for_each(|page| *self.heat.entry(page).or_default() += count);
        }
        let most = self.heat.values().copied().fold(1.0, f64::max);
        let mut seen: Vec<Seen> = Vec::new();
        for (page, heat) in &self.heat {
            let (start, share) = (page * PAGE, heat / most);
            match seen.last_mut() {
                Some(last) if last.range.end == start && last.share == share => last.range.end += PAGE,
                _ => seen.push(Seen { range: start..start + PAGE, share }),
            }
        }
        Ok(seen)
    }
}

/// How much of each mapping was accessed.
struct ClearRefs {
    pid: u32,
}

impl ClearRefs {
    fn open(pid: u32) -> io::Result<ClearRefs> {
        fs::write(format!("/proc/{pid}/clear_refs"), "1")?;
        Ok(ClearRefs { pid })
    }
}

impl Tracker for ClearRefs {
    fn name(&self) -> &'static str {
        "clear_refs"
    }

    fn begin(&mut self) -> io::Result<bool> {
        // All of the process at once: there is no other way.
        fs::write(format!("/proc/{}/clear_refs", self.pid), "1").map(|()| true)
    }

    fn regions(&mut self) -> io::Result<Vec<Seen>> {
        Ok(referenced(&fs::read_to_string(format!("/proc/{}/smaps", self.pid))?))
    }
}

/// What `/proc/PID/smaps` says was accessed of every mapping.
fn referenced(smaps: &str) -> Vec<Seen> {
    let mut seen: Vec<Seen> = Vec::new();
    let mut there = 0.0;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        let kib = second.and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
        let number = |text| u64::from_str_radix(text, 16).ok();
        match first {
            "Rss:" => there = kib,
            "Referenced:" => {
                if let Some(last) = seen.last_mut()
                    && there > 0.0
                {
                    last.share = (kib / there).min(1.0);
                }
            }
            _ => {
                let range = first.split_once('-').and_then(|(a, b)| Some(number(a)?..number(b)?));
                seen.extend(range.map(|range| Seen { range, share: 0.0 }));
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_what_is_there_is_taken() {
        let there =
            |name: &'static str, usable| Facility { name, usable, detail: String::new(), missing: None };
        assert_eq!(best(&[there("DAMON", true), there("soft-dirty bits", true)]), Some("DAMON"));
        assert_eq!(best(&[there("DAMON", false), there("soft-dirty bits", true)]), Some("soft-dirty bits"));
        assert_eq!(best(&[there("idle pages", true), there("DAMON", true)]), Some("DAMON"), "without frames");
        let faults =
            [there("clear_refs", true), there("soft-dirty bits", true), there("NUMA hint faults", true)];
        assert_eq!(best(&faults), Some("NUMA hint faults"));
        assert_eq!(best(&faults[..1]), Some("clear_refs"), "better than nothing");
        assert_eq!(best(&[there("idle pages", false)]), None);
    }

    #[test]
    fn mappings_that_are_accessed_are_told_from_those_that_are_not() {
        let text = "7f00-8f00 rw-p 00000000 00:00 0 \nRss: 8 kB\nReferenced: 2 kB\nVmFlags: rd\n\
                    9000-a000 rw-p 00000000 00:00 0 [heap]\nRss: 0 kB\nReferenced: 0 kB\n";
        let seen = |range, share| Seen { range, share };
        assert_eq!(referenced(text), [seen(0x7f00..0x8f00, 0.25), seen(0x9000..0xa000, 0.0)]);
        // Large enough for mappings of their own, with other memory between them.
        let mut parts = [vec![1u8; 40 << 20], vec![1u8; 36 << 20], vec![1u8; 40 << 20]];
        let mut tracker = match ClearRefs::open(std::process::id()) {
            Ok(tracker) => tracker,
            Err(error) => return eprintln!("skipped: clear_refs: {error}"),
        };
        assert!(tracker.begin().expect("our own"));
        parts[1].iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 2);
        let regions = tracker.regions().expect("our own");
        let share = |memory: &Vec<u8>| {
            let at = memory.as_ptr() as u64 + memory.len() as u64 / 2;
            regions.iter().find(|seen| seen.range.contains(&at)).expect("a mapping").share
        };
        // Side by side the kernel may have made one mapping of them, which then was accessed in part.
        assert!(share(&parts[1]) > 0.15, "{regions:?}");
        assert!(share(&parts[0]) < 0.95 && share(&parts[2]) < 0.95, "{regions:?}");
    }

    #[test]
    fn pages_that_fault_often_are_hotter_than_those_that_did_so_once() {
        let mut tracker = match HintFaults::open(std::process::id()) {
            Ok(tracker) => tracker,
            Err(error) => return eprintln!("skipped: page faults as events: {error}"),
        };
        tracker.heat = BTreeMap::from([(1, 8.0), (2, 8.0), (3, 2.0), (9, 0.15)]);
        assert!(tracker.begin().expect("our own"));
        let seen = tracker.regions().expect("our own");
        let short: Vec<_> = seen.iter().filter(|seen| seen.range.end <= 10 * PAGE).collect();
        assert_eq!(short.len(), 2, "what has not faulted for long is forgotten: {short:?}");
        assert_eq!(short[0].range, PAGE..3 * PAGE);
        assert!(
            short[0].share == 4.0 * short[1].share && short[1].range == (3 * PAGE..4 * PAGE),
            "{short:?}"
        );
    }

    #[test]
    fn an_unknown_tracker_is_named() {
        let Err(error) = open(std::process::id(), Some("crystal ball")) else { panic!("there is none") };
        assert!(error.to_string().contains("crystal ball"), "{error}");
    }

    #[test]
    fn written_pages_are_seen_where_the_kernel_marks_them() {
        if !soft_dirty_works() {
            eprintln!("skipped: this kernel keeps no soft-dirty bits");
            return;
        }
        let mut here = vec![0u8; 64 * PAGE as usize];
        let first = (here.as_ptr() as u64).next_multiple_of(PAGE);
        let mut tracker = SoftDirty::open(std::process::id()).expect("our own");
        tracker.clear(&[]).expect("our own");
        let offset = (first - here.as_ptr() as u64) as usize;
        std::hint::black_box(&mut here)[offset + 3 * PAGE as usize] = 1;
        let pages: Vec<u64> = (0..8).map(|at| first + at * PAGE).collect();
        assert!(tracker.accessed(&pages).expect("our own")[3]);
    }
}
