//! `tiercel ann growth`: how time and memory grow with the number of vectors, and what a billion would take by the formulas of section
//! 3.3.4 of the dissertation's chapter on HM-ANN and by those of our own file.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tiercel_ann::data::Ids;
use tiercel_ann::hm::Memory;
use tiercel_ann::{
    Dtype, FastMemory, Index, Matrix, Metric, Needs, Point, SaveOptions, Setting, Spec, Tiered, Timed, Width,
};
use tiercel_core::Bytes;
use tiercel_run::cores::time_used;
use tiercel_session::cores;

use super::{fast, first, vectors};
use crate::amounts::{count, recall, threads};
use crate::answer::Answer;
use crate::figures::grouped;
use crate::progress::Notes;

/// Build indexes of ever more of a file's vectors, and measure how time and memory grow.
#[derive(Args)]
pub struct Arguments {
    /// The vectors: npy, fvecs, bvecs or ivecs
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// The queries; their true neighbours are found by looking at every vector
    #[arg(value_name = "QUERIES")]
    queries: PathBuf,
    /// How many vectors each index has [default: a tenth, a third, and all]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = count)]
    sizes: Vec<u64>,
    /// What near means: l2, ip or cosine
    #[arg(long, value_name = "METRIC", default_value = "l2")]
    metric: Metric,
    /// What numbers are kept as: f32, f16, bf16, u8 or i8 [default: as they come]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// Links a node, twice as many on the lowest level
    #[arg(long, value_name = "N", default_value_t = 16)]
    m: usize,
    /// The width of the beam that finds a new vector's links
    #[arg(long, value_name = "N", default_value_t = 100)]
    ef_construction: usize,
    /// How many neighbours of each query
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// The recall to reach
    #[arg(long, value_name = "0.95", default_value = "0.95", value_parser = recall, allow_hyphen_values = true)]
    recall: f64,
    /// Fast memory where vectors stay in the file
    #[arg(long, value_name = "20%|2GiB", default_value = "20%", value_parser = fast, allow_hyphen_values = true)]
    fast: FastMemory,
    /// Fast memory of the machine that a billion vectors are calculated for: the paper's has so much
    #[arg(long, value_name = "96GiB", default_value = "96GiB")]
    machine: Bytes,
    /// Where the index files are while they are searched [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Only so many queries
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
    /// Threads that build [default: one a core]; one searches
    #[arg(long, value_name = "N", value_parser = threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    #[command(flatten)]
    answer: Answer,
}

/// How many vectors are calculated for at the end.
const BILLION: u64 = 1_000_000_000;

/// What one size came to.
struct Size {
    vectors: u64,
    built: f64,
    busy: f64,
    memory: Bytes,
    file: Bytes,
    resident: Bytes,
    links: f64,
    inside: Option<Point>,
    outside: Option<Point>,
}

