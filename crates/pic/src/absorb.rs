//! Ends that absorb waves: perfectly matched layers in the outermost cells.
//!
//! These are convolutional layers (Roden and Gedney, Microwave and Optical Technology Letters 27, 2000): beside each
//! difference along an absorbing axis stands a memory of what it was, which damps a wave that goes that way and reflects
//! none of it but for what the grid's steps do. Fields are kept as if ends were periodic, so the layers at both ends of an
//! axis lie back to back: a wave would have to cross both to come around. Only the memory is extra, and it is kept for the
//! outermost cells alone.

use crate::grid::{Boundary, Grid};
use crate::simd::Real;
use crate::yee::{CURRENTS, FIELDS};

/// How fast damping grows with the depth: as its third power.
const POWER: i32 = 3;

/// Damping at the deepest place, over what reflects least of the grid's own steps: `0.7 (m + 1) / Δx`.
const STRENGTH: f64 = 0.7;

/// A little damping of what hardly changes, over the damping at the deepest place: keeps slow fields from being remembered
/// for ever.
const FORGETS: f64 = 5e-4;

/// The layers at the ends of one axis.
#[derive(Clone, Debug)]
struct Slab<R> {
    axis: usize,
    /// Cells along the axis, and how many at either end absorb.
    cells: usize,
    depth: usize,
    /// What of its memory stays, and what of a difference is added: at nodes, and between them.
    node: Vec<[R; 2]>,
    half: Vec<[R; 2]>,
}

/// What absorbs waves at the ends of a grid.
#[derive(Clone, Debug)]
pub struct Absorber<R> {
    slabs: Vec<Slab<R>>,
    step: R,
}

/// The electric and magnetic memory of a slab along each of the two axes across it.
const MEMORIES: usize = 4;

/// Where a layer of the grid is: its extents, and its first plane.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Extents along x, y and z.
    pub extents: [usize; 3],
    /// The first plane.
    pub first: usize,
}

impl<R: Real> Slab<R> {
    fn new(grid: &Grid, axis: usize) -> Slab<R> {
        let (cells, depth, spacing) = (grid.cells[axis], grid.absorber, grid.spacing[axis]);
        let most = STRENGTH * f64::from(POWER + 1) / spacing;
        let at = |place: f64| {
            // How deep it is, from zero where damping begins to one at the end.
            let deep =
                (1.0 - place / depth as f64).max(1.0 - (cells as f64 - place) / depth as f64).clamp(0.0, 1.0);
            let damping = most * deep.powi(POWER);
            let forgets = FORGETS * most * (1.0 - deep);
            let stays = (-(damping + forgets) * grid.step).exp();
            let added = if damping > 0.0 { damping / (damping + forgets) * (stays - 1.0) } else { 0.0 };
            [R::of(stays), R::of(added / spacing)]
        };
        let places = (0..depth).chain(cells - depth..cells).map(|cell| cell as f64);
        let node = places.clone().map(at).collect();
        Slab { axis, cells, depth, node, half: places.map(|place| at(place + 0.5)).collect() }
    }

    /// The places along the axis that a part of the grid has: each with the number of its coefficients.
    fn places(&self, part: Part) -> impl Iterator<Item = (usize, usize)> + Clone + use<R> {
        let (cells, depth) = (self.cells, self.depth);
        let first = if self.axis == 2 { part.first } else { 0 };
        let count = if self.axis == 2 { part.extents[2] } else { cells };
        (0..2 * depth).filter_map(move |slot| {
            let cell = if slot < depth { slot } else { cells - 2 * depth + slot };
            (cell >= first && cell < first + count).then(|| (cell - first, slot))
        })
    }

    /// Calls `each` for every place of the slab in a part of the grid, with the number of its coefficients and its own.
    #[inline(always)]
    fn walk(&self, part: Part, mut each: impl FnMut([usize; 3], usize, usize)) {
        let [nx, ny, nz] = part.extents;
        let mut number = 0;
        let mut one = |place: [usize; 3], slot: usize| {
            each(place, slot, number);
            number += 1;
        };
        let places = self.places(part);
        match self.axis {
            0 => (0..nz).for_each(|z| {
                (0..ny).for_each(|y| places.clone().for_each(|(x, slot)| one([x, y, z], slot)))
            }),
            1 => (0..nz).for_each(|z| {
                places.clone().for_each(|(y, slot)| (0..nx).for_each(|x| one([x, y, z], slot)))
            }),
            _ => {
                places.for_each(|(z, slot)| (0..ny).for_each(|y| (0..nx).for_each(|x| one([x, y, z], slot))))
            }
        }
    }

    fn numbers(&self, part: Part) -> usize {
        let across: usize = (0..3).filter(|axis| *axis != self.axis).map(|axis| part.extents[axis]).product();
        self.places(part).count() * across
    }
}

impl<R: Real> Absorber<R> {
    /// For the ends of a grid that absorb.
    pub fn new(grid: &Grid) -> Absorber<R> {
        let absorbing = |axis: &usize| grid.boundaries[*axis] == Boundary::Absorbing;
        let slabs = (0..3).filter(absorbing).map(|axis| Slab::new(grid, axis)).collect();
        Absorber { slabs, step: R::of(grid.step) }
    }

