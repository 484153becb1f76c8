//! Checkpoints: a run as it is between two iterations, from which it goes on as if it had not stopped.
//!
//! A file has a line of JSON that says what it is, and then the numbers of fields and particles as they lie in memory. It is
//! there as a whole or not at all. Fields and particles are written in the order in which the next iteration finds them, and
//! which end of its memory a tile uses is kept, too: results after a restart are the same bits.

use std::path::Path;

use bytemuck::{cast_slice, pod_read_unaligned};
use serde::{Deserialize, Serialize};
use tiercel_core::Machine;

use crate::absorb;
use crate::batch::{NUMBERS, Single};
use crate::error::PicError;
use crate::hash::Hash;
use crate::setup::Setup;
use crate::simd::Real;
use crate::simulation::{Simulation, Ways};
use crate::store::{Placement, Store};
use crate::team::Team;

/// The first line of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    precision: String,
    /// Of everything that the deck says.
    deck: u64,
    iteration: u64,
    /// How many layers a window has moved on.
    moved: u64,
    /// By tile and species: which end of the memory is used.
    high: Vec<bool>,
    /// By tile and species: how many particles each cell has.
    counts: Vec<Vec<u32>>,
    /// Of all numbers that follow.
    hash: u64,
}

const FORMAT: &str = "tiercel-pic-2";

/// What distinguishes decks.
fn identity(setup: &Setup) -> u64 {
    let mut hash = Hash::new();
    hash.bytes(format!("{setup:?}").as_bytes());
    hash.value()
}

/// Writes a checkpoint; what was there before stays until it is whole.
pub fn save<R: Real>(simulation: &mut Simulation<R>, path: &Path) -> Result<(), PicError> {
    let mut numbers: Vec<u8> = Vec::new();
    simulation.layers(false, |_, all| numbers.extend_from_slice(cast_slice(all)))?;
    simulation.each_memory(|all| numbers.extend_from_slice(cast_slice(all)))?;
    let (mut high, mut counts) = (Vec::new(), Vec::new());
    for tile in 0..simulation.tiles.len() {
        for species in 0..simulation.setup.species.len() {
            let cells = simulation.tiles[tile].parcels[species].counts.len();
            let mut of = vec![0u32; cells];
            let end = simulation.visit_tile(tile, species, |cell, single: &Single<R>| {
                of[cell] += 1;
                numbers.extend_from_slice(cast_slice(single));
            })?;
            counts.push(of);
            high.push(end);
        }
    }
    if !simulation.leads() {
        return Ok(());
    }
    let mut hash = Hash::new();
    hash.bytes(&numbers);
    let header = Header {
        format: FORMAT.to_string(),
        precision: R::NAME.to_string(),
        deck: identity(&simulation.setup),
        iteration: simulation.iteration,
        moved: simulation.moved,
        high,
        counts,
        hash: hash.value(),
    };
    let mut file = serde_json::to_vec(&header)
        .map_err(|error| PicError::Checkpoint { path: path.to_path_buf(), why: error.to_string() })?;
    file.push(b'\n');
    file.extend_from_slice(&numbers);
    tiercel_run::files::replace(path, file)
        .map_err(|error| PicError::File { path: path.to_path_buf(), error })
}

/// Goes on from a checkpoint of the same deck.
pub fn resume<R: Real>(
    path: &Path,
    setup: Setup,
    ways: Ways,
    machine: &Machine,
    placement: Box<dyn Placement>,
    team: Team,
) -> Result<Simulation<R>, PicError> {
    let wrong = |why: &str| PicError::Checkpoint { path: path.to_path_buf(), why: why.to_string() };
    let file = std::fs::read(path).map_err(|error| PicError::File { path: path.to_path_buf(), error })?;
    let end = file
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| wrong("this is no checkpoint of particles"))?;
    let header: Header =
        serde_json::from_slice(&file[..end]).map_err(|_| wrong("this is no checkpoint of particles"))?;
    if header.format != FORMAT {
        return Err(wrong("it was written by another version"));
    }
    if header.deck != identity(&setup) || header.precision != R::NAME {
        return Err(wrong("it was written by another deck"));
    }
    let bytes = &file[end + 1..];
    let mut hash = Hash::new();
    hash.bytes(bytes);
    if hash.value() != header.hash {
        return Err(wrong("it is damaged: its numbers are not those that were written"));
    }
    let numbers: Vec<R> = bytes.chunks_exact(size_of::<R>()).map(pod_read_unaligned).collect();
    let mut simulation = Simulation::empty(setup, ways, Store::open(machine, placement)?, team)?;
    let kinds = simulation.setup.species.len();
    let (tiles, own) = (simulation.tiles.len(), simulation.own_tiles());
    // Where the fields of each layer begin, and then what its ends remember.
    let of = |layer| absorb::objects::<R>(&simulation.setup.grid, layer).map(|bytes| bytes / size_of::<R>());
    let (mut begins, mut fields) = ([Vec::new(), Vec::new()], 0);
    for which in 0..2 {
        for layer in 0..simulation.setup.grid.layers() {
            let [all, _, sides, ends] = of(layer);
            begins[which].push(fields);
            fields += if which == 0 { all } else { sides + ends };
        }
    }
    let particles: usize = header.counts.iter().flatten().map(|count| *count as usize).sum();
    if header.counts.len() != tiles * kinds
        || header.high.len() != tiles * kinds
        || numbers.len() != fields + NUMBERS * particles
    {
        return Err(wrong("it is damaged: it has too few numbers, or too many"));
    }
    let (fields, particles) = numbers.split_at(fields);
    let mut singles =
        particles.chunks_exact(NUMBERS).map(|all| std::array::from_fn::<R, NUMBERS, _>(|at| all[at]));
    for (at, counts) in header.counts.into_iter().enumerate() {
        if counts.len() != simulation.tiles[at / kinds].parcels[at % kinds].counts.len() {
            return Err(wrong("it is damaged: a tile has other cells"));
        }
        let count = counts.iter().map(|count| *count as usize).sum();
        let some: Vec<Single<R>> = singles.by_ref().take(count).collect();
        if own.contains(&(at / kinds)) {
            simulation.settle(at / kinds, at % kinds, &some, counts, header.high[at])?;
        }
    }
    simulation.make_fields()?;
    simulation.change_fields(|layer, all| {
        all.copy_from_slice(&fields[begins[0][layer]..][..all.len()]);
    })?;
    simulation.change_memories(|layer, all| {
        all.copy_from_slice(&fields[begins[1][layer]..][..all.len()]);
        begins[1][layer] += all.len();
    })?;
    simulation.iteration = header.iteration;
    simulation.moved = header.moved;
    Ok(simulation)
}