impl Size {
    /// Processor time of building by N · log2 N, in nanoseconds.
    fn law(&self) -> f64 {
        let n = self.vectors as f64;
        self.busy * 1e9 / (n * n.log2()).max(1.0)
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let data = vectors(&arguments.data)?;
    let queries = first(vectors(&arguments.queries)?, Some(arguments.limit));
    let all = data.len() as u64;
    let mut sizes = arguments.sizes.clone();
    if sizes.is_empty() {
        sizes = vec![all / 10, all / 3, all];
    }
    if let Some(much) = sizes.iter().find(|size| **size > all || **size == 0) {
        bail!("{}: it has {all} vectors; {much} are wanted", arguments.data.display());
    }
    let notes = Notes::new();
    let mut found = Vec::new();
    for vectors in sizes {
        notes.say(&format!("{} vectors", grouped(vectors)));
        found.push(size(arguments, &data.slice(0..vectors as usize), &queries)?);
    }
    drop(notes);
    let Some(last) = found.last() else { bail!("no size is wanted") };
    let spec = spec(arguments, &data);
    let hours = last.law() * 1e-9 * BILLION as f64 * (BILLION as f64).log2() / 3600.0;
    if arguments.answer.json {
        let sizes: Vec<Value> = found.iter().map(spelled).collect();
        let billion = document(&spec, BILLION, last.links, arguments.machine);
        let document = json!({"measured": true, "recall": arguments.recall, "k": arguments.k, "sizes": sizes,
            "calculated": billion, "calculated_core_hours": hours});
        return Ok(format!("{document:#}\n"));
    }
    let mut page = table(arguments, &found, &spec);
    page.push_str(&needs(&spec, BILLION, last.links, arguments.machine));
    // Writing to a string never fails.
    let _ = writeln!(
        page,
        "  building    {hours:.0} hours of one core like these, by N · log2 N and the last row's nanoseconds"
    );
    Ok(page)
}

fn spec(arguments: &Arguments, data: &Matrix<'_>) -> Spec {
    Spec {
        m: arguments.m,
        ef_construction: arguments.ef_construction,
        seed: arguments.answer.seed,
        ..Spec::new(data.dim(), arguments.metric, arguments.dtype.unwrap_or(data.dtype()))
    }
}

/// Builds, saves and searches an index of these vectors; nothing of it stays.
fn size(arguments: &Arguments, data: &Matrix<'_>, queries: &Matrix<'_>) -> anyhow::Result<Size> {
    let threads = arguments.threads.unwrap_or_else(cores);
    let mut index = Index::new(spec(arguments, data))?;
    let (begun, before) = (Instant::now(), time_used());
    index.add_items(data, None, threads)?;
    let (built, busy) = (begun.elapsed().as_secs_f64(), time_used().saturating_sub(before).as_secs_f64());
    let truth = index.exact(queries, arguments.k, threads)?;
    let truth = Ids { width: arguments.k, labels: truth.labels };
    let (memory, links) = (index.resident(), index.mean_links());
    let asked = Asked { queries, truth: &truth, k: arguments.k, recall: arguments.recall };
    let timed = Timed::Memory(&index);
    let inside = asked.reached(&timed, timed.widths(arguments.k))?;
    let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    let file = Beside(folder.join(format!("tiercel-growth-{}.index", std::process::id())));
    let options = SaveOptions {
        code_bits: index.code_bits_for(arguments.fast, 1),
        threads,
        fast: Some(arguments.fast),
        ..SaveOptions::default()
    };
    index.save(&file.0, &options)?;
    drop(index);
    let tiered = Tiered::open(&file.0, arguments.fast, 1)?;
    let outside = asked.reached(&Timed::File(&tiered), ladder(tiered.settings(), arguments.k))?;
    Ok(Size {
        vectors: data.len() as u64,
        built,
        busy,
        memory,
        file: tiered.file_bytes(),
        resident: tiered.resident(),
        links,
        inside,
        outside,
    })
}

/// Settings from the cheapest on, each for the best that was measured of it when the index was saved.
fn ladder(settings: &[Setting], k: usize) -> Vec<Width> {
    let mut settings: Vec<&Setting> = settings.iter().filter(|s| s.rerank as usize >= k).collect();
    settings.sort_by_key(|s| s.ef + 16 * s.rerank);
    let mut best = 0.0;
    settings.retain(|s| {
        s.recall > best && {
            best = s.recall;
            true
        }
    });
    settings.into_iter().map(|s| (s.ef as usize, Some(s.rerank as usize))).collect()
}

/// What is asked of every index.
struct Asked<'a> {
    queries: &'a Matrix<'a>,
    truth: &'a Ids,
    k: usize,
    recall: f64,
}

impl Asked<'_> {
    /// The first setting that reaches the recall.
    fn reached(&self, timed: &Timed<'_>, widths: Vec<Width>) -> anyhow::Result<Option<Point>> {
        for width in widths {
            let clock: fn() -> Duration = time_used;
            let point = timed.point(self.queries, self.truth, (self.k, 1), width, clock)?;
            if point.recall >= self.recall {
                return Ok(Some(point));
            }
        }
        Ok(None)
    }
}

/// A file that is gone when this is.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // It may not have come to be.
        let _ = std::fs::remove_file(Path::new(&self.0));
    }
}

