//! What this machine offers for keeping pages: each facility, whether it is there, which privilege is missing for it, and
//! what will be used. Nothing is changed by asking; DAMON is not touched.

use std::fs::{self, File};
use std::path::Path;

use super::calls::{self, Advice, kinds};
use super::faults::Faults;
use super::{nodes, process, swapfile};

/// Something that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    /// Its name.
    pub name: &'static str,
    /// Whether it can be used now.
    pub usable: bool,
    /// What was found.
    pub detail: String,
    /// The privilege that is missing, where that is why.
    pub missing: Option<&'static str>,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// Everything that was asked for.
    pub facilities: Vec<Facility>,
    /// What will be used, in words.
    pub plan: Vec<String>,
}

/// A capability of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// CAP_SYS_PTRACE.
    Ptrace = 19,
    /// CAP_SYS_ADMIN.
    Admin = 21,
    /// CAP_SYS_NICE.
    Nice = 23,
    /// CAP_PERFMON.
    Perfmon = 38,
}

/// Whether this process has a capability.
pub fn has(capability: Capability) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits >> capability as u32 & 1 == 1
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

fn facility(name: &'static str, usable: bool, detail: impl Into<String>) -> Facility {
    Facility { name, usable, detail: detail.into(), missing: None }
}

fn needing(mut facility: Facility, capability: Capability, name: &'static str) -> Facility {
    if !has(capability) {
        facility.usable = false;
        facility.missing = Some(name);
    }
    facility
}

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// Whether the kernel makes pages inaccessible now and then to see who wants them.
pub fn balances() -> bool {
    text(BALANCING).is_some_and(|mode| mode != "0")
}

/// Whether DAMON is in use, by whoever.
pub fn damon_in_use() -> Option<bool> {
    let folder = Path::new("/sys/kernel/mm/damon/admin/kdamonds");
    if !folder.exists() {
        return None;
    }
    // Its thread says so even where its files do not.
    let threads = fs::read_dir("/proc").into_iter().flatten().flatten();
    let thread = threads.into_iter().any(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name.starts_with("kdamond.")
    });
    let set_up = text("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds").is_some_and(|count| count != "0");
    let stat = text("/sys/module/damon_stat/parameters/enabled").is_some_and(|enabled| enabled == "Y");
    Some(thread || set_up || stat)
}

fn swap() -> Vec<Facility> {
    let areas = swapfile::areas();
    let on = facility(
        "swap that is on",
        !areas.is_empty(),
        if areas.is_empty() {
            "none".to_string()
        } else {
            let list = areas
                .iter()
                .map(|a| format!("{} ({} of {} MiB used)", a.path.display(), a.used >> 20, a.bytes >> 20));
            list.collect::<Vec<_>>().join(", ")
        },
    );
    let file =
        facility("a swap file of our own", Path::new("/proc/swaps").exists(), "can be made and turned on");
    vec![on, needing(file, Capability::Admin, "CAP_SYS_ADMIN")]
}

fn groups() -> Facility {
    match process::memory_group(std::process::id()) {
        None => facility("memory cgroup", false, "no controller"),
        Some((folder, version)) => {
            let writable = !fs::metadata(&folder).map_or(true, |meta| meta.permissions().readonly());
            let mut found =
                facility("memory cgroup", writable, format!("version {version}, {}", folder.display()));
            if File::options().write(true).open(folder.join("cgroup.procs")).is_err() {
                found.usable = false;
                found.missing = Some("root, or a delegated group");
            }
            found
        }
    }
}

fn own_pages() -> Vec<Facility> {
    let here = vec![1u8; 1 << 16];
    let first = here.as_ptr() as u64 & !4095;
    let range = first..first + 4096;
    let advise = calls::process(std::process::id())
        .and_then(|own| calls::advise(&own, std::slice::from_ref(&range), Advice::WillNeed));
    let detail = match &advise {
        Ok(_) => "cold, page-out and will-need on other processes".to_string(),
        Err(error) => error.to_string(),
    };
    let advise = needing(
        facility("process_madvise", advise.is_ok(), detail),
        Capability::Nice,
        "CAP_SYS_NICE, and CAP_SYS_PTRACE across owners",
    );
    let scan =
        File::open("/proc/self/pagemap").and_then(|map| calls::scan(&map, range.clone(), kinds::PRESENT));
    let scan = match scan {
        Ok(_) => facility("PAGEMAP_SCAN", true, "which pages are in memory and which are swapped out"),
        Err(error) => facility("PAGEMAP_SCAN", false, error.to_string()),
    };
    let frames = super::trackers::frame(&range, std::process::id());
    let frames = match frames {
        Some(_) => facility("page frames in pagemap", true, "page_idle and kpageflags can be asked"),
        None => {
            needing(facility("page frames in pagemap", false, "hidden"), Capability::Admin, "CAP_SYS_ADMIN")
        }
    };
    drop(here);
    vec![advise, scan, frames]
}

