//! The particles of one species in one tile: what is in their memory, who leaves and who arrives.
//!
//! They lie sorted by cell, and stay so: a pass takes cell after cell, adds those that have arrived, and puts back those
//! that stay. That is done in place: particles lie at one end of their memory and are put back at the other, so a pass
//! needs no second copy and no sorting of its own. Who leaves goes to the outbox for the tile it enters.

use crate::batch::{Batch, NUMBERS, Single, WEIGHT};
use crate::cell::{self, Around, Motion, Sight, Sums};
use crate::grid::{DIRECTIONS, direction};
use crate::push::Pusher;
use crate::shape::Shape;
use crate::simd::{Real, Task, Vector};

/// What is known of the particles of a species in a tile, beside the particles themselves.
#[derive(Clone, Debug, Default)]
pub struct Parcel {
    /// Cells along each axis.
    pub cells: [usize; 3],
    /// How many particles of each cell lie in memory, x first.
    pub counts: Vec<u32>,
    /// How many lie in memory altogether.
    pub held: usize,
    /// Whether they lie at the end of the memory, and not at its beginning.
    pub high: bool,
    /// Whether particles that have left still lie in memory: pushed in a pass that did not deposit.
    pub raw: bool,
    /// How many of those there are.
    pub left: u32,
}

impl Parcel {
    /// What a pass does to a parcel without particles: the next one goes the other way, as it would have.
    pub fn skip(&mut self, pass: Pass) {
        if pass != Pass::Deposit {
            self.high = !self.high;
            (self.raw, self.left) = (pass == Pass::Push, 0);
        }
    }
}

/// A particle on its way to another cell.
#[derive(Clone, Copy, Debug)]
pub struct Traveller<R> {
    /// The particle, with its offsets in the cell that it enters.
    pub single: Single<R>,
    /// The cell, counted from the tile it comes from.
    pub cell: [i16; 3],
}

/// Who leaves a tile, by the direction; the last are those who leave the grid.
pub type Outbox<R> = [Vec<Traveller<R>>; DIRECTIONS + 1];

/// Who has arrived in a tile, by cell.
#[derive(Clone, Debug)]
pub struct Arrivals<R> {
    singles: Vec<Single<R>>,
    /// Where those of each cell begin; one more for the end. Empty if nobody has arrived.
    starts: Vec<u32>,
}

impl<R> Default for Arrivals<R> {
    fn default() -> Self {
        Arrivals { singles: Vec::new(), starts: Vec::new() }
    }
}

impl<R: Real> Arrivals<R> {
    /// How many have arrived.
    pub fn len(&self) -> usize {
        self.singles.len()
    }

    /// Whether nobody has.
    pub fn is_empty(&self) -> bool {
        self.singles.is_empty()
    }

    /// Those that enter a cell.
    #[inline(always)]
    fn of(&self, cell: usize) -> &[Single<R>] {
        if self.starts.is_empty() {
            return &[];
        }
        &self.singles[self.starts[cell] as usize..self.starts[cell + 1] as usize]
    }

    /// Nobody, again.
    pub fn clear(&mut self) {
        self.singles.clear();
        self.starts.clear();
    }

    /// Takes in whoever comes, given what each direction brings, in the order of directions.
    pub fn collect<'a>(
        &mut self,
        cells: [usize; 3],
        incoming: impl Iterator<Item = ([i32; 3], &'a [Traveller<R>])> + Clone,
    ) {
        self.clear();
        let total: usize = incoming.clone().map(|(_, some)| some.len()).sum();
        if total == 0 {
            return;
        }
        let index = |towards: [i32; 3], cell: [i16; 3]| {
            let [x, y, z]: [usize; 3] = std::array::from_fn(|axis| match towards[axis] {
                0 => cell[axis] as usize,
                1 => 0,
                _ => cells[axis] - 1,
            });
            (z * cells[1] + y) * cells[0] + x
        };
        self.starts.resize(cells.iter().product::<usize>() + 1, 0);
        for (towards, some) in incoming.clone() {
            some.iter().for_each(|one| self.starts[index(towards, one.cell) + 1] += 1);
        }
        for cell in 1..self.starts.len() {
            self.starts[cell] += self.starts[cell - 1];
        }
        self.singles.resize(total, [R::ZERO; NUMBERS]);
        for (towards, some) in incoming {
            for one in some {
                let at = &mut self.starts[index(towards, one.cell)];
                self.singles[*at as usize] = one.single;
                *at += 1;
            }
        }
        // Each start is now where its cell ends.
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }

