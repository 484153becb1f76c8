//! Between the grid and the arrays around tiles: fields are copied to where a tile's particles see them, and currents are
//! added up from where they left them, tile by tile in one order.

use crate::cell::Around;
use crate::setup::Setup;
use crate::simd::Real;
use crate::simulation::Tile;
use crate::yee::{CURRENTS, FIELDS};

/// Copies the fields around a tile to one place.
pub(crate) fn look_around<R: Real>(
    setup: &Setup,
    tile: usize,
    around: Around,
    layers: &[&[R]],
    to: &mut [R],
) {
    let grid = &setup.grid;
    let origin = grid.extent(tile).0.map(|first| first as isize + setup.first() - 1);
    let [nx, ny, nz] = grid.cells;
    let wrap = |at: isize, n: usize| at.rem_euclid(n as isize) as usize;
    for field in 0..FIELDS {
        for z in 0..around.extents[2] {
            let plane = wrap(origin[2] + z as isize, nz);
            let (layer, inside) = (plane / grid.tile[2], plane % grid.tile[2]);
            let planes = grid.planes(layer).1;
            for y in 0..around.extents[1] {
                let row = wrap(origin[1] + y as isize, ny);
                let start = ((field * planes + inside) * ny + row) * nx;
                let from = &layers[layer][start..start + nx];
                let at = field * around.len() + around.at([0, y, z]);
                copy_row(&mut to[at..at + around.extents[0]], from, origin[0]);
            }
        }
    }
}

/// Copies a row from a place on, counted around.
fn copy_row<R: Real>(to: &mut [R], from: &[R], origin: isize) {
    let n = from.len();
    let mut at = origin.rem_euclid(n as isize) as usize;
    for to in to {
        *to = from[at];
        at += 1;
        if at == n {
            at = 0;
        }
    }
}

/// Adds up the currents around all tiles in a layer, tile by tile; those of which nothing is known here are too far away.
pub(crate) fn gather_currents<R: Real>(setup: &Setup, tiles: &[Tile<R>], layer: usize, to: &mut [R]) {
    let grid = &setup.grid;
    let [nx, ny, nz] = grid.cells;
    let (first, planes) = grid.planes(layer);
    let wrap = |at: isize, n: usize| at.rem_euclid(n as isize) as usize;
    for (number, tile) in tiles.iter().enumerate().filter(|(_, tile)| !tile.currents.is_empty()) {
        let (start, cells) = grid.extent(number);
        let around = Around::new(cells, setup.order);
        let origin = start.map(|first| first as isize + setup.first() - 1);
        for z in 0..around.extents[2] {
            let plane = wrap(origin[2] + z as isize, nz);
            if !(first..first + planes).contains(&plane) {
                continue;
            }
            for component in 0..CURRENTS {
                for y in 0..around.extents[1] {
                    let row = wrap(origin[1] + y as isize, ny);
                    let begin = ((component * planes + plane - first) * ny + row) * nx;
                    let at = component * around.len() + around.at([0, y, z]);
                    let into = &mut to[begin..begin + nx];
                    let mut x = wrap(origin[0], nx);
                    for from in &tile.currents[at..at + around.extents[0]] {
                        into[x] += *from;
                        x += 1;
                        if x == nx {
                            x = 0;
                        }
                    }
                }
            }
        }
    }
}