fn trackers() -> Vec<Facility> {
    let events = Path::new("/sys/bus/event_source/devices");
    let picks = events.join("ibs_op").exists()
        || events.join("cpu/events/mem-loads").exists()
        || events.join("cpu_core/events/mem-loads").exists();
    let paranoid = text("/proc/sys/kernel/perf_event_paranoid").unwrap_or_else(|| "absent".into());
    let perf = facility(
        "perf memory samples",
        picks,
        if picks {
            format!("the processor picks accesses; perf_event_paranoid {paranoid}")
        } else {
            "this processor, or virtual machine, offers none".to_string()
        },
    );
    let perf = if picks { needing(perf, Capability::Perfmon, "CAP_PERFMON") } else { perf };
    let damon = match damon_in_use() {
        None => facility("DAMON", false, "not in this kernel"),
        Some(true) => facility("DAMON", false, "in use by somebody else: it is left alone"),
        Some(false) => needing(facility("DAMON", true, "free"), Capability::Admin, "root"),
    };
    let idle = Path::new("/sys/kernel/mm/page_idle/bitmap");
    let idle = facility(
        "idle pages",
        idle.exists(),
        if idle.exists() { "accessed bits of any page" } else { "not in this kernel" },
    );
    let dirty = super::trackers::soft_dirty_works();
    let dirty = facility(
        "soft-dirty bits",
        dirty,
        if dirty { "which pages were written" } else { "not in this kernel" },
    );
    let detail = match text(BALANCING) {
        None => "NUMA balancing is not in this kernel".to_string(),
        Some(mode) if !balances() => format!("NUMA balancing is off (mode {mode})"),
        Some(mode) => format!("balancing is on (mode {mode}), and moves pages by itself, too"),
    };
    let heard = Faults::listen(std::process::id());
    let hints = match &heard {
        Ok(_) => facility("NUMA hint faults", balances(), detail),
        Err(error) => {
            let refused = facility("NUMA hint faults", false, format!("{detail}; listening: {error}"));
            needing(refused, Capability::Perfmon, "CAP_PERFMON")
        }
    };
    let referenced = facility(
        "clear_refs",
        Path::new("/proc/self/clear_refs").exists(),
        "how much of a mapping was accessed, not where",
    );
    vec![perf, damon, idle, dirty, hints, referenced]
}

fn preload() -> Facility {
    match super::preload::usable() {
        Ok(()) => facility(
            "a preloaded library",
            true,
            "userfaultfd hears of forks and moves pages, /proc has mappings (Linux 6.11)",
        ),
        Err(error) => needing(
            facility("a preloaded library", false, error.to_string()),
            Capability::Ptrace,
            "root or CAP_SYS_PTRACE",
        ),
    }
}

/// Looks at this machine.
pub fn look() -> Report {
    let kernel = text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    let nodes = nodes::read();
    let list =
        nodes.iter().map(|node| format!("node {} ({} MiB, tier {})", node.id, node.bytes >> 20, node.rank));
    let numa = facility(
        "NUMA nodes with memory",
        nodes.len() > 1,
        if nodes.is_empty() {
            "one, of which the kernel says nothing".to_string()
        } else {
            list.collect::<Vec<_>>().join(", ")
        },
    );
    let mut facilities = vec![numa];
    facilities.extend(swap());
    facilities.push(groups());
    facilities.extend(own_pages());
    facilities.extend(trackers());
    facilities.push(preload());
    let usable = |name: &str| facilities.iter().any(|facility| facility.name == name && facility.usable);
    let mut plan = Vec::new();
    if nodes.len() > 1 {
        match super::trackers::best(&facilities) {
            Some(name) => plan.push(format!(
                "several nodes: pages are watched through {name} and moved with move_pages (tiercel keep --pid N)"
            )),
            None => plan.push("several nodes, but nothing says which pages are accessed".to_string()),
        }
    } else {
        plan.push("one node: nothing to move between nodes".to_string());
    }
    let limit = usable("memory cgroup");
    let advice = usable("process_madvise");
    let steered =
        if advice && usable("PAGEMAP_SCAN") { "steered by process_madvise" } else { "left to itself" };
    if usable("swap that is on") || usable("a swap file of our own") {
        let slow = if usable("a swap file of our own") { "file:/path" } else { "swap" };
        let holds = if limit {
            "a memory cgroup holds the limit"
        } else {
            "the keeper holds the limit of processes that run"
        };
        if limit || advice {
            plan.push(format!(
                "DRAM and a disk: {holds}, the kernel's swap moves the bytes, {steered} (tiercel keep --fast SIZE --slow {slow} -- COMMAND)"
            ));
        }
    }
    if usable("a preloaded library") {
        let when = if plan.len() > 1 { "where asked for" } else { "because no swap can be had" };
        plan.push(format!(
            "DRAM and a disk, {when}: a library in the program moves the bytes (tiercel keep --mechanism preload --fast SIZE --slow file:/path -- COMMAND)"
        ));
    }
    if plan.len() == 1 && nodes.len() <= 1 {
        plan.push(
            "no swap, none may be turned on, and no library can be preloaded: programs cannot be kept here"
                .to_string(),
        );
    }
    Report { kernel, facilities, plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_says_something_of_everything_and_changes_nothing() {
        // Others may turn swap on or off meanwhile; DAMON is only ever set up by whoever administers the machine.
        let damon = || text("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds");
        let before = damon();
        let report = look();
        assert!(report.facilities.len() > 10 && !report.plan.is_empty());
        for facility in &report.facilities {
            assert!(!facility.detail.is_empty(), "{}", facility.name);
            assert!(!facility.usable || facility.missing.is_none(), "{}", facility.name);
        }
        assert_eq!(before, damon());
    }
}
