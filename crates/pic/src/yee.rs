//! Maxwell's equations on Yee's staggered grid, layer by layer.
//!
//! Component `Ex` lies at `(i+½, j, k)`, `Bx` at `(i, j+½, k+½)`, and so on around; all have as many places as there are
//! cells, because ends are periodic (absorbing ones damp what would come around). In these units `c` and `ε₀` are one.

use crate::grid::Grid;
use crate::simd::Real;

/// The components of a layer's fields: the electric field's three and the magnetic field's.
pub const FIELDS: usize = 6;

/// The components of a layer's currents.
pub const CURRENTS: usize = 3;

/// What differences are multiplied with.
#[derive(Clone, Copy, Debug)]
pub struct Rates<R> {
    /// A time over the spacing along each axis.
    pub over: [R; 3],
    /// The time.
    pub time: R,
}

impl<R: Real> Rates<R> {
    /// For advancing by a time.
    pub fn new(grid: &Grid, time: f64) -> Rates<R> {
        Rates { over: grid.spacing.map(|spacing| R::of(time / spacing)), time: R::of(time) }
    }
}

/// The rows of one component in a layer, and its neighbouring plane where one is needed.
#[derive(Clone, Copy)]
struct Rows<'a, R> {
    inside: &'a [R],
    beyond: &'a [R],
    extents: [usize; 3],
}

impl<'a, R> Rows<'a, R> {
    /// A row of the layer, `y` counted around.
    fn row(&self, y: usize, z: usize) -> &'a [R] {
        let [nx, ny, nz] = self.extents;
        let y = if y >= ny { y - ny } else { y };
        let (plane, z) = if z < nz { (self.inside, z) } else { (self.beyond, 0) };
        &plane[(z * ny + y) * nx..(z * ny + y + 1) * nx]
    }
}

/// `to += a·(p − q) − b·(r − s)`, all in the order of rows.
#[inline(always)]
fn curl<R: Real>(to: &mut [R], (a, p, q): (R, &[R], &[R]), (b, r, s): (R, &[R], &[R])) {
    let n = to.len();
    let (p, q, r, s) = (&p[..n], &q[..n], &r[..n], &s[..n]);
    for i in 0..n {
        to[i] = to[i] + a * (p[i] - q[i]) - b * (r[i] - s[i]);
    }
}

/// Advances the magnetic field of a layer. `next` is the electric field of the layer above, or of this one if it is alone.
pub fn magnetic<R: Real>(
    extents: [usize; 3],
    (electric, magnetic): (&[R], &mut [R]),
    next: Option<(&[R], usize)>,
    rates: &Rates<R>,
) {
    let [nx, ny, nz] = extents;
    let (each, plane) = (nx * ny * nz, nx * ny);
    let component = |axis: usize| {
        let inside = &electric[axis * each..(axis + 1) * each];
        let beyond = match next {
            Some((other, planes)) => &other[axis * planes * plane..axis * planes * plane + plane],
            None => &inside[..plane],
        };
        Rows { inside, beyond, extents }
    };
    let [ex, ey, ez] = [0, 1, 2].map(component);
    let [dx, dy, dz] = rates.over;
    let (bx, rest) = magnetic.split_at_mut(each);
    let (by, bz) = rest.split_at_mut(each);
    for z in 0..nz {
        for y in 0..ny {
            let row = (z * ny + y) * nx..(z * ny + y + 1) * nx;
            let (bx, by, bz) = (&mut bx[row.clone()], &mut by[row.clone()], &mut bz[row]);
            curl(bx, (dz, ey.row(y, z + 1), ey.row(y, z)), (dy, ez.row(y + 1, z), ez.row(y, z)));
            let (here, aside) = (ez.row(y, z), ey.row(y, z));
            let (above, below) = (ex.row(y, z + 1), ex.row(y, z));
            let (front, back) = (ex.row(y + 1, z), ex.row(y, z));
            let last = nx - 1;
            curl(&mut by[..last], (dx, &here[1..], &here[..last]), (dz, above, below));
            curl(&mut by[last..], (dx, &here[..1], &here[last..]), (dz, &above[last..], &below[last..]));
            curl(&mut bz[..last], (dy, front, back), (dx, &aside[1..], &aside[..last]));
            curl(&mut bz[last..], (dy, &front[last..], &back[last..]), (dx, &aside[..1], &aside[last..]));
        }
    }
}

/// Advances the electric field of a layer. `below` is the magnetic field of the layer below, or of this one.
pub fn electric<R: Real>(
    extents: [usize; 3],
    (electric, magnetic, currents): (&mut [R], &[R], &[R]),
    below: Option<(&[R], usize)>,
    rates: &Rates<R>,
) {
    let [nx, ny, nz] = extents;
    let (each, plane) = (nx * ny * nz, nx * ny);
    let component = |axis: usize| {
        let inside = &magnetic[axis * each..(axis + 1) * each];
        let beyond = match below {
            Some((other, planes)) => {
                &other[(axis * planes + planes - 1) * plane..(axis * planes + planes) * plane]
            }
            None => &inside[each - plane..],
        };
        // Planes are counted from the one below the layer.
        (inside, beyond)
    };
    let row = |(inside, beyond): (&'_ [R], &'_ [R]), y: usize, z: usize| -> std::ops::Range<usize> {
        let _ = (inside.len(), beyond.len());
        (z * ny + y) * nx..(z * ny + y + 1) * nx
    };
    let all = [0, 1, 2].map(component);
    let at = |axis: usize, y: usize, z: Option<usize>| {
        let (inside, beyond) = all[axis];
        match z {
            Some(z) => &inside[row(all[axis], y, z)],
            None => &beyond[y * nx..(y + 1) * nx],
        }
    };
    let [dx, dy, dz] = rates.over;
    let (ex, rest) = electric.split_at_mut(each);
    let (ey, ez) = rest.split_at_mut(each);
    for z in 0..nz {
        let under = z.checked_sub(1);
        for y in 0..ny {
            let left = if y == 0 { ny - 1 } else { y - 1 };
            let place = row(all[0], y, z);
            let current = |axis: usize| &currents[axis * each + place.start..axis * each + place.end];
            let (ex, ey, ez) = (&mut ex[place.clone()], &mut ey[place.clone()], &mut ez[place.clone()]);
            for (to, axis) in [(&mut *ex, 0), (&mut *ey, 1), (&mut *ez, 2)] {
                for (to, j) in to.iter_mut().zip(current(axis)) {
                    *to = *to - rates.time * *j;
                }
            }
            let (bx, by, bz) = (at(0, y, Some(z)), at(1, y, Some(z)), at(2, y, Some(z)));
            curl(ex, (dy, bz, at(2, left, Some(z))), (dz, by, at(1, y, under)));
            let (bx_under, bx_left) = (at(0, y, under), at(0, left, Some(z)));
            let last = nx - 1;
            curl(&mut ey[1..], (dz, &bx[1..], &bx_under[1..]), (dx, &bz[1..], &bz[..last]));
            curl(&mut ey[..1], (dz, bx, bx_under), (dx, bz, &bz[last..]));
            curl(&mut ez[1..], (dx, &by[1..], &by[..last]), (dy, &bx[1..], &bx_left[1..]));
            curl(&mut ez[..1], (dx, by, &by[last..]), (dy, bx, bx_left));
        }
    }
}

/// The energy of some places of a field: half the sum of squares.
pub fn energy<R: Real>(places: &[R]) -> f64 {
    places.iter().map(|x| x.wide() * x.wide()).sum::<f64>() * 0.5
}
