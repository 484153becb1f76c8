//! What is done with the particles of one cell: gather, push, and deposit.
//!
//! All of them see the same few places of the fields, so these are read once a cell and broadcast; and what they deposit
//! goes to the same few places, so it is summed in vectors, lane by lane, and put on the grid once a cell. Nothing is
//! gathered or scattered lane by lane but what crosses into another cell.
//!
//! The current is Esirkepov's (Computer Physics Communications 135, 2001), which obeys the equation of continuity to
//! rounding. The place before the step is worked out from the place after it and the momentum, so that depositing needs
//! nothing that the push has not left in memory: the two can be one pass or two, with the same bits.

use crate::batch::{Batch, Single, note};
use crate::push::{Pusher, inverse_gamma};
use crate::shape::{MOST, Shape};
use crate::simd::{Real, Vector};

/// The most places of a field that a cell's particles see.
const PLACES: usize = MOST * MOST * (MOST - 1);

/// What of a species the inner loops need.
#[derive(Clone, Copy, Debug)]
pub struct Motion<R> {
    /// `q·Δt/2m`: what fields are multiplied with.
    pub kick: R,
    /// `c·Δt/Δx` along each axis.
    pub stride: [R; 3],
    /// What a current along each axis is multiplied with: charge, `Δx/Δt`, over the volume of a cell.
    pub charge: [R; 3],
}

/// The fields that the particles of one cell see, in the order in which they are summed.
pub struct Sight<R> {
    fields: [[R; PLACES]; 6],
}

/// Extents of the arrays around a tile, and the places of a cell in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// Extents along x, y and z.
    pub extents: [usize; 3],
}

impl Around {
    /// Around a tile of so many cells, for a shape of this order: a node more on either side than particles see before they
    /// move.
    pub fn new(cells: [usize; 3], order: usize) -> Around {
        Around { extents: cells.map(|cells| cells + order + 2) }
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a place is.
    #[inline(always)]
    pub fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.extents[1] + y) * self.extents[0] + x
    }
}

/// How many places component `field` (the electric field's three, then the magnetic field's) has along an axis.
const fn places(nodes: usize, field: usize, axis: usize) -> usize {
    let half = if field < 3 { field == axis } else { field - 3 != axis };
    nodes - half as usize
}

/// The places that a component has along each axis.
#[inline(always)]
fn extents<S: Shape>(field: usize) -> [usize; 3] {
    [places(S::NODES, field, 0), places(S::NODES, field, 1), places(S::NODES, field, 2)]
}

// `array::map` is not always inlined, and what is not works on vectors without their instructions: several times slower. So
// the inner loops say all three axes.

/// The same number of each axis in all lanes.
#[inline(always)]
fn splat<V: Vector>([x, y, z]: [V::Real; 3]) -> [V; 3] {
    [V::splat(x), V::splat(y), V::splat(z)]
}

/// The weights of the nodes along each axis.
#[inline(always)]
fn whole<V: Vector, S: Shape>([x, y, z]: [V; 3]) -> [[V; MOST]; 3] {
    [S::whole(x), S::whole(y), S::whole(z)]
}

impl<R: Real> Sight<R> {
    /// Nothing yet.
    pub fn new() -> Sight<R> {
        Sight { fields: [[R::ZERO; PLACES]; 6] }
    }

    /// Looks at the fields around a cell, multiplied with `kick`.
    #[inline(always)]
    pub fn look<S: Shape>(&mut self, around: Around, fields: &[R], cell: [usize; 3], kick: R) {
        let each = around.len();
        for field in 0..6 {
            let from = &fields[field * each..(field + 1) * each];
            let [nx, ny, nz] = extents::<S>(field);
            let mut to = 0;
            for z in 0..nz {
                for y in 0..ny {
                    let start = around.at([cell[0] + 1, cell[1] + 1 + y, cell[2] + 1 + z]);
                    let row = &from[start..start + nx];
                    for x in 0..nx {
                        self.fields[field][to] = row[x] * kick;
                        to += 1;
                    }
                }
            }
        }
    }

