//! The grid: cells, tiles of cells, and layers of tiles.
//!
//! Space is cut into tiles along all axes; tiles with the same place along z are a layer. Fields of a layer are one
//! object, the particles of a species in a tile are another. A window that moves along z drops its last layer and begins
//! a new one: nothing is copied, layers are only counted anew (`exchange.rs`).
//!
//! Everything is in the units of a plasma: lengths in `c/ωp` and times in `1/ωp` of a reference density.

/// What happens at the ends of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// What leaves at one end enters at the other.
    #[default]
    Periodic,
    /// Waves are absorbed in the outermost cells, particles at the end.
    Absorbing,
}

/// Cells, tiles and time steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Cells along x, y and z. An axis with one cell is flat: nothing varies along it.
    pub cells: [usize; 3],
    /// The length of a cell along each axis.
    pub spacing: [f64; 3],
    /// Cells of a tile along each axis; the last tile may have fewer.
    pub tile: [usize; 3],
    /// The time step.
    pub step: f64,
    /// The ends of each axis.
    pub boundaries: [Boundary; 3],
    /// How many cells absorb at either end of an axis whose ends do.
    pub absorber: usize,
}

impl Grid {
    /// How many tiles there are along each axis.
    pub fn tiles(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.cells[axis].div_ceil(self.tile[axis]))
    }

    /// How many tiles a layer has.
    pub fn per_layer(&self) -> usize {
        let [x, y, _] = self.tiles();
        x * y
    }

    /// How many layers there are.
    pub fn layers(&self) -> usize {
        self.tiles()[2]
    }

    /// How many cells there are.
    pub fn volume(&self) -> usize {
        self.cells.iter().product()
    }

    /// The volume of a cell.
    pub fn cell_volume(&self) -> f64 {
        self.spacing.iter().product()
    }

    /// The axes along which something varies.
    pub fn axes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..3).filter(|axis| self.cells[*axis] > 1)
    }

    /// The longest time step with which waves do not grow: Courant's limit for Yee's scheme.
    pub fn courant(&self) -> f64 {
        self.axes().map(|axis| self.spacing[axis].powi(-2)).sum::<f64>().sqrt().recip()
    }

    /// The place of a tile among all tiles, by its number; layers one after the other.
    pub fn place(&self, tile: usize) -> [usize; 3] {
        let [x, y, _] = self.tiles();
        [tile % x, tile / x % y, tile / (x * y)]
    }

    /// The number of the tile at a place.
    pub fn number(&self, [x, y, z]: [usize; 3]) -> usize {
        let tiles = self.tiles();
        (z * tiles[1] + y) * tiles[0] + x
    }

    /// The first cell of a tile, and how many cells it has, along each axis.
    pub fn extent(&self, tile: usize) -> ([usize; 3], [usize; 3]) {
        let place = self.place(tile);
        let first = [0, 1, 2].map(|axis| place[axis] * self.tile[axis]);
        (first, [0, 1, 2].map(|axis| self.tile[axis].min(self.cells[axis] - first[axis])))
    }

    /// The tile beside a tile in a direction; none beyond an end that absorbs.
    pub fn beside(&self, tile: usize, direction: [i32; 3]) -> Option<usize> {
        let (place, tiles) = (self.place(tile), self.tiles());
        let mut beside = place;
        for axis in 0..3 {
            let at = place[axis] as i64 + i64::from(direction[axis]);
            let count = tiles[axis] as i64;
            if (at < 0 || at >= count) && self.absorbs(axis) {
                return None;
            }
            beside[axis] = at.rem_euclid(count) as usize;
        }
        Some(self.number(beside))
    }

    /// Whether an axis has ends that absorb.
    pub fn absorbs(&self, axis: usize) -> bool {
        self.boundaries[axis] == Boundary::Absorbing
    }

    /// The first plane of a layer, and how many planes it has.
    pub fn planes(&self, layer: usize) -> (usize, usize) {
        let first = layer * self.tile[2];
        (first, self.tile[2].min(self.cells[2] - first))
    }

    /// The places of one component in a layer.
    pub fn layer_places(&self, layer: usize) -> usize {
        self.planes(layer).1 * self.cells[1] * self.cells[0]
    }
}

/// The 27 directions to a tile's neighbours and to itself.
pub const DIRECTIONS: usize = 27;

/// The number of a direction.
#[inline(always)]
pub fn direction([x, y, z]: [i32; 3]) -> usize {
    ((z + 1) * 9 + (y + 1) * 3 + x + 1) as usize
}

/// The direction of a number.
pub fn towards(number: usize) -> [i32; 3] {
    let number = number as i32;
    [number % 3 - 1, number / 3 % 3 - 1, number / 9 - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(cells: [usize; 3], boundary: Boundary) -> Grid {
        Grid { cells, spacing: [0.1; 3], tile: [4; 3], step: 0.05, boundaries: [boundary; 3], absorber: 4 }
    }

    #[test]
    fn every_cell_is_in_one_tile() {
        let grid = grid([10, 1, 7], Boundary::Periodic);
        assert_eq!(grid.tiles(), [3, 1, 2]);
        let mut seen = vec![0; grid.volume()];
        for tile in 0..6 {
            assert_eq!(grid.number(grid.place(tile)), tile);
            let (first, cells) = grid.extent(tile);
            for z in first[2]..first[2] + cells[2] {
                for x in first[0]..first[0] + cells[0] {
                    seen[z * 10 + x] += 1;
                }
            }
        }
        assert!(seen.iter().all(|count| *count == 1));
    }

    #[test]
    fn neighbours_wrap_or_end() {
        let periodic = grid([10, 1, 7], Boundary::Periodic);
        assert_eq!(periodic.beside(0, [-1, 1, -1]), Some(5));
        assert_eq!(grid([10, 1, 7], Boundary::Absorbing).beside(0, [-1, 0, 0]), None);
        for number in 0..DIRECTIONS {
            assert_eq!(direction(towards(number)), number);
        }
    }

    #[test]
    fn flat_axes_do_not_limit_the_step() {
        assert!((grid([8, 8, 8], Boundary::Periodic).courant() - 0.1 / 3f64.sqrt()).abs() < 1e-12);
        assert!((grid([8, 1, 1], Boundary::Periodic).courant() - 0.1).abs() < 1e-12);
    }
}
