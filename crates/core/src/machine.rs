//! The machine: its tiers and the links between them, as a person writes them in a TOML file.
//!
//! Fast and slow are positions in the list, never types: tier 0 is the fastest. Bandwidths of links are curves by
//! number of copy threads, because copying into persistent memory peaks at few threads while copying out of it
//! scales (AutoTM section 2.2). How much a kernel and the copies beside it slow each other down is a figure of
//! the machine, so that no simulation assumes that copies are free.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backing::Backing;
use crate::kernels::{FileKernels, Kernels};
use crate::link::{Bus, CopyThreads, Link};
use crate::units::{Bandwidth, Bytes, Nanos, TierId, UnitError, text};

/// The unit that heaps hand out memory in, unless a tier asks for more.
pub const GRAIN: Bytes = Bytes(64);

/// The unit for machines with a tier that is a file: direct I/O moves whole pages between page-aligned places.
pub const FILE_GRAIN: Bytes = Bytes(4096);

/// What a core moves of plain memory in a second, about: how busy a thread is that copies more slowly because its memory is
/// slowed down to stand in for another.
const CORE_COPIES: Bandwidth = Bandwidth(10e9);

/// Tiers of memory and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// A name to call the machine by.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// How much kernels and concurrent copies slow each other down where they meet on a tier: at 1 they share its
    /// bandwidth like any two users, at 0 they never notice each other.
    pub contention: f64,
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The directed links between them.
    pub links: Vec<Link>,
    /// Buses and ports that several links go through.
    pub buses: Vec<Bus>,
    /// What the processor can do.
    pub compute: Compute,
    /// A second processor for kernels that need not be waited for, where there is one.
    pub detached: Option<Detached>,
    /// How kernels use memory and processor, where that is known better than from the bandwidths alone.
    pub kernels: Option<Kernels>,
}

/// What the processor of a machine can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Cores, or whatever runs in parallel.
    pub threads: u32,
    /// Floating-point operations a second that a well-written kernel reaches, in units of 10⁹.
    pub gflops: f64,
    /// Of a machine that was measured while other programs were busy: the share of its processors that they had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Whether nobody stated these figures: then times of kernels are no more than a guess.
    #[serde(skip)]
    pub assumed: bool,
}

impl Compute {
    /// A processor with these figures.
    pub fn new(threads: u32, gflops: f64) -> Compute {
        Compute { threads, gflops, others: None, assumed: false }
    }
}

/// What runs kernels beside others: cores that are left over, as those of the copy threads, or the host of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detached {
    /// The bytes a second that it works through: what it takes longer for them than the processor itself.
    #[serde(with = "text")]
    pub bandwidth: Bandwidth,
    /// How many of the machine's cores it is: they are taken from the other kernels; none where it has a processor of its own.
    #[serde(default, skip_serializing_if = "is_none")]
    pub threads: u32,
}

fn is_none(threads: &u32) -> bool {
    *threads == 0
}

impl Default for Compute {
    fn default() -> Compute {
        Compute { assumed: true, ..Compute::new(1, 50.0) }
    }
}

/// One kind of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// A name to call the tier by.
    pub name: String,
    /// How much of it there is.
    #[serde(with = "text")]
    pub capacity: Bytes,
    /// How fast all users together can read it.
    #[serde(with = "text")]
    pub read: Bandwidth,
    /// How fast all users together can write it.
    #[serde(with = "text")]
    pub write: Bandwidth,
    /// A limit on reads and writes together, where that is less than their sum.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub combined: Option<Bandwidth>,
    /// How much of its two directions it does at once, where they are in each other's way: the shares of their full speeds
    /// that they reach together. At 2 neither notices the other, at 1 they take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<f64>,
    /// The time until the first byte arrives.
    #[serde(default, with = "text")]
    pub latency: Nanos,
    /// Whether kernels may work on it directly.
    #[serde(default = "yes")]
    pub computable: bool,
    /// Whether kernels that want some rows of what lies there may reach them, although they cannot work on it all: as a GPU
    /// reads and writes the host's memory over the bus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows: bool,
    /// Whether the hardware can use it as a cache of slower memory, as memory mode does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub caches: bool,
    /// The memory behind it when the machine is this very one.
    #[serde(default)]
    pub backing: Backing,
    /// What a gigabyte (10⁹ bytes) costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_gb: Option<f64>,
}

