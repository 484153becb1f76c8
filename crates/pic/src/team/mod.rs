//! Several machines on one simulation: a team of ranks, each with a run of neighbouring layers of tiles.
//!
//! What a rank needs of others is said once ([`Halo`]): the fields that its particles see and its solver looks at, and the tiles that
//! deposit into its layers or send it particles. Ranks add up currents and take in particles in the order in which one rank
//! alone does, so a team of any size comes to the same bits.
//!
//! Links are MPI's (`mpi.rs`), or channels between threads of one process, which tests use.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::error::PicError;

pub mod mpi;

/// How ranks reach each other. Messages between two ranks arrive in the order in which they were sent.
pub trait Link: Send {
    /// The number of this rank.
    fn rank(&self) -> usize;
    /// How many ranks there are.
    fn size(&self) -> usize;
    /// Sends bytes to one rank and receives bytes from another, both at once; either may be nobody.
    fn swap(&mut self, to: Option<(usize, &[u8])>, from: Option<usize>) -> Result<Vec<u8>, String>;
}

/// The ranks that work on a simulation, seen from one of them.
#[derive(Default)]
pub struct Team {
    link: Option<Box<dyn Link>>,
}

impl Team {
    /// One rank with nobody beside it.
    pub fn alone() -> Team {
        Team::default()
    }

    /// Ranks that reach each other.
    pub fn of(link: Box<dyn Link>) -> Team {
        Team { link: Some(link).filter(|link| link.size() > 1) }
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.rank())
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.link.as_ref().map_or(1, |link| link.size())
    }

    /// Whether this is the rank that speaks: it writes files, and has the results.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// The layers of a rank.
    pub fn layers_of(&self, rank: usize, layers: usize) -> Range<usize> {
        rank * layers / self.size()..(rank + 1) * layers / self.size()
    }

    /// The layers of this rank.
    pub fn own(&self, layers: usize) -> Range<usize> {
        self.layers_of(self.rank(), layers)
    }

    /// Whose layer it is.
    pub fn owner(&self, layer: usize, layers: usize) -> usize {
        (0..self.size()).find(|rank| self.layers_of(*rank, layers).contains(&layer)).unwrap_or(0)
    }

    /// Sends bytes to one rank and receives from another, both at once.
    pub fn swap(&mut self, to: Option<(usize, &[u8])>, from: Option<usize>) -> Result<Vec<u8>, PicError> {
        let Some(link) = &mut self.link else { return Ok(Vec::new()) };
        link.swap(to, from).map_err(|why| PicError::Team { why })
    }

    /// What every rank has to say, in the order of ranks.
    pub fn all(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, PicError> {
        let (rank, size) = (self.rank(), self.size());
        let mut all = vec![Vec::new(); size];
        all[rank] = bytes.to_vec();
        for step in 1..size {
            let (to, from) = ((rank + step) % size, (rank + size - step) % size);
            all[from] = self.swap(Some((to, bytes)), Some(from))?;
        }
        Ok(all)
    }

    /// Whether it is so on all ranks.
    pub fn agree(&mut self, yes: bool) -> Result<bool, PicError> {
        Ok(self.all(&[u8::from(yes)])?.iter().all(|one| one == &[1]))
    }

    /// Whether it is so for the rank that leads.
    pub fn led(&mut self, yes: bool) -> Result<bool, PicError> {
        Ok(self.all(&[u8::from(yes)])?.first().is_some_and(|one| one == &[1]))
    }

    /// Numbers added up over ranks, in their order.
    pub fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>, PicError> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut sums = vec![0.0; numbers.len()];
        for one in self.all(&bytes)? {
            for (sum, number) in sums.iter_mut().zip(one.chunks_exact(8)) {
                *sum += f64::from_le_bytes(number.try_into().unwrap_or_default());
            }
        }
        Ok(sums)
    }
}

/// Which layers of others each rank needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Halo {
    /// By rank.
    needs: Vec<Vec<usize>>,
}

impl Halo {
    /// From what each of the ranks needs, its own layers included.
    pub fn new(team: &Team, layers: usize, needs: impl Fn(Range<usize>) -> Vec<usize>) -> Halo {
        let of = |rank: usize| {
            let own = team.layers_of(rank, layers);
            let mut needs = needs(own.clone());
            needs.retain(|layer| !own.contains(layer));
            needs.sort_unstable();
            needs.dedup();
            needs
        };
        Halo { needs: (0..team.size()).map(of).collect() }
    }

    /// What a rank needs of the layers of another.
    pub fn between(&self, team: &Team, layers: usize, to: usize, from: usize) -> Vec<usize> {
        let theirs = team.layers_of(from, layers);
        let needs = self.needs.get(to).into_iter().flatten();
        needs.copied().filter(|layer| theirs.contains(layer)).collect()
    }

    /// Whether a rank needs a layer of another.
    pub fn needs(&self, rank: usize, layer: usize) -> bool {
        self.needs.get(rank).is_some_and(|needs| needs.contains(&layer))
    }
}

/// A link of channels between the threads of one process.
pub struct Channels {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

impl Channels {
    /// So many ranks that reach each other.
    pub fn ranks(size: usize) -> Vec<Channels> {
        let mut all: Vec<Channels> =
            (0..size).map(|rank| Channels { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..size {
            for to in 0..size {
                let (sender, receiver) = channel();
                all[from].to.push(sender);
                all[to].from.push(receiver);
            }
        }
        all
    }
}

impl Link for Channels {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn swap(&mut self, to: Option<(usize, &[u8])>, from: Option<usize>) -> Result<Vec<u8>, String> {
        if let Some((to, bytes)) = to {
            self.to[to].send(bytes.to_vec()).map_err(|_| format!("rank {to} is gone"))?;
        }
        from.map_or(Ok(Vec::new()), |from| self.from[from].recv().map_err(|_| format!("rank {from} is gone")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_one_owner() {
        for size in 1..5 {
            let link = Channels::ranks(size).swap_remove(size - 1);
            let team = Team::of(Box::new(link));
            assert_eq!((team.rank(), team.size(), team.leads()), (size - 1, size, size == 1));
            for layers in size..9 {
                let all: Vec<usize> = (0..size).flat_map(|rank| team.layers_of(rank, layers)).collect();
                assert_eq!(all, (0..layers).collect::<Vec<_>>());
                for layer in 0..layers {
                    assert!(team.layers_of(team.owner(layer, layers), layers).contains(&layer));
                }
            }
        }
    }

    #[test]
    fn ranks_hear_all_of_each_other() {
        let threads: Vec<_> = Channels::ranks(3)
            .into_iter()
            .map(|link| {
                std::thread::spawn(move || {
                    let mut team = Team::of(Box::new(link));
                    let rank = team.rank();
                    let heard = team.all(&vec![rank as u8; rank]).expect("all are there");
                    assert_eq!(heard, [vec![], vec![1], vec![2, 2]]);
                    assert_eq!(team.sum(&[1.0, rank as f64]).expect("numbers"), [3.0, 3.0]);
                    assert!(team.agree(true).expect("all") && !team.agree(rank != 1).expect("all"));
                    assert!(team.led(rank == 0).expect("all") && !team.led(rank != 0).expect("all"));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no rank panics"));
    }
}
