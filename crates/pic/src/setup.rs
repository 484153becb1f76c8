//! What is simulated: space, time, kinds of particles, and how they begin.

use crate::batch::Single;
use crate::cell::Motion;
use crate::grid::Grid;
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
    /// What chance begins with.
    pub seed: u64,
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

    /// What the particles of a tile begin with: cell by cell, with how many each has.
    pub fn load<R: Real>(&self, species: usize, tile: usize, shift: i64) -> (Vec<Single<R>>, Vec<u32>) {
        let (first, cells) = self.grid.extent(tile);
        let (mut singles, mut counts) = (Vec::new(), Vec::new());
        let seed = self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(species as u64 + 1);
        for z in 0..cells[2] {
            for y in 0..cells[1] {
                for x in 0..cells[0] {
                    let at = [first[0] + x, first[1] + y, first[2] + z].map(|at| at as i64);
                    let cell = [at[0], at[1], at[2] + shift];
                    let spot = Spot { cell, spacing: self.grid.spacing, centre: self.centre(), seed };
                    let before = singles.len();
                    self.species[species].loading.cell(&spot, self.grid.cell_volume(), &mut singles);
                    counts.push((singles.len() - before) as u32);
                }
            }
        }
        (singles, counts)
    }
}
