//! The particles of one cell while they are worked on: some vectors of each of their numbers, in the nearest cache.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::simd::{Real, Vector};

/// How many numbers a particle has: offsets in its cell, momenta, weight.
pub const NUMBERS: usize = 7;

/// Where the weight is among them.
pub const WEIGHT: usize = 6;

/// A particle on its own.
pub type Single<R> = [R; NUMBERS];

/// The particles of one cell.
pub struct Batch<V: Vector> {
    /// Blocks of each number; lanes beyond the last particle hold one of no weight that rests in the middle of the cell.
    pub numbers: [Vec<V::Block>; NUMBERS],
    /// `1/γ`, once pushed.
    pub inverse: Vec<V::Block>,
    /// How many particles there are.
    pub count: usize,
}

impl<V: Vector> Default for Batch<V> {
    fn default() -> Self {
        Batch { numbers: std::array::from_fn(|_| Vec::new()), inverse: Vec::new(), count: 0 }
    }
}

impl<V: Vector> Batch<V> {
    /// How many vectors there are.
    #[inline(always)]
    pub fn vectors(&self) -> usize {
        self.count.div_ceil(V::LANES)
    }

    /// One of the numbers of all particles, and room beyond.
    #[inline(always)]
    fn lane(&mut self, number: usize) -> &mut [V::Real] {
        cast_slice_mut(&mut self.numbers[number])
    }

    /// Room for so many particles.
    #[inline(always)]
    fn reserve(&mut self, count: usize) {
        let blocks = count.div_ceil(V::LANES) + 1;
        if self.inverse.len() < blocks {
            self.grow(blocks);
        }
    }

    #[cold]
    fn grow(&mut self, blocks: usize) {
        let blocks = blocks.next_power_of_two().max(16);
        self.numbers.iter_mut().for_each(|all| all.resize(blocks, V::Block::default()));
        self.inverse.resize(blocks, V::Block::default());
    }

    /// Takes particles from a tile's memory, with room for some more.
    #[inline(always)]
    pub fn load(&mut self, memory: &[V::Real], at: usize, count: usize, more: usize) {
        self.reserve(count + more);
        self.count = count;
        let room = memory.len() / NUMBERS;
        for number in 0..NUMBERS {
            let start = number * room + at;
            copy::<V>(&mut self.lane(number)[..count], &memory[start..start + count]);
        }
    }

    /// Adds a particle, for which room was reserved.
    #[inline(always)]
    pub fn push(&mut self, single: &Single<V::Real>) {
        let at = self.count;
        for (number, value) in single.iter().enumerate() {
            self.lane(number)[at] = *value;
        }
        self.count += 1;
    }

    /// One particle.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Single<V::Real> {
        std::array::from_fn(|number| cast_slice::<_, V::Real>(&self.numbers[number])[at])
    }

    /// Fills the lanes beyond the last particle.
    #[inline(always)]
    pub fn pad(&mut self) {
        let (from, to) = (self.count, self.vectors() * V::LANES);
        if from < to {
            let middle = V::Real::of(0.5);
            for number in 0..NUMBERS {
                let filler = if number < 3 { middle } else { V::Real::ZERO };
                self.lane(number)[from..to].fill(filler);
            }
        }
    }

    /// Takes particles out, those of these places in rising order: the last ones take their places.
    #[inline(always)]
    pub fn remove(&mut self, gone: &[u32]) {
        for at in gone.iter().rev() {
            self.count -= 1;
            let (at, last) = (*at as usize, self.count);
            if at != last {
                for number in 0..NUMBERS {
                    let lane = self.lane(number);
                    lane[at] = lane[last];
                }
            }
        }
    }

    /// Which particles have left the cell, by their offsets.
    #[inline(always)]
    pub fn leavers(&self, gone: &mut Vec<u32>) {
        gone.clear();
        for vector in 0..self.vectors() {
            let [x, y, z, ..] = &self.numbers;
            let (x, y, z) = (V::load(&x[vector]), V::load(&y[vector]), V::load(&z[vector]));
            note::<V>(x.within().and(y.within()).and(z.within()), vector, self.count, gone);
        }
    }

    /// Puts the particles into a tile's memory.
    #[inline(always)]
    pub fn save(&mut self, memory: &mut [V::Real], at: usize) {
        let (count, room) = (self.count, memory.len() / NUMBERS);
        for number in 0..NUMBERS {
            let start = number * room + at;
            copy::<V>(&mut memory[start..start + count], &self.lane(number)[..count]);
        }
    }
}

/// Notes the particles of a vector that are not in a mask of those that stay.
#[inline(always)]
pub fn note<V: Vector>(stays: V, vector: usize, count: usize, gone: &mut Vec<u32>) {
    let full = (1u32 << V::LANES) - 1;
    let mut bits = !stays.bits() & full;
    while bits != 0 {
        let at = vector * V::LANES + bits.trailing_zeros() as usize;
        if at < count {
            gone.push(at as u32);
        }
        bits &= bits - 1;
    }
}

/// Copies a short run of numbers without calling anything.
#[inline(always)]
fn copy<V: Vector>(to: &mut [V::Real], from: &[V::Real]) {
    let (count, lanes) = (from.len().min(to.len()), V::LANES);
    let whole = count / lanes * lanes;
    let into: &mut [V::Block] = cast_slice_mut(&mut to[..whole]);
    for (to, from) in into.iter_mut().zip(cast_slice::<_, V::Block>(&from[..whole])) {
        V::load(from).store(to);
    }
    if count >= lanes {
        // The last vector once more, up to the end.
        let last: &mut [V::Block] = cast_slice_mut(&mut to[count - lanes..count]);
        last[0] = cast_slice::<_, V::Block>(&from[count - lanes..count])[0];
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}
