//! The simulated world: a virtual clock and no bytes.
//!
//! Bytes flow like water. Every link moves one copy at a time, in order, as the copy engine of the real world does;
//! a copy takes the link's latency, then its bytes flow at the link's bandwidth or at what its tiers have left
//! (`share.rs`); where the link has a spacing, the latency passes while the copy stands in line. A kernel that runs meanwhile draws on the same tiers as far as the machine's contention says, and
//! slows down with them. Kernels beside others run one after the other, and draw on the tiers as well. Nothing is random: the same calls give the same times.
//!
//! | file | what |
//! |---|---|
//! | `lib.rs` | the virtual clock, links and copies |
//! | `share.rs` | the bandwidths of tiers among all that want them |
//! | `times.rs` | how long a kernel takes alone: the trait that planners ask, too, and a roofline |
//! | `world.rs` | what a world must offer: a backend that also computes |

mod share;
pub mod times;
pub mod world;

use std::collections::{BTreeMap, VecDeque};

use tiercel_core::{
    Backend, Bytes, CopyError, CopyOrder, Link, Locked, Machine, Nanos, Place, Span, Ticket, TierId,
};
use tiercel_workload::Tensor;

use times::{scaled, traffic};

pub use times::{EMULATED_OVERLAP, KernelTime, Roofline, together};
pub use world::{Work, World};

use share::{Demand, Shares};

/// One copy that has not ended.
#[derive(Debug)]
struct Transfer {
    lane: (TierId, TierId),
    after: Vec<Ticket>,
    /// When it had nothing to wait for any more; known where links have a spacing.
    ready: f64,
    /// When its lane took it up; of use only then.
    began: f64,
    /// How often it takes the link's latency.
    pages: u64,
    /// When its first byte may move; set when its lane takes it up.
    flows_at: Option<f64>,
    remaining: f64,
}

/// The copies of one link.
#[derive(Debug, Default)]
struct Lane {
    /// Those that have not ended, in order.
    queue: VecDeque<Ticket>,
    /// The one that it works on.
    at_work: Option<Ticket>,
}

/// Which copies have not ended: a row of marks from the oldest such copy on, so that asking takes no search.
#[derive(Debug, Default)]
struct Open {
    oldest: u64,
    marks: VecDeque<bool>,
}

impl Open {
    /// Notes that the next copy has been ordered; tickets are counted from 1.
    fn begin(&mut self, ticket: Ticket) {
        if self.marks.is_empty() {
            self.oldest = ticket.0;
        }
        self.marks.push_back(true);
    }

    fn end(&mut self, ticket: Ticket) {
        if let Some(mark) = ticket.0.checked_sub(self.oldest).and_then(|at| self.marks.get_mut(at as usize)) {
            *mark = false;
        }
        while self.marks.front() == Some(&false) {
            self.marks.pop_front();
            self.oldest += 1;
        }
    }

    fn contains(&self, ticket: Ticket) -> bool {
        ticket.0.checked_sub(self.oldest).and_then(|at| self.marks.get(at as usize)).copied().unwrap_or(false)
    }
}

/// A kernel that runs.
struct Running {
    /// When it began.
    began: f64,
    /// How much of it is left: 1 when it begins.
    remaining: f64,
    /// How long it takes undisturbed, in nanoseconds.
    alone: f64,
    demand: Demand,
}

/// The simulated world.
pub struct Sim {
    machine: Machine,
    times: Box<dyn KernelTime>,
    /// Nanoseconds since the start.
    clock: f64,
    tickets: u64,
    transfers: BTreeMap<Ticket, Transfer>,
    open: Open,
    /// Copies by link; a lane works on one of them at a time.
    lanes: BTreeMap<(TierId, TierId), Lane>,
    /// When copies that have ended were on their lanes, until they are forgotten.
    spans: BTreeMap<Ticket, Span>,
    /// Kernels beside others, in order; the first of them runs.
    detached: VecDeque<(Ticket, Running)>,
    shares: Shares,
    /// Whether a link has a spacing.
    spaced: bool,
    /// The tiers of a kernel's operands; kept to be used again.
    tiers: Vec<TierId>,
}

