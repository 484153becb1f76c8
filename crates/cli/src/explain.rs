//! `tiercel explain zero`: why optimizer states go where they go (dissertation, section 5.3), in bytes, and where that ends.

use std::fmt::Write;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tiercel_core::{Bandwidth, Bytes, TierId};
use tiercel_optim::{PASS, Rates, STATES, Split, split};
use tiercel_profile::machines;
use tiercel_report::table::{Align, Table};
use tiercel_systems::zero::choices::{Choice, Node, least_moved, valid};

use crate::answer::Answer;

const EXAMPLES: &str = "\
Examples:
  tiercel explain zero
      every choice of ZeRO-Offload, in bytes a parameter
  tiercel explain zero --params 4.3e9 --machine h200 --fast 32GiB
      the same for a model, with the split that ends soonest";

/// Explain why data go where they go.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What to explain
    #[arg(value_enum)]
    what: What,
    /// How many parameters the model has
    #[arg(long, value_name = "N", default_value = "4.3e9", value_parser = parameters)]
    params: f64,
    /// A machine with a GPU, as `tiercel list machines` names it
    #[arg(long, default_value = "h200")]
    machine: String,
    /// Memory of the GPU for parameters and states; activations are not counted [default: all that the machine has]
    #[arg(long, value_name = "BYTES")]
    fast: Option<Bytes>,
    /// What an update on all cores reads and writes of host memory; the default is what 16 cores beside an H200 were measured to
    #[arg(long, value_name = "RATE", default_value = "119 GB/s")]
    update: Bandwidth,
    #[command(flatten)]
    answer: Answer,
}

/// What can be explained.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// ZeRO-Offload: the optimizer on the host
    Zero,
}

/// `4.3e9` or `4300000000`.
fn parameters(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && (1.0..=1e15).contains(n));
    number.ok_or_else(|| format!("`{text}` is no number of parameters such as 4.3e9"))
}

/// What a machine makes of a model.
struct Case {
    room: f64,
    rates: Rates,
    found: Split,
    alone: Split,
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let What::Zero = arguments.what;
    let case = case(arguments)?;
    if arguments.answer.json {
        return Ok(format!("{:#}\n", document(arguments, &case)));
    }
    let mut page = String::new();
    choices(&mut page, arguments.params)?;
    planned(&mut page, arguments, &case)?;
    Ok(page)
}

fn case(arguments: &Arguments) -> anyhow::Result<Case> {
    let machine = machines::named(&arguments.machine)?;
    let host = TierId((machine.tiers.len() - 1) as u8);
    let (out, back) = (machine.link(TierId(0), host), machine.link(host, TierId(0)));
    let (Some(out), Some(back)) = (out, back) else {
        bail!("{}: no link between its first tier and its last", arguments.machine);
    };
    let fast = arguments.fast.unwrap_or(machine.tiers[0].capacity);
    let room = fast.0 as f64 - 2.0 * arguments.params;
    if room < 0.0 {
        let wanted = Bytes((2.0 * arguments.params) as u64);
        bail!("parameters of 16 bits take {wanted} of the GPU, and there are {fast}");
    }
    if arguments.update.0 <= 0.0 {
        bail!("an update that reads and writes nothing never ends: --update wants a rate above 0");
    }
    let rates = Rates { host: arguments.update.0, inward: back.speed().0, outward: out.speed().0 };
    let solved = |room: f64| split(arguments.params, 2.0, room, rates);
    Ok(Case { room, rates, found: solved(room), alone: solved(0.0) })
}

/// What of a division is on the host, in words.
fn names(choice: Choice) -> &'static str {
    match (choice.on_host(Node::G16), choice.on_host(Node::Update)) {
        (false, false) => "nothing",
        (true, false) => "gradients",
        (false, true) => "masters, moments, update",
        (true, true) => "gradients, masters, moments, update",
    }
}