    /// One component where the particles are, given their weights along the axes.
    #[inline(always)]
    fn feel<V: Vector<Real = R>, S: Shape>(
        &self,
        field: usize,
        whole: &[[V; MOST]; 3],
        half: &[[V; MOST]; 3],
    ) -> V {
        let staggered = |axis: usize| if field < 3 { field == axis } else { field - 3 != axis };
        let weights = |axis: usize| if staggered(axis) { &half[axis] } else { &whole[axis] };
        let [wx, wy, wz] = [weights(0), weights(1), weights(2)];
        let [nx, ny, nz] = extents::<S>(field);
        let from = &self.fields[field];
        let mut volume = V::splat(R::ZERO);
        for z in 0..nz {
            let mut plane = V::splat(R::ZERO);
            for y in 0..ny {
                let at = (z * ny + y) * nx;
                let mut row = V::splat(from[at]).mul(wx[0]);
                for x in 1..nx {
                    row = V::splat(from[at + x]).fma(wx[x], row);
                }
                plane = if y == 0 { row.mul(wy[0]) } else { row.fma(wy[y], plane) };
            }
            volume = if z == 0 { plane.mul(wz[0]) } else { plane.fma(wz[z], volume) };
        }
        volume
    }
}

/// Advances the momenta and places of a cell's particles. Those that leave have offsets outside of `[0, 1)` then.
#[inline(always)]
pub fn push<V: Vector, S: Shape, P: Pusher>(
    batch: &mut Batch<V>,
    sight: &Sight<V::Real>,
    motion: &Motion<V::Real>,
) {
    let stride = splat::<V>(motion.stride);
    let vectors = batch.vectors();
    let Batch { numbers, inverse, .. } = batch;
    let [x, y, z, ux, uy, uz, _] = numbers;
    let (x, y, z) = (&mut x[..vectors], &mut y[..vectors], &mut z[..vectors]);
    let (ux, uy, uz, inverse) =
        (&mut ux[..vectors], &mut uy[..vectors], &mut uz[..vectors], &mut inverse[..vectors]);
    for i in 0..vectors {
        let s = [V::load(&x[i]), V::load(&y[i]), V::load(&z[i])];
        let (at, half) = (whole::<V, S>(s), [S::half(s[0]), S::half(s[1]), S::half(s[2])]);
        let e = [
            sight.feel::<V, S>(0, &at, &half),
            sight.feel::<V, S>(1, &at, &half),
            sight.feel::<V, S>(2, &at, &half),
        ];
        let b = [
            sight.feel::<V, S>(3, &at, &half),
            sight.feel::<V, S>(4, &at, &half),
            sight.feel::<V, S>(5, &at, &half),
        ];
        let u = P::push([V::load(&ux[i]), V::load(&uy[i]), V::load(&uz[i])], e, b);
        let slow = inverse_gamma(u);
        u[0].store(&mut ux[i]);
        u[1].store(&mut uy[i]);
        u[2].store(&mut uz[i]);
        slow.store(&mut inverse[i]);
        u[0].mul(slow).fma(stride[0], s[0]).store(&mut x[i]);
        u[1].mul(slow).fma(stride[1], s[1]).store(&mut y[i]);
        u[2].mul(slow).fma(stride[2], s[2]).store(&mut z[i]);
    }
}

/// Works out `1/γ` of particles that were pushed in an earlier pass.
#[inline(always)]
pub fn slowness<V: Vector>(batch: &mut Batch<V>) {
    for i in 0..batch.vectors() {
        let [.., x, y, z, _] = &batch.numbers;
        let u = [V::load(&x[i]), V::load(&y[i]), V::load(&z[i])];
        inverse_gamma(u).store(&mut batch.inverse[i]);
    }
}