impl Sim {
    /// A world of this machine in which kernels take the time of a plain roofline.
    pub fn new(machine: Machine) -> Sim {
        Sim::with_times(machine, Roofline)
    }

    /// A world of this machine with kernel times from elsewhere.
    pub fn with_times(machine: Machine, times: impl KernelTime + 'static) -> Sim {
        Sim {
            shares: Shares::new(&machine),
            spaced: machine.links.iter().any(|link| link.spacing.is_some()),
            machine,
            times: Box::new(times),
            clock: 0.0,
            tickets: 0,
            transfers: BTreeMap::new(),
            open: Open::default(),
            lanes: BTreeMap::new(),
            spans: BTreeMap::new(),
            detached: VecDeque::new(),
            tiers: Vec::new(),
        }
    }

    /// The speed of a copy that has its tiers for itself.
    fn speed(&self, (from, to): (TierId, TierId)) -> f64 {
        match self.machine.link(from, to) {
            Some(link) => link.speed().0,
            None => self.machine.tier(from).read.0.min(self.machine.tier(to).write.0),
        }
    }

    /// Lets every idle lane take up the first of its copies that has nothing to wait for.
    fn take_up(&mut self) {
        let Sim { machine, transfers, open, lanes, clock, .. } = self;
        for (ends, lane) in lanes.iter_mut().filter(|(_, lane)| lane.at_work.is_none()) {
            let ready =
                |ticket: &&Ticket| transfers[*ticket].after.iter().all(|earlier| !open.contains(*earlier));
            if let Some(next) = lane.queue.iter().find(ready).copied() {
                lane.at_work = Some(next);
                let link = machine.link(ends.0, ends.1);
                let transfer = transfers.get_mut(&next).expect("a queued copy exists");
                let times = |each: Nanos| each.0 as f64 * transfer.pages as f64;
                let latency = times(link.map_or(Nanos::ZERO, |link| link.latency));
                let flows_at = match link.and_then(|link| link.spacing) {
                    None => *clock + latency,
                    Some(spacing) => (*clock + times(spacing)).max(transfer.ready + latency),
                };
                transfer.began = *clock;
                transfer.flows_at = Some(flows_at);
            }
        }
    }

    /// Lets time pass until the next thing happens. Returns whether that is the kernel's end.
    fn advance(&mut self, kernel: Option<&mut Running>) -> bool {
        self.take_up();
        let clock = self.clock;
        let mut at_work: Vec<Ticket> = self.lanes.values().filter_map(|lane| lane.at_work).collect();
        at_work.sort_unstable();
        let begins = |ticket: &Ticket| self.transfers[ticket].flows_at.unwrap_or(clock);
        let (flowing, coming): (Vec<Ticket>, Vec<Ticket>) =
            at_work.into_iter().partition(|ticket| begins(ticket) <= clock);
        let copies = flowing.iter().map(|ticket| {
            let lane = self.transfers[ticket].lane;
            Demand::copy(&self.machine, lane.0, lane.1, self.speed(lane), copying(&self.machine, lane))
        });
        let running =
            || kernel.as_deref().into_iter().chain(self.detached.front().map(|(_, detached)| detached));
        let demands: Vec<Demand> = copies.chain(running().map(|k| k.demand.clone())).collect();
        let shares = self.shares.divide(&demands);
        // Bytes a nanosecond for each copy, and the moment at which each would end at that rate.
        let flows: Vec<(Ticket, f64, f64)> = flowing
            .iter()
            .zip(&shares)
            .map(|(ticket, share)| {
                let transfer = &self.transfers[ticket];
                let rate = self.speed(transfer.lane) * share / 1e9;
                (*ticket, rate, clock + transfer.remaining / rate)
            })
            .collect();
        // The same for the kernel, and for the first of those beside it.
        let paces: Vec<(f64, f64)> = running()
            .zip(&shares[flows.len()..])
            .map(|(k, share)| (share / k.alone, clock + k.remaining / (share / k.alone)))
            .collect();
        // The next moment at which a rate changes.
        let beginnings = coming.iter().map(begins);
        let ends = flows.iter().map(|(.., end)| *end).chain(paces.iter().map(|(_, end)| *end));
        let next = beginnings.chain(ends).fold(f64::INFINITY, f64::min);
        assert!(next.is_finite(), "nothing moves and something waits");
        self.clock = next;
        for (ticket, rate, end) in flows {
            if end <= next {
                self.end(ticket);
            } else if let Some(transfer) = self.transfers.get_mut(&ticket) {
                transfer.remaining -= (next - clock) * rate;
            }
        }
        let mut paces = paces.into_iter();
        let mut go_on = |running: Option<&mut Running>| {
            let Some((running, (rate, end))) = running.and_then(|running| Some((running, paces.next()?)))
            else {
                return false;
            };
            running.remaining -= (next - clock) * rate;
            end <= next
        };
        let ended = go_on(kernel);
        if go_on(self.detached.front_mut().map(|(_, detached)| detached)) {
            self.end_aside();
        }
        ended
    }

