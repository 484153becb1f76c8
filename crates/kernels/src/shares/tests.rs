//! Shares cover everything once, whatever the extents and the threads, and refuse what would overlap.

use super::*;
use crate::pool::Pool;

/// Every number is handed out once, whatever the extents and the threads.
#[test]
fn boxes_cover_everything_once() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let extents = [0; 4].map(|_: usize| random.usize(1..6));
        let sizes = extents.map(|extent| random.usize(1..=extent));
        let mut order = [0, 1, 2, 3];
        random.shuffle(&mut order);
        let mut numbers = vec![0u32; extents.iter().product()];
        let boxes = Boxes::new(&mut numbers, extents, sizes).ordered(order);
        Pool::new(random.usize(1..4)).each(boxes, |_, mut boxes| {
            for unit in boxes.units() {
                let mut one = boxes.get(unit);
                let [a, b, c, _] = one.ranges().clone();
                for at in a.flat_map(|a| b.clone().map(move |b| (a, b))) {
                    c.clone().for_each(|c| one.run([at.0, at.1, c]).iter_mut().for_each(|n| *n += 1));
                }
            }
        });
        assert!(numbers.iter().all(|n| *n == 1), "{extents:?} in {sizes:?}: {numbers:?}");
    }
}

/// Every phase of an image is the cells that it should be, and phases together are all of it.
#[test]
fn sheets_cover_every_phase_once() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..200 {
        let [images, rows, height, width] = [0; 4].map(|_: usize| random.usize(1..7));
        let stride = [random.usize(1..3), random.usize(1..3)];
        let mut numbers = vec![0usize; images * rows * height * width];
        let threads = random.usize(1..4);
        for (a, b) in (0..stride[0]).flat_map(|a| (0..stride[1]).map(move |b| (a, b))) {
            let grid =
                [(height - a.min(height)).div_ceil(stride[0]), (width - b.min(width)).div_ceil(stride[1])];
            let lattice = Lattice {
                start: (a * width + b).min(numbers.len()),
                rows,
                row: height * width,
                images,
                image: rows * height * width,
                grid,
                steps: [stride[0] * width, stride[1]],
            };
            let columns = images * grid[0] * grid[1];
            let sheet = Sheet::new(&mut numbers, lattice).cut([rows, columns.div_ceil(threads)], threads);
            Pool::new(threads).each(sheet, |_, mut block| {
                let mut columns = block.columns();
                while !columns.is_empty() {
                    let rows = block.rows();
                    let mut stretch = block.stretch(columns.clone());
                    let (count, step) = (stretch.count, stretch.step);
                    for row in rows {
                        stretch.row(row).iter_mut().step_by(step).for_each(|n| *n += 1);
                    }
                    columns.start += count;
                }
            });
        }
        assert!(numbers.iter().all(|n| *n == 1), "{images} {rows} {height} {width} {stride:?}: {numbers:?}");
    }
}

#[test]
#[should_panic(expected = "a row of the block")]
fn a_block_keeps_to_its_rows() {
    let mut numbers = [0f32; 12];
    let sheet = Sheet::new(&mut numbers, Lattice::matrix(4, 3, 3)).cut([2, 3], 1);
    Pool::new(1).each(sheet, |_, mut block| block.stretch(0..3).row(2)[0] = 1.0);
}

#[test]
#[should_panic(expected = "lie beside each other")]
fn a_matrix_whose_rows_overlap_is_refused() {
    Sheet::new(&mut [0f32; 12], Lattice::matrix(4, 3, 2));
}
