//! The tiers of a machine as pages see them: how many pages each takes, what an access costs, how fast pages move.
//!
//! A machine file says nothing of sockets. Tiers whose names begin with `remote-` are those of the other socket, and what
//! is left of the name says which kind of memory they are; the policies that stay within a socket or within a kind
//! (Section 8.8.2) need no more.

use tiercel_core::{Machine, TierId};

/// The size of a page.
pub const PAGE: u64 = 4096;

/// A tier.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Its name in the machine file.
    pub name: String,
    /// How many pages it takes.
    pub pages: usize,
    /// What one access takes.
    pub latency_ns: f64,
    /// Bytes a nanosecond, reading.
    pub read: f64,
    /// Bytes a nanosecond, writing.
    pub write: f64,
    /// Which socket it belongs to, seen from the program: 0 is its own.
    pub socket: usize,
    /// Which kind of memory it is: 0 is the fastest.
    pub kind: usize,
}

/// All tiers, the fastest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    /// The tiers.
    pub list: Vec<Tier>,
    /// Bytes a nanosecond from one tier to another.
    pub copy: Vec<Vec<f64>>,
}

impl Tiers {
    /// The tiers of a machine that is `scale` times smaller, in what it holds and not in how fast it is.
    pub fn of(machine: &Machine, scale: u64) -> Tiers {
        let mut kinds: Vec<&str> = Vec::new();
        let mut list = Vec::new();
        for tier in &machine.tiers {
            let bare = tier.name.strip_prefix("remote-");
            let kind = bare.unwrap_or(&tier.name);
            let at = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            });
            list.push(Tier {
                name: tier.name.clone(),
                pages: (tier.capacity.0 / scale / PAGE) as usize,
                latency_ns: tier.latency.0 as f64,
                read: tier.read.0 / 1e9,
                write: tier.write.0 / 1e9,
                socket: usize::from(bare.is_some()),
                kind: at,
            });
        }
        let ids: Vec<TierId> = machine.tier_ids().collect();
        let speed = |from: TierId, to: TierId| {
            // Without a link of their own bytes go at the pace of the slower end.
            let ends = machine.tier(from).read.0.min(machine.tier(to).write.0);
            machine.link(from, to).map_or(ends, |link| link.speed().0.min(ends)) / 1e9
        };
        let copy = ids.iter().map(|from| ids.iter().map(|to| speed(*from, *to)).collect()).collect();
        Tiers { list, copy }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What copying a page takes.
    pub fn copy_ns(&self, from: u8, to: u8) -> f64 {
        PAGE as f64 / self.copy[from as usize][to as usize]
    }

    /// The tier of the same kind in the program's own socket.
    pub fn nearer_socket(&self, tier: u8) -> Option<u8> {
        let here = &self.list[tier as usize];
        let found = self.list.iter().position(|other| other.kind == here.kind && other.socket < here.socket);
        found.map(|at| at as u8)
    }

    /// The next faster kind in the same socket.
    pub fn faster_kind(&self, tier: u8) -> Option<u8> {
        let here = &self.list[tier as usize];
        let found =
            self.list.iter().position(|other| other.socket == here.socket && other.kind + 1 == here.kind);
        found.map(|at| at as u8)
    }

    /// The next slower kind in the same socket.
    pub fn slower_kind(&self, tier: u8) -> Option<u8> {
        let here = &self.list[tier as usize];
        let found =
            self.list.iter().position(|other| other.socket == here.socket && other.kind == here.kind + 1);
        found.map(|at| at as u8)
    }
}
