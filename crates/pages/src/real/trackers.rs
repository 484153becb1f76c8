//! Ways to see which pages of another program are accessed, behind one trait; the best that a machine offers is taken.
//!
//! - *Idle pages*: `/sys/kernel/mm/page_idle/bitmap`, accessed bits of any page, by its frame.
//! - *DAMON*, on the program's addresses, where nobody else uses it: it samples by itself and tells regions.
//! - *Soft-dirty bits*: which pages were written since they were cleared; reads are not seen.
//!
//! Memory samples by perf, where a processor offers them, need hardware that this file could not be tried on: they are not
//! built. `clear_refs` says how much of a mapping was accessed and not where, which is too little to move pages by.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::KeepError;
use super::doctor::{self, Facility};

const PAGE: u64 = 4096;

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
    /// Forgets what was accessed so far on these pages.
    fn clear(&mut self, pages: &[u64]) -> io::Result<()>;
    /// Whether each of these pages was accessed since.
    fn accessed(&mut self, pages: &[u64]) -> io::Result<Vec<bool>>;
    /// What it knows by itself of all addresses, where it samples by itself.
    fn regions(&mut self) -> Option<io::Result<Vec<Seen>>> {
        None
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
    ["DAMON", "soft-dirty bits"].into_iter().find(|name| usable(name))
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
        Some(other) => Err(KeepError::NoTracker(format!(
            "there is no tracker `{other}`; there are idle, damon and soft-dirty"
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

    fn clear(&mut self, _pages: &[u64]) -> io::Result<()> {
        Ok(())
    }

    fn accessed(&mut self, pages: &[u64]) -> io::Result<Vec<bool>> {
        let regions = self.regions().unwrap_or_else(|| Ok(Vec::new()))?;
        let hot = |page: &u64| regions.iter().any(|seen| seen.range.contains(page) && seen.share > 0.0);
        Ok(pages.iter().map(hot).collect())
    }

    fn regions(&mut self) -> Option<io::Result<Vec<Seen>>> {
        Some(self.read())
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
        assert_eq!(best(&[there("idle pages", false)]), None);
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