    /// How much memory it holds.
    pub fn bytes(&self) -> usize {
        self.singles.capacity() * size_of::<Single<R>>() + self.starts.capacity() * 4
    }
}

/// What a species has of energy and momentum, in units of `m c²` and `m c` of its own mass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// The sum of weights.
    pub weight: f64,
    /// Of weight times `γ − 1`, before the push and after it.
    pub kinetic: [f64; 2],
    /// Of weight times momentum, after the push.
    pub momentum: [f64; 3],
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        self.weight += other.weight;
        for (sum, more) in self.kinetic.iter_mut().zip(other.kinetic) {
            *sum += more;
        }
        for (sum, more) in self.momentum.iter_mut().zip(other.momentum) {
            *sum += more;
        }
    }

    /// Adds the energy of some particles, before or after the push.
    fn count<V: Vector>(&mut self, batch: &Batch<V>, after: usize) {
        for at in 0..batch.count {
            let single = batch.get(at).map(Real::wide);
            let (u, weight) = ([single[3], single[4], single[5]], single[WEIGHT]);
            let squared = u.iter().map(|u| u * u).sum::<f64>();
            self.kinetic[after] += weight * squared / (1.0 + (1.0 + squared).sqrt());
            if after == 1 {
                self.weight += weight;
                for axis in 0..3 {
                    self.momentum[axis] += weight * u[axis];
                }
            }
        }
    }
}

/// What a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Push and deposit, so that particles cross the memory once.
    Both,
    /// Push alone.
    Push,
    /// Deposit what was pushed; memory stays as it is.
    Deposit,
}

/// A pass over a parcel.
pub struct Sweep<'a, R: Real> {
    /// What is done.
    pub pass: Pass,
    /// What is known of the particles.
    pub parcel: &'a mut Parcel,
    /// Their memory: all numbers of one kind after all of another.
    pub memory: Memory<'a, R>,
    /// Who has arrived.
    pub arrivals: &'a mut Arrivals<R>,
    /// Where those go that leave.
    pub outbox: &'a mut Outbox<R>,
    /// The arrays around the tile.
    pub around: Around,
    /// Electric and magnetic fields around the tile.
    pub fields: &'a [R],
    /// Currents around the tile.
    pub currents: &'a mut [R],
    /// What the species does in fields.
    pub motion: Motion<R>,
    /// The cells in which particles may be, counted from the tile's first.
    pub bounds: [[i32; 2]; 3],
    /// Energy and momentum, if they are wanted.
    pub tally: Option<&'a mut Tally>,
}

/// A sweep with the shape and the pusher that it is done with.
pub struct With<'a, R: Real, S, P> {
    /// The sweep.
    pub sweep: Sweep<'a, R>,
    /// Shape and pusher.
    pub kind: std::marker::PhantomData<(S, P)>,
}

/// The memory of particles in a pass.
pub enum Memory<'a, R> {
    /// They stay as they are: enough for a deposit.
    Read(&'a [R]),
    /// They may change.
    Write(&'a mut [R]),
}

impl<R> Memory<'_, R> {
    #[inline(always)]
    fn all(&self) -> &[R] {
        match self {
            Memory::Read(all) => all,
            Memory::Write(all) => all,
        }
    }
}

