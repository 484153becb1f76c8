//! `tiercel ann`: an index of vectors that may be larger than fast memory.

mod bench;
mod build;
mod growth;
mod info;
mod page;
pub mod reproduce;
mod search;
mod tune;

use std::path::Path;

use anyhow::bail;
use clap::{Args, Subcommand};
use tiercel_ann::data::{Ids, read_ids, read_vectors};
use tiercel_ann::{FastMemory, Matrix};

const EXAMPLES: &str = "\
Examples:
  tiercel ann build base.fvecs --out words.index --metric cosine --fast 20%
      an index whose vectors stay in its file, searched with a fifth of the memory
  tiercel ann search words.index queries.fvecs -k 10 --recall 0.95 --truth truth.ivecs
      the ten nearest of each query, and how many of the true ten they are
  tiercel ann bench words.index queries.fvecs --truth truth.ivecs --html bench.html
      recall against queries a second, with all vectors in memory and with vectors in the file

Vectors are npy, fvecs, bvecs or ivecs by their ending; neighbours npy or ivecs.";

/// Build and search an index of vectors that may be larger than fast memory.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Build(build::Arguments),
    Search(search::Arguments),
    Tune(tune::Arguments),
    Bench(bench::Arguments),
    Growth(growth::Arguments),
    Info(info::Arguments),
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    crate::files::end_when_interrupted();
    match &arguments.verb {
        Verb::Build(arguments) => build::run(arguments),
        Verb::Search(arguments) => search::run(arguments),
        Verb::Tune(arguments) => tune::run(arguments),
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Growth(arguments) => growth::run(arguments),
        Verb::Info(arguments) => info::run(arguments),
    }
}

/// `20%`, `0.2`, or an amount such as `2GiB`.
fn fast(text: &str) -> anyhow::Result<FastMemory> {
    text.parse().map_err(anyhow::Error::msg)
}

fn vectors(path: &Path) -> anyhow::Result<Matrix<'static>> {
    Ok(read_vectors(path)?)
}

/// The true neighbours of queries.
fn truth(path: &Path, queries: usize, k: usize) -> anyhow::Result<Ids> {
    let ids = read_ids(path)?;
    let there = ids.labels.len() / ids.width.max(1);
    if there < queries || ids.width < k {
        bail!(
            "{}: it has {} neighbours of {there} queries; {k} of {queries} are wanted",
            path.display(),
            ids.width
        );
    }
    Ok(ids)
}

/// The first so many rows of queries.
fn first(queries: Matrix<'static>, limit: Option<usize>) -> Matrix<'static> {
    match limit {
        Some(limit) if limit < queries.len() => queries.pick(0..limit),
        _ => queries,
    }
}
