//! A deck as it stands in its file: what TOML has, before anything is judged.
//!
//! What has a number for each axis is a list here: a deck of two dimensions has two, for x and z.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeckFile {
    #[serde(default)]
    pub(super) seed: u64,
    pub(super) dimensions: Option<Spanned<i64>>,
    pub(super) precision: Option<Spanned<String>>,
    pub(super) order: Option<Spanned<i64>>,
    pub(super) pusher: Option<Spanned<String>>,
    pub(super) steps: Spanned<i64>,
    #[serde(default)]
    pub(super) units: UnitsFile,
    pub(super) grid: Spanned<GridFile>,
    #[serde(default)]
    pub(super) species: Vec<SpeciesFile>,
    #[serde(default)]
    pub(super) laser: Vec<LaserFile>,
    pub(super) window: Option<Spanned<WindowFile>>,
    #[serde(default)]
    pub(super) output: OutputFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnitsFile {
    pub(super) density: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GridFile {
    pub(super) cells: Spanned<Vec<i64>>,
    pub(super) length: Spanned<Vec<f64>>,
    pub(super) tile: Option<Spanned<Vec<i64>>>,
    pub(super) step: Option<Spanned<f64>>,
    pub(super) courant: Option<Spanned<f64>>,
    pub(super) boundary: Option<Spanned<Ends>>,
    pub(super) absorber: Option<Spanned<i64>>,
}

/// The same ends for all axes, or for each its own.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Ends {
    All(String),
    Each(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowFile {
    pub(super) from: Option<Spanned<f64>>,
    pub(super) speed: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaserFile {
    pub(super) a0: Spanned<f64>,
    pub(super) frequency: Spanned<f64>,
    pub(super) duration: Spanned<f64>,
    pub(super) peak: Spanned<f64>,
    pub(super) waist: Option<Spanned<f64>>,
    pub(super) centre: Option<Spanned<Vec<f64>>>,
    pub(super) at: Spanned<f64>,
    #[serde(default)]
    pub(super) focus: f64,
    pub(super) polarization: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpeciesFile {
    pub(super) name: Spanned<String>,
    pub(super) charge: Spanned<f64>,
    pub(super) mass: Spanned<f64>,
    pub(super) density: Spanned<f64>,
    pub(super) per_cell: Spanned<Vec<i64>>,
    pub(super) start: Option<Spanned<String>>,
    pub(super) thermal: Option<Spanned<Vec<f64>>>,
    pub(super) drift: Option<[f64; 3]>,
    pub(super) from: Option<Spanned<Vec<f64>>>,
    pub(super) to: Option<Spanned<Vec<f64>>>,
    pub(super) ramp: Option<Spanned<f64>>,
    pub(super) centre: Option<Spanned<Vec<f64>>>,
    pub(super) size: Option<Spanned<Vec<f64>>>,
    #[serde(default)]
    pub(super) wave: Vec<WaveFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaveFile {
    pub(super) axis: Spanned<String>,
    pub(super) amplitude: f64,
    pub(super) modes: Spanned<Vec<i64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutputFile {
    pub(super) every: Option<Spanned<i64>>,
    pub(super) measure: Option<Spanned<i64>>,
    pub(super) format: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) particles: bool,
}