/// The places before the step, from those after it.
#[inline(always)]
fn before<V: Vector>(batch: &Batch<V>, i: usize, stride: &[V; 3]) -> ([V; 3], [V; 3]) {
    let slow = V::load(&batch.inverse[i]);
    let [x, y, z, ux, uy, uz, _] = &batch.numbers;
    let after = [V::load(&x[i]), V::load(&y[i]), V::load(&z[i])];
    let old = [
        V::load(&ux[i]).mul(slow).fnma(stride[0], after[0]),
        V::load(&uy[i]).mul(slow).fnma(stride[1], after[1]),
        V::load(&uz[i]).mul(slow).fnma(stride[2], after[2]),
    ];
    (old, after)
}

/// Sums of currents of the particles that stay in a cell, one vector for each place.
pub struct Sums<V: Vector> {
    currents: [[V::Block; PLACES]; 3],
}

impl<V: Vector> Sums<V> {
    /// Nothing yet.
    pub fn new() -> Sums<V> {
        Sums { currents: [[V::Block::default(); PLACES]; 3] }
    }
}

/// Deposits the currents of a cell's particles around it. Those that leave are noted, and not deposited.
#[inline(always)]
pub fn deposit<V: Vector, S: Shape>(
    batch: &Batch<V>,
    motion: &Motion<V::Real>,
    sums: &mut Sums<V>,
    (around, currents, cell): (Around, &mut [V::Real], [usize; 3]),
    gone: &mut Vec<u32>,
) {
    let (n, stride) = (S::NODES, splat::<V>(motion.stride));
    let count = (n - 1) * n * n;
    sums.currents.iter_mut().for_each(|all| all[..count].fill(V::Block::default()));
    gone.clear();
    let (half, twelfth) = (V::splat(V::Real::of(0.5)), V::splat(V::Real::of(1.0 / 12.0)));
    for i in 0..batch.vectors() {
        let (old, new) = before(batch, i, &stride);
        let stays = new[0].within().and(new[1].within()).and(new[2].within());
        note::<V>(stays, i, batch.count, gone);
        let weight = V::load(&batch.numbers[crate::batch::WEIGHT][i]).and(stays);
        let (from, to) = (whole::<V, S>(old), whole::<V, S>(new));
        let nothing = V::splat(V::Real::ZERO);
        let (mut mean, mut change, mut flow) =
            ([[nothing; MOST]; 3], [[nothing; MOST]; 3], [[nothing; MOST]; 3]);
        for axis in 0..3 {
            let mut so_far = nothing;
            for node in 0..n {
                change[axis][node] = to[axis][node].sub(from[axis][node]);
                mean[axis][node] = to[axis][node].add(from[axis][node]).mul(half);
                if node + 1 < n {
                    so_far = so_far.sub(change[axis][node]);
                    flow[axis][node] = so_far.mul(weight);
                }
            }
        }
        for axis in 0..3 {
            // Along its own axis a current has one place fewer; the other two in the order of memory.
            let (inner, outer) = [(1, 2), (0, 2), (0, 1)][axis];
            let sums = &mut sums.currents[axis];
            for b in 0..n {
                let turned = change[outer][b].mul(twelfth);
                for a in 0..n {
                    let share = mean[outer][b].mul(mean[inner][a]);
                    let share = turned.fma(change[inner][a], share);
                    for c in 0..n - 1 {
                        let sum = &mut sums[(b * n + a) * (n - 1) + c];
                        flow[axis][c].fma(share, V::load(sum)).store(sum);
                    }
                }
            }
        }
    }
    let each = around.len();
    for axis in 0..3 {
        let (inner, outer) = [(1, 2), (0, 2), (0, 1)][axis];
        let to = &mut currents[axis * each..(axis + 1) * each];
        for b in 0..n {
            for a in 0..n {
                for c in 0..n - 1 {
                    let mut place = [cell[0] + 1, cell[1] + 1, cell[2] + 1];
                    place[axis] += c;
                    place[inner] += a;
                    place[outer] += b;
                    let sum = V::load(&sums.currents[axis][(b * n + a) * (n - 1) + c]).sum();
                    to[around.at(place)] += sum * motion.charge[axis];
                }
            }
        }
    }
}

