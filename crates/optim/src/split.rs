//! Which parameters' states stay on a GPU, which are streamed to it and updated there, and which the processor updates.
//!
//! States that stay cost memory and move nothing. For the others two ways work beside each other: the processor reads and writes
//! its memory, the link carries states in and out. The update has ended when both have, so it is shortest where they end
//! together. This is DeepSpeed's twin-flow ratio and SuperOffload's buckets on the GPU, solved for rather than given by hand.

/// Bytes of host memory that an update by the processor reads and writes for each parameter.
pub const PASS: f64 = 28.0;

/// Bytes of master and moments.
pub const STATES: f64 = 12.0;

/// What is known of the machine, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of host memory, in an update by all threads.
    pub host: f64,
    /// From the host to the GPU.
    pub inward: f64,
    /// From the GPU to the host.
    pub outward: f64,
}

/// A share of the parameters for each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Their states stay on the GPU.
    pub gpu: f64,
    /// Their states are streamed to the GPU, updated there, and streamed back.
    pub streamed: f64,
    /// The processor updates them.
    pub host: f64,
    /// The seconds of the update, beside nothing else.
    pub seconds: f64,
}

/// The split with the shortest update for so many parameters with numbers of so many bytes, where the GPU has `room` bytes for
/// states that stay.
///
/// Inward go the new parameters of what the processor updates, and gradient and states of what is streamed; outward the
/// states of that. Gradients have left before, in the backward pass. Directions of the link do not disturb each other.
pub fn split(parameters: f64, bytes: f64, room: f64, rates: Rates) -> Split {
    if parameters <= 0.0 {
        return Split { gpu: 1.0, streamed: 0.0, host: 0.0, seconds: 0.0 };
    }
    // A gradient waits beside its states.
    let gpu = (room.max(0.0) / (STATES + bytes) / parameters).min(1.0);
    let rest = 1.0 - gpu;
    let seconds = |part: f64| {
        let by_host = PASS * (1.0 - part) / rates.host;
        let inward = (bytes * (1.0 - part) + (STATES + bytes) * part) / rates.inward;
        let outward = STATES * part / rates.outward;
        by_host.max(inward).max(outward) * rest * parameters
    };
    // The longest of three lines, one that falls and two that rise with the part that is streamed: the least is where the falling
    // one meets the first of the others, or at an end.
    let meets_inward =
        (PASS / rates.host - bytes / rates.inward) / (PASS / rates.host + STATES / rates.inward);
    let meets_outward = (PASS / rates.host) / (PASS / rates.host + STATES / rates.outward);
    let part = meets_inward.min(meets_outward);
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    Split { gpu, streamed: part * rest, host: (1.0 - part) * rest, seconds: seconds(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(part: f64, bytes: f64, rates: Rates) -> f64 {
        let host = PASS * (1.0 - part) / rates.host;
        let inward = (bytes * (1.0 - part) + (STATES + bytes) * part) / rates.inward;
        host.max(inward).max(STATES * part / rates.outward)
    }

    #[test]
    fn no_other_part_is_better() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let mut rate = || 1e9 * 10f64.powf(random.f64() * 3.0);
            let rates = Rates { host: rate(), inward: rate(), outward: rate() };
            let bytes = if random.bool() { 2.0 } else { 4.0 };
            let found = split(1e9, bytes, 0.0, rates);
            let best =
                (0..=1000).map(|i| longest(f64::from(i) / 1000.0, bytes, rates)).fold(f64::MAX, f64::min);
            assert!(found.seconds <= best * 1e9 * (1.0 + 1e-9), "{rates:?}: {found:?} for {best}");
            assert!((found.gpu + found.streamed + found.host - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn memory_on_the_gpu_is_used_first() {
        let rates = Rates { host: 119e9, inward: 55e9, outward: 55e9 };
        let half = split(4e9, 2.0, 28e9, rates);
        assert!((half.gpu - 0.5).abs() < 1e-9);
        assert!((half.seconds * 2.0 - split(4e9, 2.0, 0.0, rates).seconds).abs() < 1e-9);
        assert_eq!(split(4e9, 2.0, 1e15, rates).gpu, 1.0);
        assert_eq!(split(4e9, 2.0, 1e15, rates).seconds, 0.0);
        assert_eq!(split(0.0, 2.0, 0.0, rates).seconds, 0.0);
    }

    #[test]
    fn a_slow_link_carries_no_states() {
        let slow = Rates { host: 400e9, inward: 10e9, outward: 10e9 };
        assert_eq!(split(1e9, 2.0, 0.0, slow).streamed, 0.0);
        // Where a direction of the link carries more than 12/28 of what host memory does, more than half is streamed.
        let fast = Rates { host: 100e9, inward: 60e9, outward: 60e9 };
        assert!(split(1e9, 2.0, 0.0, fast).streamed > 0.5);
    }
}
