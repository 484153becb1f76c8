//! A laser: a plane of the grid that emits a Gaussian beam along z.
//!
//! The antenna is a sheet of current, which radiates to both sides; what goes backwards leaves through the end of the grid.
//! It stays where it is when a window moves, and is silent once the window has left it behind.

use crate::grid::Grid;

/// A laser beam.
#[derive(Clone, Debug, PartialEq)]
pub struct Laser {
    /// The largest field over `ω`: the momentum, in `mc`, with which electrons swing in it at its focus.
    pub a0: f64,
    /// The frequency, in `ωp`.
    pub frequency: f64,
    /// The time in which the field falls to 1/e of its peak.
    pub duration: f64,
    /// When the peak leaves the antenna.
    pub peak: f64,
    /// The distance in which the field falls to 1/e of its peak, at the focus; infinite for a plane wave.
    pub waist: f64,
    /// Where the beam's axis is along x and y.
    pub centre: [f64; 2],
    /// Where the antenna is along z.
    pub at: f64,
    /// How far beyond the antenna the focus is.
    pub focus: f64,
    /// The axis along which the field swings: 0 or 1.
    pub axis: usize,
}

impl Laser {
    /// The field that the beam has at a place of the antenna's plane, at a time.
    pub fn field(&self, grid: &Grid, [x, y]: [f64; 2], time: f64) -> f64 {
        let since = time - self.peak;
        let envelope = (-(since / self.duration).powi(2)).exp();
        let strength = self.a0 * self.frequency * envelope;
        if !self.waist.is_finite() {
            return strength * (self.frequency * since).cos();
        }
        // Rayleigh's length, and the beam as it is before its focus. Along a flat axis it is not focused.
        let rayleigh = self.frequency * self.waist * self.waist / 2.0;
        let far = -self.focus / rayleigh;
        let wide = self.waist * (1.0 + far * far).sqrt();
        let axes = [x - self.centre[0], y - self.centre[1]];
        let bent = (0..2).filter(|axis| grid.cells[*axis] > 1);
        let squared: f64 = bent.clone().map(|axis| axes[axis] * axes[axis]).sum();
        let (mut strength, mut phase) = (strength, self.frequency * since);
        for _ in bent {
            strength *= (self.waist / wide).sqrt();
            phase += 0.5 * far.atan();
        }
        // `k r² / 2R`, with `R = z (1 + (zR/z)²)`.
        phase -= self.frequency * squared * far / (2.0 * rayleigh * (1.0 + far * far));
        strength * (-squared / (wide * wide)).exp() * phase.cos()
    }

    /// The plane of the grid that emits, counted from the beginning of the run.
    pub fn plane(&self, grid: &Grid) -> i64 {
        (self.at / grid.spacing[2]).round() as i64
    }

    /// The current for a field of one: a sheet radiates half of it to either side, and on a grid a little more, by the
    /// cosine of half the phase between planes.
    pub fn current(&self, grid: &Grid) -> f64 {
        let (dz, dt) = (grid.spacing[2], grid.step);
        let half = (dz / dt * (self.frequency * dt / 2.0).sin()).clamp(-1.0, 1.0).asin();
        -2.0 / dz * half.cos()
    }
}
