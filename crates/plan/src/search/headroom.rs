//! Room over time: bytes at every step, of which stretches are taken and given back.
//!
//! Steps are kept in blocks with the least of each, so that asking whether a tensor fits for a long time, and taking
//! the room, look at blocks rather than steps.

/// The bytes that are left at every step.
#[derive(Clone, Debug)]
pub(crate) struct Headroom {
    /// For each step, less what is taken of its whole block.
    bytes: Vec<f64>,
    /// What every step of a block has more than that.
    more: Vec<f64>,
    /// The least that a step of the block has.
    least: Vec<f64>,
}

const BLOCK: usize = 64;

impl Headroom {
    /// Nothing taken.
    pub(crate) fn new(bytes: Vec<f64>) -> Headroom {
        let least: Vec<f64> = bytes.chunks(BLOCK).map(least).collect();
        Headroom { more: vec![0.0; least.len()], bytes, least }
    }

    /// What is left at a step.
    pub(crate) fn at(&self, step: usize) -> f64 {
        self.bytes[step] + self.more[step / BLOCK]
    }

    /// What is left at each step of a stretch.
    pub(crate) fn stretch(&self, from: usize, to: usize) -> Vec<f64> {
        (from..to).map(|step| self.at(step)).collect()
    }

    /// Adds bytes to every step of a stretch.
    pub(crate) fn add(&mut self, from: usize, to: usize, bytes: f64) {
        each_block(from, to, |block, from, to| {
            let steps = block * BLOCK..((block + 1) * BLOCK).min(self.bytes.len());
            if (from, to) == (steps.start, steps.end) {
                self.more[block] += bytes;
                self.least[block] += bytes;
            } else {
                self.bytes[from..to].iter_mut().for_each(|x| *x += bytes);
                self.least[block] = least(&self.bytes[steps]) + self.more[block];
            }
            true
        });
    }

    /// Whether so many bytes are left at every step of a stretch.
    pub(crate) fn fits(&self, from: usize, to: usize, bytes: f64) -> bool {
        each_block(from, to, |block, from, to| {
            self.least[block] >= bytes || {
                let wanted = bytes - self.more[block];
                self.bytes[from..to].iter().all(|x| *x >= wanted)
            }
        })
    }
}

fn least(bytes: &[f64]) -> f64 {
    bytes.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Calls `each` with the part of a stretch in every block as long as it says so; returns whether it always did.
fn each_block(from: usize, to: usize, mut each: impl FnMut(usize, usize, usize) -> bool) -> bool {
    let mut at = from;
    while at < to {
        let end = ((at / BLOCK + 1) * BLOCK).min(to);
        if !each(at / BLOCK, at, end) {
            return false;
        }
        at = end;
    }
    true
}

#[cfg(test)]
mod tests {
    use tiercel_testbed::for_seeds;

    use super::Headroom;

    #[test]
    fn it_is_an_array() {
        for_seeds(100, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let steps = random.usize(1..400);
            let mut naive: Vec<f64> = (0..steps).map(|_| f64::from(random.u32(0..1000))).collect();
            let mut room = Headroom::new(naive.clone());
            for _ in 0..200 {
                let (a, b) = (random.usize(0..=steps), random.usize(0..=steps));
                let (from, to) = (a.min(b), a.max(b));
                let bytes = f64::from(random.i32(-500..500));
                if random.bool() {
                    room.add(from, to, bytes);
                    naive[from..to].iter_mut().for_each(|x| *x += bytes);
                }
                assert_eq!(room.fits(from, to, bytes), naive[from..to].iter().all(|x| *x >= bytes));
                assert_eq!(room.stretch(from, to), naive[from..to]);
            }
        });
    }
}