/// Deposits the currents of particles that leave the cell, and hands each out with its new offsets and where it went: by
/// one cell or none along each axis.
#[inline(always)]
pub fn cross<V: Vector, S: Shape>(
    batch: &Batch<V>,
    motion: &Motion<V::Real>,
    (around, currents, cell): (Around, &mut [V::Real], [usize; 3]),
    gone: &[u32],
    mut leave: impl FnMut(Single<V::Real>, [i32; 3]),
) {
    let (n, stride) = (S::NODES, splat::<V>(motion.stride));
    let each = around.len();
    let [to_x, rest] = {
        let (x, rest) = currents.split_at_mut(each);
        [x, rest]
    };
    let (to_y, to_z) = rest.split_at_mut(each);
    let to_z = &mut to_z[..each];
    let zero = V::Real::ZERO;
    let mut done = usize::MAX;
    let mut from = [[V::Block::default(); MOST]; 3];
    for at in gone {
        let (vector, lane) = (*at as usize / V::LANES, *at as usize % V::LANES);
        if vector != done {
            let (old, _) = before(batch, vector, &stride);
            for axis in 0..3 {
                let weights = S::whole(old[axis]);
                for node in 0..n {
                    weights[node].store(&mut from[axis][node]);
                }
            }
            done = vector;
        }
        let mut single = batch.get(*at as usize);
        let mut moved = [0i32; 3];
        let mut offsets = V::Block::default();
        for axis in 0..3 {
            let s = single[axis];
            let cells = s.floor();
            moved[axis] = (cells.wide() as i32).clamp(-1, 1);
            offsets.as_mut()[axis] = s - cells;
            single[axis] = if s - cells < V::Real::ONE { s - cells } else { V::Real::BELOW_ONE };
        }
        let weights = S::whole(V::load(&offsets));
        // Nodes of both cells: one more on either side.
        let wide = n + 2;
        let (mut mean, mut change, mut flow) =
            ([[zero; MOST + 2]; 3], [[zero; MOST + 2]; 3], [[zero; MOST + 2]; 3]);
        for node in 0..n {
            let mut block = V::Block::default();
            weights[node].store(&mut block);
            for axis in 0..3 {
                mean[axis][node + 1] += from[axis][node].as_ref()[lane];
                change[axis][node + 1] = change[axis][node + 1] - from[axis][node].as_ref()[lane];
                let to = (node as i32 + 1 + moved[axis]) as usize;
                mean[axis][to] += block.as_ref()[axis];
                change[axis][to] += block.as_ref()[axis];
            }
        }
        let (half, twelfth) = (V::Real::of(0.5), V::Real::of(1.0 / 12.0));
        for axis in 0..3 {
            let scale = single[crate::batch::WEIGHT] * motion.charge[axis];
            let mut so_far = zero;
            for node in 0..wide {
                mean[axis][node] = mean[axis][node] * half;
                so_far = so_far - change[axis][node];
                flow[axis][node] = so_far * scale;
            }
            // All has flowed by then; what is left is rounding.
            flow[axis][wide - 1] = zero;
        }
        for c in 0..wide {
            for b in 0..wide {
                let start = around.at([cell[0], cell[1] + b, cell[2] + c]);
                let share_x = (change[1][b] * twelfth).fma(change[2][c], mean[1][b] * mean[2][c]);
                let (flow_y, turn_y) = (flow[1][b] * mean[2][c], flow[1][b] * change[2][c] * twelfth);
                let (flow_z, turn_z) = (flow[2][c] * mean[1][b], flow[2][c] * change[1][b] * twelfth);
                let (row_x, row_y) = (&mut to_x[start..start + wide], &mut to_y[start..start + wide]);
                let row_z = &mut to_z[start..start + wide];
                for a in 0..wide {
                    row_x[a] = flow[0][a].fma(share_x, row_x[a]);
                    row_y[a] = flow_y.fma(mean[0][a], turn_y.fma(change[0][a], row_y[a]));
                    row_z[a] = flow_z.fma(mean[0][a], turn_z.fma(change[0][a], row_z[a]));
                }
            }
        }
        leave(single, moved);
    }
}
