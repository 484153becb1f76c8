//! A small fully connected network with rectifiers between its layers, its training (Adam) and its inference.
//!
//! Everything follows from the seed: the first weights, the order of samples, and the bits of every product.

use super::wide::multiply;

/// One layer.
#[derive(Clone, Debug, PartialEq)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Input by input.
    weights: Vec<f32>,
    bias: Vec<f32>,
}

/// The network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    layers: Vec<Layer>,
}

/// What a loss says of one output: the derivative by each number.
pub type Derivative<'a> = dyn FnMut(usize, &[f32], &mut [f32]) + 'a;

/// How a network is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Passes over the samples.
    pub epochs: usize,
    /// Samples in a step.
    pub batch: usize,
    /// The rate of the first step; it falls to a twentieth in the course of the training.
    pub rate: f32,
    /// Where randomness starts.
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Training {
        Training { epochs: 20, batch: 32, rate: 2e-3, seed: 1 }
    }
}

impl Network {
    /// A network whose layers have these widths, inputs and outputs included, with random weights.
    pub fn new(widths: &[usize], seed: u64) -> Network {
        let mut random = fastrand::Rng::with_seed(seed);
        let layer = |pair: &[usize]| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let spread = (6.0 / inputs as f32).sqrt();
            let weights = (0..inputs * outputs).map(|_| (random.f32() * 2.0 - 1.0) * spread).collect();
            Layer { inputs, outputs, weights, bias: vec![0.0; outputs] }
        };
        Network { layers: widths.windows(2).map(layer).collect() }
    }

    /// How many numbers it has learned.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.weights.len() + layer.bias.len()).sum()
    }

    /// The outputs for one input, in `out`; `scratch` is kept from call to call.
    pub fn infer(&self, input: &[f32], scratch: &mut Vec<f32>, out: &mut Vec<f32>) {
        scratch.clear();
        scratch.extend_from_slice(input);
        for (at, layer) in self.layers.iter().enumerate() {
            out.clear();
            out.extend_from_slice(&layer.bias);
            multiply(1, layer.inputs, layer.outputs, scratch, &layer.weights, out);
            if at + 1 < self.layers.len() {
                out.iter_mut().for_each(|x| *x = x.max(0.0));
                std::mem::swap(scratch, out);
            }
        }
    }

    /// Trains the network. `inputs` has the samples one after the other; `derivative` is asked for the derivative of the loss
    /// of a sample by its outputs.
    pub fn train(&mut self, inputs: &[f32], training: Training, derivative: &mut Derivative<'_>) {
        let width = self.layers[0].inputs;
        let count = inputs.len() / width;
        let mut order: Vec<usize> = (0..count).collect();
        let mut random = fastrand::Rng::with_seed(training.seed);
        let mut moments: Vec<[Vec<f32>; 4]> = self.layers.iter().map(Layer::moments).collect();
        let total = (training.epochs * count.div_ceil(training.batch)).max(1);
        let mut step = 0;
        for _ in 0..training.epochs {
            random.shuffle(&mut order);
            for batch in order.chunks(training.batch) {
                let progress = step as f32 / total as f32;
                let rate = training.rate * (1.0 - 0.95 * progress);
                step += 1;
                self.step(inputs, batch, (rate, step), &mut moments, derivative);
            }
        }
    }

    fn step(
        &mut self,
        inputs: &[f32],
        batch: &[usize],
        (rate, step): (f32, usize),
        moments: &mut [[Vec<f32>; 4]],
        derivative: &mut Derivative<'_>,
    ) {
        let (m, width) = (batch.len(), self.layers[0].inputs);
        let gathered: Vec<f32> =
            batch.iter().flat_map(|at| &inputs[at * width..(at + 1) * width]).copied().collect();
        let mut values = vec![gathered];
        for (at, layer) in self.layers.iter().enumerate() {
            let mut out: Vec<f32> = (0..m).flat_map(|_| layer.bias.iter().copied()).collect();
            multiply(m, layer.inputs, layer.outputs, &values[at], &layer.weights, &mut out);
            if at + 1 < self.layers.len() {
                out.iter_mut().for_each(|x| *x = x.max(0.0));
            }
            values.push(out);
        }
        let outputs = self.layers.last().map_or(0, |layer| layer.outputs);
        let mut gradient = vec![0f32; m * outputs];
        let last = values.last().expect("there is an output");
        for (row, sample) in batch.iter().enumerate() {
            let span = row * outputs..(row + 1) * outputs;
            derivative(*sample, &last[span.clone()], &mut gradient[span]);
        }
        let share = 1.0 / m as f32;
        for at in (0..self.layers.len()).rev() {
            let layer = &mut self.layers[at];
            let (k, n) = (layer.inputs, layer.outputs);
            let mut of_weights = vec![0f32; k * n];
            multiply(k, m, n, &transposed(&values[at], m, k), &gradient, &mut of_weights);
            let mut of_bias = vec![0f32; n];
            gradient.chunks(n).for_each(|row| of_bias.iter_mut().zip(row).for_each(|(b, g)| *b += g));
            if at > 0 {
                let mut before = vec![0f32; m * k];
                multiply(m, n, k, &gradient, &transposed(&layer.weights, k, n), &mut before);
                before.iter_mut().zip(&values[at]).for_each(|(g, x)| {
                    if *x <= 0.0 {
                        *g = 0.0;
                    }
                });
                gradient = before;
            }
            let [first, second, bias_first, bias_second] = &mut moments[at];
            adam(&mut layer.weights, &of_weights, first, second, (rate, share, step));
            adam(&mut layer.bias, &of_bias, bias_first, bias_second, (rate, share, step));
        }
    }
}

impl Layer {
    fn moments(&self) -> [Vec<f32>; 4] {
        let (weights, bias) = (self.weights.len(), self.bias.len());
        [vec![0.0; weights], vec![0.0; weights], vec![0.0; bias], vec![0.0; bias]]
    }
}

fn transposed(matrix: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; matrix.len()];
    for row in 0..rows {
        for column in 0..columns {
            out[column * rows + row] = matrix[row * columns + column];
        }
    }
    out
}

fn adam(
    values: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    (rate, share, step): (f32, f32, usize),
) {
    const FIRST: f32 = 0.9;
    const SECOND: f32 = 0.999;
    let power = |base: f32| 1.0 - base.powi(step.min(100_000) as i32);
    let rate = rate * power(SECOND).sqrt() / power(FIRST);
    for (((value, g), m), v) in values.iter_mut().zip(gradient).zip(first).zip(second) {
        let g = g * share;
        *m = FIRST * *m + (1.0 - FIRST) * g;
        *v = SECOND * *v + (1.0 - SECOND) * g * g;
        *value -= rate * *m / (v.sqrt() + 1e-8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_what_no_line_separates_and_does_so_again() {
        let points = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0f32]];
        let inputs: Vec<f32> = points.iter().cycle().take(400).flatten().copied().collect();
        let wanted = |at: usize| if (at % 4 == 1) || (at % 4 == 2) { 1.0 } else { 0.0 };
        let make = || {
            let mut network = Network::new(&[2, 16, 1], 5);
            let training = Training { epochs: 60, rate: 1e-2, ..Training::default() };
            network.train(&inputs, training, &mut |at, out, d| d[0] = out[0] - wanted(at));
            network
        };
        let network = make();
        assert_eq!(network, make(), "the seed decides everything");
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        for (at, point) in points.iter().enumerate() {
            network.infer(point, &mut scratch, &mut out);
            assert!((out[0] - wanted(at)).abs() < 0.3, "{point:?} gives {out:?}");
        }
    }
}