impl Tier {
    /// Whether a kernel may work here on so much of something of this size.
    pub fn serves(&self, used: Bytes, size: Bytes) -> bool {
        self.computable || (self.rows && used < size)
    }

    /// The seconds that it takes at least to read so many bytes and to write so many others meanwhile.
    pub fn flow(&self, read: f64, written: f64) -> f64 {
        let (read_time, write_time) = (read / self.read.0, written / self.write.0);
        let both = self.combined.map_or(0.0, |both| (read + written) / both.0);
        let turns = self.duplex.map_or(0.0, |duplex| (read_time + write_time) / duplex);
        read_time.max(write_time).max(both).max(turns)
    }
}

fn yes() -> bool {
    true
}

/// What is wrong with a machine file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MachineError {
    /// The text is not TOML, or not TOML of this form.
    #[error("machine file: {0}")]
    Form(String),
    /// A figure makes no sense.
    #[error("machine `{machine}`: {what}")]
    Figure {
        /// The machine's name.
        machine: String,
        /// What makes no sense, and where.
        what: String,
    },
}

/// The file as written: links name their tiers, curves are tables by thread count.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    source: String,
    #[serde(default = "full")]
    contention: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute: Option<Compute>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detached: Option<Detached>,
    #[serde(rename = "tier")]
    tiers: Vec<Tier>,
    #[serde(rename = "link", default)]
    links: Vec<FileLink>,
    #[serde(rename = "bus", default, skip_serializing_if = "Vec::is_empty")]
    buses: Vec<Bus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernels: Option<FileKernels>,
}

fn full() -> f64 {
    1.0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    from: String,
    to: String,
    #[serde(default, with = "text")]
    latency: Nanos,
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    spacing: Option<Nanos>,
    threads: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bus: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    busy: Option<f64>,
    bandwidth: BTreeMap<String, String>,
}

impl Machine {
    /// Reads a machine from its TOML form.
    pub fn parse(toml: &str) -> Result<Machine, MachineError> {
        let file: File = toml::from_str(toml).map_err(|e| MachineError::Form(e.to_string()))?;
        let mut machine = Machine {
            name: file.name.clone(),
            source: file.source.clone(),
            contention: file.contention,
            compute: file.compute.unwrap_or_default(),
            detached: file.detached,
            tiers: file.tiers.clone(),
            links: Vec::new(),
            buses: file.buses.clone(),
            kernels: None,
        };
        machine.check_tiers()?;
        let wrong = |what: String| MachineError::Figure { machine: file.name.clone(), what };
        let names = file.tiers.iter().map(|t| t.name.as_str());
        machine.kernels = file.kernels.map(|k| k.read(names)).transpose().map_err(wrong)?;
        let tier = |name: &str| {
            let found = file.tiers.iter().position(|t| t.name == name);
            found.map(|i| TierId(i as u8)).ok_or_else(|| {
                let known: Vec<&str> = file.tiers.iter().map(|t| t.name.as_str()).collect();
                wrong(format!("a link names the tier `{name}`; the tiers are {}", known.join(", ")))
            })
        };
        let bus = |name: &String| {
            file.buses.iter().position(|bus| bus.name == *name).ok_or_else(|| {
                wrong(format!("a link is on the bus `{name}`, and there is no [[bus]] of that name"))
            })
        };
        for link in &file.links {
            let given = link.busy;
            let mut curve = Vec::new();
            for (threads, speed) in &link.bandwidth {
                let at = format!("link {} → {}", link.from, link.to);
                let threads: u32 = threads
                    .parse()
                    .map_err(|_| wrong(format!("{at}: `{threads}` is no number of threads")))?;
                let speed: Bandwidth = speed.parse().map_err(|e| wrong(format!("{at}: {e}")))?;
                curve.push((threads, speed));
            }
            curve.sort_by_key(|(threads, _)| *threads);
            let (from, to) = (tier(&link.from)?, tier(&link.to)?);
            let (latency, spacing, threads) = (link.latency, link.spacing, link.threads);
            let (bus, busy) = (link.bus.as_ref().map(bus).transpose()?, link.busy.unwrap_or(0.0));
            let mut link = Link { from, to, latency, spacing, threads, curve, via: None, bus, busy };
            if given.is_none() {
                link.busy = machine.usual_busy(&link);
            }
            machine.links.push(link);
        }
        machine.check()?;
        machine.complete();
        Ok(machine)
    }

