//! What other programs get: Perfetto's format, CSV, and the text for terminals.

mod scene;

use std::collections::BTreeMap;

use expect_test::expect;
use serde_json::Value;
use tiercel_report::events::write_header;
use tiercel_report::{Comparison, Curve, Log, Report, Run, csv, perfetto};

fn run() -> Run {
    Run::new(scene::simulate("vgg16", 16, "optane-autotm", 0.3, "cachedarrays-lmp").log())
}

#[test]
fn a_trace_has_tracks_on_which_slices_never_overlap() {
    let run = run();
    let mut text = Vec::new();
    perfetto::write(&mut text, &[run.clone(), run.clone()]).expect("writes to memory");
    let trace: Value = serde_json::from_slice(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let mut names: BTreeMap<(u64, u64), &str> = BTreeMap::new();
    let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let track = (event["pid"].as_u64().expect("a process"), event["tid"].as_u64().unwrap_or(0));
        match event["ph"].as_str().expect("a phase") {
            "M" if event["name"] == "thread_name" => {
                names.insert(track, event["args"]["name"].as_str().expect("a name"));
            }
            "X" => {
                let (at, long) =
                    (event["ts"].as_f64().expect("a time"), event["dur"].as_f64().expect("a time"));
                tracks.entry(track).or_default().push((at, at + long));
            }
            "M" | "C" => {}
            other => panic!("a phase of {other}"),
        }
    }
    let of_first: Vec<&str> = names.range((1, 0)..(2, 0)).map(|(_, name)| *name).collect();
    assert_eq!(of_first, ["iterations", "compute", "stall", "fetch pm → dram", "evict dram → pm"]);
    for (track, mut slices) in tracks {
        assert!(names.contains_key(&track), "{track:?} has a name");
        slices.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0 + 1e-6, "{track:?}: {pair:?}");
        }
    }
    let count = |kind: &str| events.iter().filter(|e| e["cat"] == kind && e["pid"] == 1).count();
    assert_eq!(count("stall"), run.stalls.len());
    assert_eq!(count("iteration"), 3);
    let counters = events.iter().filter(|e| e["ph"] == "C" && e["name"] == "bytes in dram" && e["pid"] == 1);
    let most = counters.filter_map(|e| e["args"]["bytes"].as_u64()).max().expect("counters");
    assert!(most <= run.peak[0].0 && most > run.peak[0].0 / 2, "{most}");
}

/// Takes CSV apart: RFC 4180.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.push(chars.next().expect("peeked")),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                all.push(std::mem::take(&mut record));
            }
            c => field.push(c),
        }
    }
    assert!(field.is_empty() && record.is_empty(), "the last line ends");
    all
}