impl<R: Real, S: Shape, P: Pusher> Task<R> for With<'_, R, S, P> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Real = R>>(self) {
        let Sweep {
            pass,
            parcel,
            mut memory,
            arrivals,
            outbox,
            around,
            fields,
            currents,
            motion,
            bounds,
            mut tally,
        } = self.sweep;
        let room = memory.all().len() / NUMBERS;
        let (pushes, deposits) = (pass != Pass::Deposit, pass != Pass::Push);
        // Who lies low is put high, last cell first; and the other way round. A deposit alone goes the way that the push did.
        let falling = parcel.high != pushes;
        let mut read = if parcel.high { room - parcel.held } else { 0 };
        if falling {
            read += parcel.held;
        }
        let mut write = if falling { room } else { 0 };
        let mut batch = Batch::<V>::default();
        let (mut sums, mut sight) = (Sums::<V>::new(), Sight::<R>::new());
        let mut gone = Vec::new();
        let cells = parcel.counts.len();
        for step in 0..cells {
            let number = if falling { cells - 1 - step } else { step };
            let count = parcel.counts[number] as usize;
            let new = if pushes { arrivals.of(number) } else { &[] };
            if count + new.len() == 0 {
                continue;
            }
            if falling {
                read -= count;
            }
            batch.load(memory.all(), read, count, new.len());
            if !falling {
                read += count;
            }
            let [nx, ny, _] = parcel.cells;
            let cell = [number % nx, number / nx % ny, number / (nx * ny)];
            if pushes {
                if parcel.raw {
                    batch.pad();
                    batch.leavers(&mut gone);
                    batch.remove(&gone);
                }
                new.iter().for_each(|single| batch.push(single));
                batch.pad();
                if let Some(tally) = &mut tally {
                    tally.count(&batch, 0);
                }
                sight.look::<S>(around, fields, cell, motion.kick);
                cell::push::<V, S, P>(&mut batch, &sight, &motion);
                if let Some(tally) = &mut tally {
                    tally.count(&batch, 1);
                }
            } else {
                batch.pad();
                cell::slowness(&mut batch);
            }
            if deposits {
                cell::deposit::<V, S>(&batch, &motion, &mut sums, (around, &mut *currents, cell), &mut gone);
                if !gone.is_empty() {
                    cell::cross::<V, S>(
                        &batch,
                        &motion,
                        (around, &mut *currents, cell),
                        &gone,
                        |single, moved| {
                            let (mut over, mut stays) = ([0; 3], true);
                            let mut place = [0i16; 3];
                            for axis in 0..3 {
                                let at = cell[axis] as i32 + moved[axis];
                                over[axis] = i32::from(at >= parcel.cells[axis] as i32) - i32::from(at < 0);
                                place[axis] = at as i16;
                                stays &= at >= bounds[axis][0] && at < bounds[axis][1];
                            }
                            let way = if stays { direction(over) } else { DIRECTIONS };
                            outbox[way].push(Traveller { single, cell: place });
                        },
                    );
                }
            }
            if pushes {
                if deposits {
                    batch.remove(&gone);
                }
                if falling {
                    write -= batch.count;
                }
                match &mut memory {
                    Memory::Write(all) => batch.save(all, write),
                    Memory::Read(_) => unreachable!("a push may write"),
                }
                if !falling {
                    write += batch.count;
                }
                parcel.counts[number] = batch.count as u32;
            }
        }
        if pushes {
            parcel.held = if falling { room - write } else { write };
            parcel.high = falling;
            parcel.raw = !deposits;
            parcel.left = 0;
            arrivals.clear();
        }
    }
}

/// Calls `visit` for every particle of a parcel as the next pass will find it: in order, by cell, without those that have
/// left and with those that have arrived.
pub fn visit<R: Real>(
    parcel: &Parcel,
    memory: &[R],
    arrivals: &Arrivals<R>,
    mut visit: impl FnMut(usize, &Single<R>),
) {
    let room = memory.len() / NUMBERS;
    let mut read = if parcel.high { room - parcel.held } else { 0 };
    let mut batch: Vec<Single<R>> = Vec::new();
    let inside = |one: &Single<R>| one[..3].iter().all(|s| *s >= R::ZERO && *s < R::ONE);
    for (cell, count) in parcel.counts.iter().enumerate() {
        batch.clear();
        let here = read..read + *count as usize;
        read = here.end;
        batch
            .extend(here.map(|at| std::array::from_fn::<R, NUMBERS, _>(|number| memory[number * room + at])));
        if parcel.raw {
            for at in (0..batch.len()).rev() {
                if !inside(&batch[at]) {
                    batch.swap_remove(at);
                }
            }
        }
        batch.extend_from_slice(arrivals.of(cell));
        batch.iter().for_each(|single| visit(cell, single));
    }
}

/// Puts particles, in order by cell, into an empty parcel's memory.
pub fn fill<R: Real>(parcel: &mut Parcel, memory: &mut [R], singles: &[Single<R>], counts: Vec<u32>) {
    let room = memory.len() / NUMBERS;
    assert!(singles.len() <= room, "room for all particles");
    let start = if parcel.high { room - singles.len() } else { 0 };
    for (at, single) in singles.iter().enumerate() {
        for number in 0..NUMBERS {
            memory[number * room + start + at] = single[number];
        }
    }
    parcel.held = singles.len();
    parcel.counts = counts;
    parcel.raw = false;
}

/// Moves particles to a larger memory, in which they lie at the same end.
pub fn regrow<R: Real>(parcel: &Parcel, from: &[R], to: &mut [R]) {
    let (old, new) = (from.len() / NUMBERS, to.len() / NUMBERS);
    let [here, there] = [old, new].map(|room| if parcel.high { room - parcel.held } else { 0 });
    for number in 0..NUMBERS {
        let from = &from[number * old + here..number * old + here + parcel.held];
        to[number * new + there..number * new + there + parcel.held].copy_from_slice(from);
    }
}