    /// The first of the kernels beside others has ended; the next begins.
    fn end_aside(&mut self) {
        if let Some((ticket, detached)) = self.detached.pop_front() {
            self.open.end(ticket);
            if self.spaced {
                self.make_ready(ticket);
            }
            self.spans.insert(ticket, Span { began: whole(detached.began), ended: whole(self.clock) });
        }
        if let Some((_, next)) = self.detached.front_mut() {
            next.began = self.clock;
        }
    }

    /// A kernel that is about to run on so many cores, and would take so much longer than alone.
    fn running(&mut self, work: &Work<'_>, longer: f64, cores: f64) -> Running {
        let alone = if work.cached {
            let time = self.times.cached(&self.machine, work.kernel, work.traffic);
            scaled(time, work.kernel.factor)
        } else {
            self.tiers.clear();
            self.tiers.extend(work.slots.iter().map(|slot| work.places[*slot].0.tier));
            self.times.chosen(&self.machine, work.kernel, &self.tiers)
        };
        let alone = alone.0.max(1) as f64 + longer;
        let demand = Demand::kernel(&self.machine, work.traffic, alone / 1e9, cores);
        Running { began: self.clock, remaining: 1.0, alone, demand }
    }

    fn end(&mut self, ticket: Ticket) {
        if let Some(transfer) = self.transfers.remove(&ticket) {
            let lane = self.lanes.get_mut(&transfer.lane).expect("a copy has a lane");
            lane.at_work = lane.at_work.filter(|other| *other != ticket);
            if let Some(at) = lane.queue.iter().position(|other| *other == ticket) {
                lane.queue.remove(at);
            }
            self.open.end(ticket);
            if self.spaced {
                self.make_ready(ticket);
            }
            if transfer.flows_at.is_some() {
                let span = Span { began: whole(transfer.began), ended: whole(self.clock) };
                self.spans.insert(ticket, span);
            }
        }
    }

    /// Notes which copies have nothing to wait for any more now that this one has ended.
    fn make_ready(&mut self, ended: Ticket) {
        for transfer in self.transfers.values_mut().filter(|transfer| transfer.after.contains(&ended)) {
            transfer.after.retain(|ticket| *ticket != ended);
            transfer.ready = self.clock;
        }
    }

    /// Moves the clock to a whole nanosecond, so that times read off it add up.
    fn tick(&mut self) {
        self.clock = (self.clock - 1e-3).ceil().max(0.0);
    }
}

impl Backend for Sim {
    fn copy(&mut self, order: CopyOrder<'_>) -> Ticket {
        self.copy_paged(order, 1)
    }