    /// Adds the links that the file leaves out: between tiers that are not neighbours, bytes go through those in
    /// between, at the speed of the slowest link on the way, and take from these links and tiers what any copy takes.
    fn complete(&mut self) {
        for distance in 2..self.tiers.len() as u8 {
            for low in 0..self.tiers.len() as u8 - distance {
                let (near, far) = (TierId(low), TierId(low + distance));
                for (from, to, via) in
                    [(near, far, TierId(low + distance - 1)), (far, near, TierId(low + distance - 1))]
                {
                    if self.link(from, to).is_some() {
                        continue;
                    }
                    let leg = |a, b| self.link(a, b).expect("shorter links are there");
                    let (first, second) = (leg(from, via), leg(via, to));
                    let slow = if first.speed().0 < second.speed().0 { first } else { second };
                    let latency = first.latency + second.latency;
                    let link = Link { from, to, latency, via: Some(via), bus: None, ..slow.clone() };
                    self.links.push(link);
                }
            }
        }
    }

    /// How busy the copy threads of a link are where nobody says: engines move what cannot be worked on in place (a GPU's
    /// host memory, disks); memory that is slowed down leaves its threads asleep most of the time; everything else is loads and
    /// stores.
    fn usual_busy(&self, link: &Link) -> f64 {
        let ends = [link.from, link.to].map(|tier| self.tier(tier));
        if ends.iter().any(|tier| !tier.computable) {
            0.0
        } else if ends.iter().any(|tier| tier.backing == Backing::Throttled) {
            (link.speed().0 / f64::from(link.threads.max(1)) / CORE_COPIES.0).min(1.0)
        } else {
            1.0
        }
    }

    /// The cores that kernels and copies share; `None` where nobody stated how many there are.
    pub fn cores(&self) -> Option<f64> {
        (!self.compute.assumed).then_some(f64::from(self.compute.threads))
    }

    /// The same machine with a number of copy threads for each link whose bytes cores move.
    pub fn with_copy_threads(mut self, threads: impl Fn(&Link) -> u32) -> Machine {
        for link in self.links.iter_mut().filter(|link| link.busy > 0.0) {
            link.threads = threads(link).max(1);
        }
        self
    }

    /// The same machine with those copy threads that somebody chose.
    pub fn staffed(mut self, chosen: &[CopyThreads]) -> Machine {
        for CopyThreads { from, to, threads } in chosen {
            let (from, to) = (self.tier_named(from), self.tier_named(to));
            let link = self.links.iter_mut().find(|l| Some(l.from) == from && Some(l.to) == to);
            if let Some(link) = link {
                link.threads = (*threads).max(1);
            }
        }
        self
    }

    /// The copy threads of every link whose bytes cores move that kernels could use; none where nobody stated how many cores
    /// there are.
    pub fn copy_threads(&self) -> Vec<CopyThreads> {
        let links = self.links.iter().filter(|link| link.busy > 0.0 && self.cores().is_some());
        let name = |tier: TierId| self.tier(tier).name.clone();
        let chosen =
            |link: &Link| CopyThreads { from: name(link.from), to: name(link.to), threads: link.threads };
        links.map(chosen).collect()
    }

    /// Writes the machine in its TOML form; `parse` reads it back the same.
    pub fn to_toml(&self) -> String {
        use text::Exact;
        // What goes through other tiers follows from the links that are there.
        let direct = self.links.iter().filter(|link| link.via.is_none());
        let links = direct.map(|link| FileLink {
            from: self.tier(link.from).name.clone(),
            to: self.tier(link.to).name.clone(),
            latency: link.latency,
            spacing: link.spacing,
            threads: link.threads,
            bus: link.bus.and_then(|bus| Some(self.buses.get(bus)?.name.clone())),
            busy: Some(link.busy).filter(|busy| *busy != self.usual_busy(link)),
            bandwidth: link.curve.iter().map(|(t, b)| (t.to_string(), b.exact())).collect(),
        });
        let file = File {
            name: self.name.clone(),
            source: self.source.clone(),
            contention: self.contention,
            compute: Some(self.compute).filter(|compute| !compute.assumed),
            detached: self.detached,
            tiers: self.tiers.clone(),
            links: links.collect(),
            buses: self.buses.clone(),
            kernels: self.kernels.as_ref().map(FileKernels::of),
        };
        toml::to_string(&file).expect("a machine is plain tables, strings and numbers")
    }