    /// Whether nothing absorbs.
    pub fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// How many numbers of memory a part of the grid has at its sides, and at its ends along z.
    pub fn numbers(&self, part: Part) -> [usize; 2] {
        let of = |ends: bool| {
            let slabs = self.slabs.iter().filter(|slab| (slab.axis == 2) == ends);
            MEMORIES * slabs.map(|slab| slab.numbers(part)).sum::<usize>()
        };
        [of(false), of(true)]
    }

    /// Half a step of the magnetic field, on top of what [`crate::yee::magnetic`] does. Both halves of a step see the same
    /// electric field; memory is renewed in that which closes a step.
    pub fn magnetic(
        &self,
        part: Part,
        (electric, magnetic): (&[R], &mut [R]),
        next: Option<(&[R], usize)>,
        memories: [&mut [R]; 2],
        renew: bool,
    ) {
        let [nx, ny, nz] = part.extents;
        let each = nx * ny * nz;
        let field = |component: usize, [x, y, z]: [usize; 3]| {
            let (x, y) = (if x == nx { 0 } else { x }, if y == ny { 0 } else { y });
            match next {
                Some((other, planes)) if z == nz => other[(component * planes * ny + y) * nx + x],
                _ => electric[component * each + ((z % nz) * ny + y) * nx + x],
            }
        };
        let rate = self.step * R::of(0.5);
        let [mut sides, mut ends] = memories;
        for slab in &self.slabs {
            let memory = take(if slab.axis == 2 { &mut ends } else { &mut sides }, slab.numbers(part));
            let (b, c) = ((slab.axis + 1) % 3, (slab.axis + 2) % 3);
            let count = memory.len() / MEMORIES;
            slab.walk(part, |place, slot, number| {
                let mut beside = place;
                beside[slab.axis] += 1;
                let at = (place[2] * ny + place[1]) * nx + place[0];
                if renew {
                    let [stays, added] = slab.half[slot];
                    for (which, of) in [(2, c), (3, b)] {
                        let one = &mut memory[which * count + number];
                        *one = stays.fma(*one, added * (field(of, beside) - field(of, place)));
                    }
                }
                magnetic[b * each + at] += rate * memory[2 * count + number];
                let to = &mut magnetic[c * each + at];
                *to = *to - rate * memory[3 * count + number];
            });
        }
    }

    /// A step of the electric field, on top of what [`crate::yee::electric`] does.
    pub fn electric(
        &self,
        part: Part,
        (electric, magnetic): (&mut [R], &[R]),
        below: Option<(&[R], usize)>,
        memories: [&mut [R]; 2],
    ) {
        let [nx, ny, nz] = part.extents;
        let each = nx * ny * nz;
        // Places are counted from one before, so that none is negative.
        let field = |component: usize, [x, y, z]: [usize; 3]| {
            let (x, y) = (if x == 0 { nx - 1 } else { x - 1 }, if y == 0 { ny - 1 } else { y - 1 });
            match below {
                Some((other, planes)) if z == 0 => {
                    other[((component * planes + planes - 1) * ny + y) * nx + x]
                }
                _ => magnetic[component * each + (((z + nz - 1) % nz) * ny + y) * nx + x],
            }
        };
        let [mut sides, mut ends] = memories;
        for slab in &self.slabs {
            let memory = take(if slab.axis == 2 { &mut ends } else { &mut sides }, slab.numbers(part));
            let (b, c) = ((slab.axis + 1) % 3, (slab.axis + 2) % 3);
            let count = memory.len() / MEMORIES;
            slab.walk(part, |place, slot, number| {
                let here = place.map(|at| at + 1);
                let mut before = here;
                before[slab.axis] -= 1;
                let at = (place[2] * ny + place[1]) * nx + place[0];
                let [stays, added] = slab.node[slot];
                for (which, of) in [(0, c), (1, b)] {
                    let one = &mut memory[which * count + number];
                    *one = stays.fma(*one, added * (field(of, here) - field(of, before)));
                }
                let to = &mut electric[b * each + at];
                *to = *to - self.step * memory[number];
                electric[c * each + at] += self.step * memory[count + number];
            });
        }
    }
}

/// The next slab's part of a memory.
fn take<'a, R>(rest: &mut &'a mut [R], numbers: usize) -> &'a mut [R] {
    let (mine, left) = std::mem::take(rest).split_at_mut(MEMORIES * numbers);
    *rest = left;
    mine
}

/// The bytes that fields, currents and absorbers of a layer take, object by object.
pub fn objects<R: Real>(grid: &Grid, layer: usize) -> [usize; 4] {
    let [x, y, _] = grid.cells;
    let (first, planes) = grid.planes(layer);
    let places = grid.layer_places(layer);
    let [sides, ends] = Absorber::<R>::new(grid).numbers(Part { extents: [x, y, planes], first });
    [FIELDS * places, CURRENTS * places, sides, ends].map(|numbers| numbers * size_of::<R>())
}