    fn copy_paged(&mut self, order: CopyOrder<'_>, pages: u64) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let lane = (order.from.tier, order.to.tier);
        let after = order.after.iter().copied().filter(|t| self.open.contains(*t)).collect();
        let remaining = order.bytes.0.max(1) as f64;
        let ready = self.clock;
        let transfer = Transfer { lane, after, ready, pages, began: 0.0, flows_at: None, remaining };
        self.transfers.insert(ticket, transfer);
        self.open.begin(ticket);
        self.lanes.entry(lane).or_default().queue.push_back(ticket);
        ticket
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, CopyError> {
        Ok(!self.open.contains(ticket))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), CopyError> {
        while self.open.contains(ticket) {
            self.advance(None);
        }
        self.tick();
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.end(ticket);
    }

    fn span(&self, ticket: Ticket) -> Option<Span> {
        self.spans.get(&ticket).copied()
    }

    fn forget(&mut self, ticket: Ticket) {
        self.spans.remove(&ticket);
    }

    fn now(&self) -> Nanos {
        whole(self.clock)
    }
}

/// A moment of the clock in whole nanoseconds.
fn whole(clock: f64) -> Nanos {
    Nanos((clock - 1e-3).ceil().max(0.0) as u64)
}

impl Locked for Sim {
    type Key = ();
}

impl Sim {
    /// Runs a kernel, in a world where no bytes are touched.
    pub fn compute(&mut self, work: &Work<'_>) {
        let mut running = self.running(work, 0.0, self.machine.cores().unwrap_or(0.0));
        while !self.advance(Some(&mut running)) {}
        self.tick();
    }

    /// Starts a kernel that runs beside those that follow, or runs it where the machine has nothing to run it beside them.
    pub fn launch(&mut self, work: &Work<'_>) -> Option<Ticket> {
        let Some(detached) = self.machine.detached else {
            self.compute(work);
            return None;
        };
        let bytes: Bytes = work.traffic.iter().map(|t| t.read + t.write).sum();
        let running =
            self.running(work, bytes.0 as f64 / detached.bandwidth.0 * 1e9, detached.threads.into());
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.open.begin(ticket);
        self.detached.push_back((ticket, running));
        Some(ticket)
    }
}

impl World for Sim {
    unsafe fn key() {}

    unsafe fn load(&mut self, _tensor: &Tensor, _place: Place) -> Result<(), String> {
        Ok(())
    }

    unsafe fn compute(&mut self, work: &Work<'_>) -> Result<(), String> {
        Sim::compute(self, work);
        Ok(())
    }

    unsafe fn launch(&mut self, work: &Work<'_>) -> Result<Option<Ticket>, String> {
        Ok(Sim::launch(self, work))
    }

    fn measured(&self) -> bool {
        false
    }
}

/// The shares of their undisturbed speeds that a kernel and copies beside it get: the kernel's first.
///
/// The kernel's reads, then writes, lie on `tiers` and it takes `alone` undisturbed; each copy is a pair of tiers.
pub fn shares(
    machine: &Machine,
    kernel: &tiercel_workload::Kernel,
    tiers: &[TierId],
    alone: Nanos,
    copies: &[(TierId, TierId)],
) -> Vec<f64> {
    let seconds = alone.0.max(1) as f64 / 1e9;
    let cores = machine.cores().unwrap_or(0.0);
    let mut demands = vec![Demand::kernel(machine, &traffic(kernel, tiers), seconds, cores)];
    demands.extend(copies.iter().map(|&(from, to)| {
        let speed = machine.link(from, to).map_or(0.0, |link| link.speed().0);
        Demand::copy(machine, from, to, speed, copying(machine, (from, to)))
    }));
    Shares::new(machine).divide(&demands)
}

/// The cores that are busy with a copy; with more threads than there are cores, all of them.
fn copying(machine: &Machine, (from, to): (TierId, TierId)) -> f64 {
    machine.link(from, to).map_or(0.0, Link::cores).min(machine.cores().unwrap_or(0.0))
}

/// The share of all cores that are busy with a copy between two tiers; none where an engine moves the bytes, or where the
/// machine does not say how many cores it has.
pub fn cores_taken(machine: &Machine, between: (TierId, TierId)) -> f64 {
    machine.cores().map_or(0.0, |cores| copying(machine, between) / cores)
}

/// How long it takes to copy `bytes` between two tiers with nothing else going on.
pub fn copy_time(machine: &Machine, from: TierId, to: TierId, bytes: Bytes) -> Nanos {
    let mut sim = Sim::new(machine.clone());
    let place = |tier| Place { tier, offset: Bytes::ZERO };
    let ticket = sim.copy(CopyOrder { from: place(from), to: place(to), bytes, after: &[] });
    sim.wait(ticket).expect("simulated copies do not fail");
    sim.now()
}