    /// Verifies every figure, so that nothing that uses the machine has to.
    pub fn check(&self) -> Result<(), MachineError> {
        self.check_tiers()?;
        self.check_links()
    }

    fn check_tiers(&self) -> Result<(), MachineError> {
        let wrong = |what: String| Err(MachineError::Figure { machine: self.name.clone(), what });
        if self.tiers.is_empty() || self.tiers.len() > 64 {
            return wrong(format!("{} tiers; a machine has 1 to 64", self.tiers.len()));
        }
        if !(0.0..=1.0).contains(&self.contention) {
            return wrong(format!("contention is {}; it lies between 0 and 1", self.contention));
        }
        if self.compute.threads == 0 || !(self.compute.gflops > 0.0 && self.compute.gflops.is_finite()) {
            return wrong("compute: threads and gflops must be above zero".to_string());
        }
        if self.compute.others.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return wrong("compute: others is a share between 0 and 1".to_string());
        }
        if self.detached.is_some_and(|detached| !speed_ok(detached.bandwidth)) {
            return wrong("detached: bandwidth must be above zero".to_string());
        }
        for (i, tier) in self.tiers.iter().enumerate() {
            let name = &tier.name;
            if self.tiers[..i].iter().any(|other| other.name == *name) {
                return wrong(format!("two tiers are called `{name}`"));
            }
            if tier.capacity < self.grain() {
                return wrong(format!(
                    "tier `{name}` has a capacity of {}; the least is {}",
                    tier.capacity,
                    self.grain()
                ));
            }
            for (what, speed) in
                [("read", Some(tier.read)), ("write", Some(tier.write)), ("combined", tier.combined)]
            {
                if speed.is_some_and(|b| !speed_ok(b)) {
                    return wrong(format!("tier `{name}`: {what} bandwidth must be above zero"));
                }
            }
            if let Some(duplex) = tier.duplex.filter(|d| !(*d > 0.0 && *d <= 2.0)) {
                return wrong(format!("tier `{name}`: duplex is {duplex}; it is above 0 and at most 2"));
            }
            if tier.computable && matches!(tier.backing, Backing::File(_)) {
                return wrong(format!(
                    "tier `{name}` is a file: kernels cannot work on it; write `computable = false`"
                ));
            }
            if tier.rows && matches!(tier.backing, Backing::File(_)) {
                return wrong(format!("tier `{name}` is a file: kernels cannot reach rows of it"));
            }
            if tier.price_per_gb.is_some_and(|p| !(p.is_finite() && p >= 0.0)) {
                return wrong(format!("tier `{name}`: price_per_gb must not be below zero"));
            }
        }
        if !self.tiers[0].computable {
            return wrong(format!("kernels cannot work on the fastest tier, `{}`", self.tiers[0].name));
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), MachineError> {
        let wrong = |what: String| Err(MachineError::Figure { machine: self.name.clone(), what });
        for (i, bus) in self.buses.iter().enumerate() {
            if !speed_ok(bus.bandwidth) {
                return wrong(format!("bus `{}`: bandwidth must be above zero", bus.name));
            }
            if self.buses[..i].iter().any(|other| other.name == bus.name) {
                return wrong(format!("two buses are called `{}`", bus.name));
            }
            if !self.links.iter().any(|link| link.bus == Some(i)) {
                return wrong(format!("no link is on the bus `{}`", bus.name));
            }
        }
        for (i, link) in self.links.iter().enumerate() {
            let at = self.link_name(link.from, link.to);
            if link.from == link.to {
                return wrong(format!("{at} leads nowhere"));
            }
            if self.links[..i].iter().any(|other| (other.from, other.to) == (link.from, link.to)) {
                return wrong(format!("{at} is there twice"));
            }
            if link.threads == 0 || link.curve.is_empty() || link.curve.iter().any(|(t, _)| *t == 0) {
                return wrong(format!("{at} needs at least one copy thread and one bandwidth"));
            }
            if let Some(spacing) = link.spacing.filter(|spacing| *spacing > link.latency) {
                return wrong(format!(
                    "{at}: a spacing of {spacing} is more than the latency, {}",
                    link.latency
                ));
            }
            if !(0.0..=1.0).contains(&link.busy) {
                return wrong(format!("{at}: busy is {}; it is a share between 0 and 1", link.busy));
            }
            if link.curve.iter().any(|(_, b)| !speed_ok(*b)) {
                return wrong(format!("{at}: bandwidth must be above zero"));
            }
            if link.bus.is_some_and(|bus| bus >= self.buses.len()) {
                return wrong(format!("{at} is on a bus that the machine does not have"));
            }
            let leg = |a, b| self.link(a, b).is_some();
            if link.via.is_some_and(|via| !leg(link.from, via) || !leg(via, link.to)) {
                return wrong(format!("{at} goes through a tier to which there is no link"));
            }
        }
        for pair in 0..self.tiers.len().saturating_sub(1) {
            let (a, b) = (TierId(pair as u8), TierId(pair as u8 + 1));
            for (from, to) in [(a, b), (b, a)] {
                if self.link(from, to).is_none() {
                    return wrong(format!("{} is missing", self.link_name(from, to)));
                }
            }
        }
        Ok(())
    }