#[test]
fn tables_hold_everything_whatever_it_is_called() {
    let mut run = run();
    run.header.system = "a \"strange\", name\nof two lines".to_string();
    let mut text = Vec::new();
    csv::runs(&mut text, std::slice::from_ref(&run)).expect("writes to memory");
    let records = records(std::str::from_utf8(&text).expect("text"));
    let spans =
        run.iterations.len() + run.kernels.len() + run.copies.len() + run.stalls.len() + run.regions.len();
    assert_eq!(records.len(), spans + 1);
    assert!(records.iter().all(|record| record.len() == 14));
    assert!(records[1..].iter().all(|record| record[2] == run.header.system));
    let column = |name: &str| records[0].iter().position(|title| title == name).expect("a column");
    let (kind, began, ended) = (column("kind"), column("began_ns"), column("ended_ns"));
    let time = |record: &Vec<String>| {
        record[ended].parse::<u64>().expect("a number") - record[began].parse::<u64>().expect("a number")
    };
    let stalled: u64 = records[1..].iter().filter(|record| record[kind] == "stall").map(time).sum();
    assert_eq!(stalled, run.stall().0);

    let rows = Comparison::new(scene::many_rows(2, 3, 2));
    let mut text = Vec::new();
    csv::comparison(&mut text, &rows).expect("writes to memory");
    let text = String::from_utf8(text).expect("text");
    expect![[r#"
        net,batch,machine,system,fast_bytes,fast_fraction,iteration_ns,slowdown,samples_per_second,stall_ns,stall_share,slower_share,fetched_bytes,evicted_bytes,peak_fast_bytes,predicted_ns,loss,kind,error
        network-0,256,made-up,fast-only,6400000000,0.1,100000000,1,2560,0,0,0,4294967296,2147483648,6400000000,,,simulated,
        network-0,256,made-up,fast-only,12800000000,0.2,100000000,1,2560,0,0,0,4294967296,2147483648,12800000000,,,simulated,
        network-0,256,made-up,system-1,6400000000,0.1,127000000,1.27,2015.748031496063,2500000,0.01968503937007874,0.19291338582677164,4294967296,2147483648,6400000000,,,simulated,
    "#]]
    .assert_eq(&text.lines().take(4).map(|line| format!("{line}\n")).collect::<String>());
}

/// The run that the reference of the format has as its example.
fn example() -> Run {
    let page = include_str!("../../../docs/events-format.md");
    let start = page.find("```jsonl\n").expect("an example") + "```jsonl\n".len();
    let text = &page[start..start + page[start..].find("```").expect("it ends")];
    let log = Log::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((log.entries.len(), log.notes.len()), (text.lines().count() - 1, 0));
    let mut again = Vec::new();
    write_header(&mut again, &log.header).expect("writes to memory");
    assert_eq!(
        text.lines().next(),
        String::from_utf8(again).expect("text").lines().next(),
        "as it would be written"
    );
    Run::new(log)
}

#[test]
fn the_terminal_shows_what_matters() {
    expect![[r#"
        tiny, batch 32: cachedarrays-lmp on small, simulated

          fast memory    4 KiB, 50 % of the peak; 1 KiB used
          iteration      1.3 µs (one)
          moved          1 KiB fetched and 0 B evicted an iteration
          stall          300 ns an iteration, 23 % of the time
          recorded       2 kernels, 1 copy of 1 KiB

          where kernels waited, 300 ns in the iterations that count

            time  share  times  tensor     kernel      because
          300 ns  100 %      1  fc.weight  fc.forward  bytes not there yet

          Kernels waited for data on its way to them. Start fetching earlier (a longer look-ahead), keep the
          tensors that head the list in fast memory, or give more of it.
    "#]]
    .assert_eq(&Report::of_runs("one", vec![example()]).text());
    let rows = Report::of_rows("rows", Comparison::new(scene::many_rows(1, 3, 2)));
    expect![[r#"
        network-0, batch 256, on made-up, simulated

          system         fast  of peak  iteration  slowdown  samples/s   stall  stalled  kernels slower  fetched  evicted  fast used
          fast-only  5.96 GiB     10 %     100 ms     1.00×      2,560    0 ns    0.0 %           0.0 %    4 GiB    2 GiB   5.96 GiB
          fast-only  11.9 GiB     20 %     100 ms     1.00×      2,560    0 ns    0.0 %           0.0 %    4 GiB    2 GiB   11.9 GiB
          system-1   5.96 GiB     10 %     127 ms     1.27×      2,016  2.5 ms    2.0 %            19 %    4 GiB    2 GiB   5.96 GiB
          system-1   11.9 GiB     20 %     124 ms     1.24×      2,065  2.5 ms    2.0 %            17 %    4 GiB    2 GiB   11.9 GiB
          system-2   5.96 GiB     10 %     154 ms     1.54×      1,662    5 ms    3.2 %            32 %    4 GiB    2 GiB   5.96 GiB
          system-2   11.9 GiB     20 %     148 ms     1.48×      1,730    5 ms    3.4 %            29 %    4 GiB    2 GiB   11.9 GiB
    "#]].assert_eq(&rows.text());
    let curve = &Curve::all(&rows.comparison)[1];
    expect![[r#"
        system-2
              fast  of peak  iteration  slowdown  price
          5.96 GiB     10 %     154 ms     1.54×   $151
          11.9 GiB     20 %     148 ms     1.48×   $202
    "#]]
    .assert_eq(&format!("{}\n{}", curve.system, curve.table()));
}

#[test]
fn a_run_survives_as_data_and_its_page_tells_slow_kernels_from_fast_ones() {
    let run = example();
    let text = serde_json::to_string(&run).expect("writes");
    assert_eq!(serde_json::from_str::<Run>(&text).expect("reads"), run);
    let page = Report::of_runs("one", vec![run]).html();
    // The kernel would take 900 ns alone, took 1 µs, and had waited for 300 ns.
    for part in [
        "kernels, as fast as in fast memory: 900 ns, 69 %",
        "slowed by slow memory and by copies: 100 ns, 7.7 %",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("waiting for copies: 300 ns, 23 %"));
}

#[test]
fn the_document_has_the_names_that_programs_rely_on() {
    let document = Report::of_runs("one", vec![run()]).document();
    let row = &document["comparison"][0];
    for name in ["net", "machine", "system", "on"] {
        assert!(row[name].is_string(), "{name}");
    }
    for name in ["fast_bytes", "stall_ns", "fetched_bytes", "evicted_bytes", "peak_fast_bytes", "batch"] {
        assert!(row[name].is_u64(), "{name}");
    }
    assert!(row["fast_fraction"].is_f64() && row["measured"] == false);
    assert_eq!(row["iteration_ns"].as_array().map(Vec::len), Some(3));
    let stalls = document["runs"][0]["stalls"]["all"].as_array().expect("a list");
    let sum: u64 = stalls.iter().filter_map(|s| s["stall_ns"].as_u64()).sum();
    assert_eq!(Some(sum), document["runs"][0]["stalls"]["stall_ns"].as_u64());
}

#[test]
fn predictions_that_are_far_off_are_named() {
    let row = |system: &str, predicted: u64| {
        format!(r#"{{"net":"mlp","system":"{system}","iteration_ns":[1000],"predicted_ns":{predicted}}}"#)
    };
    let told = |rows: [String; 3]| {
        let comparison = Comparison::parse(format!("[{}]", rows.join(",")).as_bytes()).expect("rows");
        let (text, page) = (comparison.text(), Report::of_rows("a test", comparison.clone()).html());
        let doubts = comparison.doubts();
        for shown in [text, page] {
            assert!(doubts.as_ref().is_none_or(|doubts| shown.contains(doubts)), "{shown}");
            assert_eq!(shown.contains("too far to go by"), doubts.is_some());
        }
        doubts.unwrap_or_default()
    };
    expect!["2 of 3 predictions are more than 20 % off, too far to go by: redl, vdnn"].assert_eq(&told([
        row("fast-only", 1200),
        row("redl", 1201),
        row("vdnn", 799),
    ]));
    expect![""].assert_eq(&told([row("fast-only", 1200), row("redl", 1000), row("vdnn", 800)]));
}