fn spelled(size: &Size) -> Value {
    let point = |point: &Option<Point>| {
        point.as_ref().map(|p| {
            json!({"ef": p.ef, "rerank": p.rerank, "recall": p.recall, "qps": p.qps, "busy_qps": p.busy_qps,
                "p50_us": p.p50 * 1e6, "p99_us": p.p99 * 1e6, "distances": p.moved.distances, "slow_reads": p.moved.reads})
        })
    };
    json!({"vectors": size.vectors, "build_seconds": size.built, "build_busy_seconds": size.busy,
        "nanoseconds_by_n_log_n": size.law(), "memory_bytes": size.memory.0, "file_bytes": size.file.0,
        "fast_resident_bytes": size.resident.0, "links_per_vector": size.links, "in_memory": point(&size.inside),
        "in_file": point(&size.outside)})
}

fn table(arguments: &Arguments, found: &[Size], spec: &Spec) -> String {
    let mut page = String::new();
    let count = arguments.limit as f64;
    // Writing to a string never fails.
    let _ = writeln!(
        page,
        "{}, {} of {} {}, m {}, ef {}; recall@{} of {}, one thread searches; measured\n",
        arguments.data.display(),
        spec.metric,
        spec.dim,
        spec.dtype,
        spec.m,
        spec.ef_construction,
        arguments.k,
        arguments.recall
    );
    let _ = writeln!(
        page,
        "  {:>10} {:>8} {:>8} {:>6} {:>10} {:>10} {:>6} {:>10} {:>9} {:>10} {:>6} {:>9} {:>9}",
        "vectors",
        "build s",
        "core s",
        "ns",
        "memory",
        "file",
        "ef",
        "distances",
        "per s",
        "fast",
        "reads",
        "per s",
        "p99 µs"
    );
    for size in found {
        let _ = write!(
            page,
            "  {:>10} {:>8.1} {:>8.1} {:>6.0} {:>10} {:>10}",
            grouped(size.vectors),
            size.built,
            size.busy,
            size.law(),
            size.memory.to_string(),
            size.file.to_string()
        );
        match &size.inside {
            Some(p) => {
                let _ = write!(
                    page,
                    " {:>6} {:>10.0} {:>9.0}",
                    p.ef,
                    p.moved.distances as f64 / count,
                    p.busy_qps
                );
            }
            None => page.push_str("      -          -         -"),
        }
        let _ = write!(page, " {:>10}", size.resident.to_string());
        match &size.outside {
            Some(p) => {
                let _ = writeln!(
                    page,
                    " {:>6.1} {:>9.0} {:>9.0}",
                    p.moved.reads as f64 / count,
                    p.qps,
                    p.p99 * 1e6
                );
            }
            None => page.push_str("      -         -         -\n"),
        }
    }
    page.push_str(
        "\n  ns: processor time of building by N · log2 N. In memory queries are those of a second of processor time, in the file those\n  \
         of a second.\n\n",
    );
    page
}

/// What so many vectors take, for people: HNSW and HM-ANN by section 3.3.4, and ours.
pub(super) fn needs(spec: &Spec, count: u64, links: f64, fast: Bytes) -> String {
    let memory = Memory::within(spec, count, fast);
    let mut page =
        format!("{} such vectors, calculated, on a machine with {fast} of fast memory\n", grouped(count));
    // Writing to a string never fails.
    let _ = writeln!(page, "  HNSW        {} in all", Memory::of_hnsw(spec, count));
    let _ = writeln!(
        page,
        "  HM-ANN      {:.1} % of the nodes promoted, {} fast and {} slow",
        memory.promoted * 100.0,
        memory.fast,
        memory.slow
    );
    let least = Needs::of(spec, count, links, 1);
    let _ = writeln!(
        page,
        "  tiercel     {} of codes of one bit and {links:.1} links a vector fast, {} a thread more; {} of file",
        least.codes,
        Bytes(count + count / 8),
        least.file
    );
    page
}

/// The same for programs.
pub(super) fn document(spec: &Spec, count: u64, links: f64, fast: Bytes) -> Value {
    let (memory, least) = (Memory::within(spec, count, fast), Needs::of(spec, count, links, 1));
    json!({"vectors": count, "machine_fast_bytes": fast.0, "hnsw_bytes": Memory::of_hnsw(spec, count).0,
        "hm_ann": {"promoted": memory.promoted, "fast_bytes": memory.fast.0, "slow_bytes": memory.slow.0},
        "tiercel": {"fast_bytes": least.codes.0, "bytes_a_thread": count + count / 8, "file_bytes": least.file.0}})
}