    /// The tier with this id.
    pub fn tier(&self, id: TierId) -> &Tier {
        &self.tiers[id.index()]
    }

    /// Every tier's id, fastest first.
    pub fn tier_ids(&self) -> impl DoubleEndedIterator<Item = TierId> + ExactSizeIterator + use<> {
        (0..self.tiers.len() as u8).map(TierId)
    }

    /// The tier with this name.
    pub fn tier_named(&self, name: &str) -> Option<TierId> {
        self.tiers.iter().position(|t| t.name == name).map(|i| TierId(i as u8))
    }

    /// The slowest tier.
    pub fn slowest(&self) -> TierId {
        TierId(self.tiers.len() as u8 - 1)
    }

    /// The link from one tier to another.
    pub fn link(&self, from: TierId, to: TierId) -> Option<&Link> {
        self.links.iter().find(|l| (l.from, l.to) == (from, to))
    }

    /// Whether copies on a link go over others, or share a bus.
    pub fn shares_links(&self) -> bool {
        self.links.iter().any(|link| link.via.is_some() || link.bus.is_some())
    }

    /// The links that bytes really take from one tier to another, in order: more than one where they go through tiers in between.
    pub fn way(&self, from: TierId, to: TierId) -> Vec<&Link> {
        match self.link(from, to) {
            // A way through a tier is put together from shorter ones, so this ends.
            Some(Link { via: Some(via), .. }) => {
                let mut way = self.way(from, *via);
                way.extend(self.way(*via, to));
                way
            }
            Some(link) => vec![link],
            None => Vec::new(),
        }
    }

    /// The unit that every heap of this machine hands out memory in: a page where one tier is a file, so that
    /// bytes go between file and memory without a stop.
    pub fn grain(&self) -> Bytes {
        let file = self.tiers.iter().any(|t| matches!(t.backing, Backing::File(_)));
        if file { FILE_GRAIN } else { GRAIN }
    }

    /// The same machine with another capacity of one tier.
    pub fn with_capacity(mut self, tier: TierId, capacity: Bytes) -> Machine {
        self.tiers[tier.index()].capacity = capacity;
        self
    }

    fn link_name(&self, from: TierId, to: TierId) -> String {
        let name = |t: TierId| self.tiers.get(t.index()).map_or("?", |t| t.name.as_str());
        format!("link {} → {}", name(from), name(to))
    }
}

fn speed_ok(speed: Bandwidth) -> bool {
    speed.0.is_finite() && speed.0 > 0.0
}

/// The text form of an amount that may be absent.
pub(crate) mod optional {
    use super::*;

    pub fn serialize<S: Serializer, T: text::Exact>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.exact()),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err = UnitError>,
    {
        text::deserialize(from).map(Some)
    }
}
