//! `tiercel ann info`: what an index file has in it.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tiercel_ann::Info;
use tiercel_core::Bytes;

use super::growth;
use crate::amounts::count;
use crate::answer::Answer;
use crate::figures::grouped;

/// Tell what an index file has in it, without reading its vectors.
#[derive(Args)]
pub struct Arguments {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Tell, too, what so many vectors of this kind would take, calculated
    #[arg(long, value_name = "N", value_parser = count, allow_hyphen_values = true)]
    vectors: Option<u64>,
    /// The fast memory of the machine for so many
    #[arg(long, value_name = "96GiB", default_value = "96GiB", requires = "vectors")]
    fast: Bytes,
    #[command(flatten)]
    answer: Answer,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let info = Info::read(&arguments.index)?;
    let spec = info.spec;
    if arguments.answer.json {
        let sections: Vec<_> =
            info.sections.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes.0})).collect();
        return Ok(format!(
            "{:#}\n",
            json!({
                "vectors": info.vectors, "dim": spec.dim, "metric": spec.metric.to_string(), "dtype": spec.dtype.to_string(),
                "m": spec.m, "ef_construction": spec.ef_construction, "seed": spec.seed, "ef": info.ef,
                "file_bytes": info.file.0, "memory_bytes": info.memory.0, "fast_bytes": info.fast.map(|bytes| bytes.0),
                "slow": info.slow.to_string(), "links_per_vector": info.links, "sections": sections,
                "calculated": arguments.vectors.map(|count| growth::document(&spec, count, info.links, arguments.fast)),
            })
        ));
    }
    let mut page = String::new();
    // Writing to a string never fails.
    let mut row = |name: &str, text: String| {
        let _ = writeln!(page, "  {name:<10} {text}");
    };
    row("vectors", format!("{} of {} {}, {}", grouped(info.vectors), spec.dim, spec.dtype, spec.metric));
    row("built", format!("m {}, ef {}, seed {}", spec.m, spec.ef_construction, spec.seed));
    row("file", info.file.to_string());
    row("memory", format!("{} with everything in it", info.memory));
    let fast = info.fast.map_or("all".to_string(), |bytes| bytes.to_string());
    row("fast", format!("{fast}; other vectors in {}", info.slow));
    for (name, bytes) in &info.sections {
        let bytes: Bytes = *bytes;
        row(name, format!("{bytes}"));
    }
    if let Some(count) = arguments.vectors {
        page.push('\n');
        page.push_str(&growth::needs(&spec, count, info.links, arguments.fast));
    }
    Ok(page)
}
