//! What is simulated: space, time, kinds of particles, and how they begin.

use crate::batch::Single;
use crate::cell::Motion;
use crate::grid::Grid;
use crate::laser::Laser;
use crate::load::{Loading, Spot};
use crate::shape::{Cubic, Linear, Quadratic, Shape};
use crate::simd::Real;

/// How momenta are advanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// Boris's way.
    #[default]
    Boris,
    /// Vay's.
    Vay,
    /// Higuera and Cary's.
    HigueraCary,
}

/// A kind of particles.
#[derive(Clone, Debug, PartialEq)]
pub struct Species {
    /// Its name.
    pub name: String,
    /// Its charge, in that of a positron.
    pub charge: f64,
    /// Its mass, in that of an electron.
    pub mass: f64,
    /// What it begins with.
    pub loading: Loading,
}

/// What is simulated, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Space and time.
    pub grid: Grid,
    /// The order of shapes, 1 to 3.
    pub order: usize,
    /// How momenta are advanced.
    pub push: Push,
    /// The kinds of particles.
    pub species: Vec<Species>,
    /// Beams of light that enter.
    pub lasers: Vec<Laser>,
    /// Whether the grid follows what it simulates.
    pub window: Option<Window>,
    /// What chance begins with.
    pub seed: u64,
}

/// A window that moves along z, layer by layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// When it begins to move.
    pub from: f64,
    /// How fast, in the speed of light.
    pub speed: f64,
}

impl Setup {
    /// What of a species the inner loops need.
    pub fn motion<R: Real>(&self, species: usize) -> Motion<R> {
        let (grid, species) = (&self.grid, &self.species[species]);
        Motion {
            kick: R::of(species.charge / species.mass * grid.step / 2.0),
            stride: grid.spacing.map(|spacing| R::of(grid.step / spacing)),
            charge: grid
                .spacing
                .map(|spacing| R::of(species.charge * spacing / grid.step / grid.cell_volume())),
        }
    }

    /// Where in its cell a particle is that lies on the node of the cell's number.
    pub fn centre(&self) -> f64 {
        if self.order == 2 { Quadratic::CENTRE } else { Linear::CENTRE }
    }

    /// The first node that particles of a cell see, and where arrays around a tile begin: one before it.
    pub fn first(&self) -> isize {
        if self.order == 1 { Linear::FIRST } else { Cubic::FIRST }
    }

    /// The cells along an axis in which there may be particles: all, or those between the ends that absorb. A window drops
    /// whole layers, and so do its ends.
    pub fn live(&self, axis: usize) -> std::ops::Range<usize> {
        let cells = self.grid.cells[axis];
        if !self.grid.absorbs(axis) {
            return 0..cells;
        }
        let whole = if axis == 2 && self.window.is_some() { self.grid.tile[2] } else { 1 };
        let end = self.grid.absorber.next_multiple_of(whole);
        end..cells.saturating_sub(end).max(end)
    }

    /// The same for a tile, counted from its own first cell; what periodic ends let through is not limited.
    pub fn bounds(&self, tile: usize) -> [[i32; 2]; 3] {
        let (first, _) = self.grid.extent(tile);
        [0, 1, 2].map(|axis| {
            let live = self.live(axis);
            let place = |cell: usize| cell as i32 - first[axis] as i32;
            if self.grid.absorbs(axis) { [place(live.start), place(live.end)] } else { [i32::MIN, i32::MAX] }
        })
    }

    /// How many layers a window has moved on when an iteration begins.
    pub fn moved(&self, iteration: u64) -> u64 {
        let Some(window) = self.window else { return 0 };
        let length = self.grid.spacing[2] * self.grid.tile[2] as f64;
        let way = (iteration as f64 * self.grid.step - window.from) * window.speed;
        (way / length).floor().max(0.0) as u64
    }

    /// What the particles of a tile begin with: cell by cell, with how many each has. A window has moved on by `shift` cells.
    pub fn load<R: Real>(&self, species: usize, tile: usize, shift: i64) -> (Vec<Single<R>>, Vec<u32>) {
        let (mut singles, mut counts) = (Vec::new(), Vec::new());
        let (loading, volume) = (&self.species[species].loading, self.grid.cell_volume());
        self.spots(species, tile, shift, |spot| {
            let before = singles.len();
            if let Some(spot) = spot {
                loading.cell(&spot, volume, &mut singles);
            }
            counts.push((singles.len() - before) as u32);
        });
        (singles, counts)
    }

    /// How many particles a tile begins with.
    pub fn count(&self, species: usize, tile: usize, shift: i64) -> u64 {
        let (mut all, volume) = (0u64, self.grid.cell_volume());
        let loading = &self.species[species].loading;
        self.spots(species, tile, shift, |spot| {
            all = all.saturating_add(spot.map_or(0, |spot| loading.count(&spot, volume)));
        });
        all
    }

    /// The cells of a tile in their order; nothing where there may be no particles.
    fn spots(&self, species: usize, tile: usize, shift: i64, mut each: impl FnMut(Option<Spot>)) {
        let (first, cells) = self.grid.extent(tile);
        let live = [0, 1, 2].map(|axis| self.live(axis));
        let seed = self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(species as u64 + 1);
        let (spacing, centre) = (self.grid.spacing, self.centre());
        for z in 0..cells[2] {
            for y in 0..cells[1] {
                for x in 0..cells[0] {
                    let here = [first[0] + x, first[1] + y, first[2] + z];
                    let at = here.map(|at| at as i64);
                    let spot = Spot { cell: [at[0], at[1], at[2] + shift], spacing, centre, seed };
                    each((0..3).all(|axis| live[axis].contains(&here[axis])).then_some(spot));
                }
            }
        }
    }
}