fn choices(page: &mut String, parameters: f64) -> std::fmt::Result {
    let amount = |each: u64| Bytes((parameters * each as f64) as u64).to_string();
    writeln!(
        page,
        "ZeRO-Offload for {:.3} B parameters of 16 bits, with masters and moments of 32",
        parameters / 1e9
    )?;
    let all = Choice::all().count() - 1;
    let wasteful = all + 1 - valid().len();
    writeln!(page, "\n{all} ways to put something on the host; bytes a parameter, and of all:\n")?;
    let headings = ["on the GPU", "", "over the link", "", "host memory moved", ""];
    let headings = headings.map(|name| (name, Align::Right));
    let mut table = Table::new(std::iter::once(("on the host", Align::Left)).chain(headings));
    for choice in valid() {
        let mut row = vec![names(choice).to_string()];
        for each in [choice.on_gpu(), choice.moved(), choice.host_traffic()] {
            row.extend([each.to_string(), amount(each)]);
        }
        table.row(row);
    }
    writeln!(page, "{table}")?;
    let most = Choice::all().map(Choice::moved).max().unwrap_or_default();
    writeln!(
        page,
        "The other {wasteful} move {} to {most} bytes a parameter over the link.",
        least_moved() + 2
    )?;
    writeln!(
        page,
        "So gradients, masters, moments and the update go to the host: no other choice leaves less on the GPU,"
    )?;
    writeln!(page, "and none moves less.")
}

fn planned(page: &mut String, arguments: &Arguments, case: &Case) -> std::fmt::Result {
    let Case { room, rates, found, alone } = case;
    let classical = arguments.params * PASS / rates.host;
    writeln!(page, "\nWhere that no longer holds, on {}:\n", arguments.machine)?;
    let name = |rate: f64| Bandwidth(rate).to_string();
    writeln!(
        page,
        "- Whole kinds of states are divided there; states can be divided too. The processor alone updates in {classical:.2} s\n  \
         ({PASS:.0} bytes a parameter at {}), and beside it the link is idle.",
        name(rates.host)
    )?;
    let enough = PASS / STATES * rates.inward.min(rates.outward);
    writeln!(
        page,
        "- Masters and moments that are streamed through the GPU take {STATES:.0} bytes a parameter each way, at {} in and {} out.\n  \
         Up to {} of host memory that alone is faster than the processor. Both together take {:.2} s:\n  \
         {:.0} % streamed, {:.0} % by the processor.",
        name(rates.inward),
        name(rates.outward),
        name(enough),
        alone.seconds,
        alone.streamed * 100.0,
        alone.host * 100.0
    )?;
    writeln!(
        page,
        "- The GPU has {} beside the parameters. With {:.0} % of the states in it, {:.0} % are streamed and {:.0} % are the\n  \
         processor's: {:.2} s. Activations want their part of it.",
        Bytes(*room as u64),
        found.gpu * 100.0,
        found.streamed * 100.0,
        found.host * 100.0,
        found.seconds
    )?;
    writeln!(
        page,
        "- Where updates run beside the passes, all of this is free while they take as long.\n\n\
         tiercel.optim.OffloadAdamW(..., gpu_bytes=...) measures these rates and divides states this way (docs/optim.md)."
    )
}

fn document(arguments: &Arguments, case: &Case) -> Value {
    let choice = |choice: Choice| {
        json!({ "on_host": names(choice), "gpu_bytes_each": choice.on_gpu(), "link_bytes_each": choice.moved(),
                "host_bytes_each": choice.host_traffic() })
    };
    let shares = |s: &Split| json!({ "gpu": s.gpu, "streamed": s.streamed, "host": s.host, "update_ns": (s.seconds * 1e9) as u64 });
    json!({
        "parameters": arguments.params,
        "machine": arguments.machine,
        "choices": valid().into_iter().map(choice).collect::<Vec<_>>(),
        "room_bytes": case.room as u64,
        "host_only_ns": (arguments.params * PASS / case.rates.host * 1e9) as u64,
        "without_room": shares(&case.alone),
        "with_room": shares(&case.found),
    })
}
