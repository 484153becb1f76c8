//! The page, read as text: well-formed, with as many marks as it says, safe whatever tensors are called.

mod scene;

use tiercel_core::{Bytes, Manager, TierId};
use tiercel_report::{Comparison, Header, Log, Report, Run};
use tiercel_sim::Sim;
use tiercel_testbed::machine;

/// The tags of a page, with scripts and styles skipped; panics where tags do not nest.
fn tags(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let (mut found, mut rest) = (Vec::new(), page);
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>'), "a stray > in {text:?}");
        rest = &rest[start..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of {tag} are in pairs");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name").to_string();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "</{name}> closes something else");
            continue;
        }
        found.push(tag.to_string());
        if ["meta", "link", "input"].contains(&name.as_str()) || tag.ends_with('/') {
            continue;
        }
        if name == "script" || name == "style" {
            let close = format!("</{name}>");
            rest = &rest[rest.find(&close).expect("it is closed") + close.len()..];
        } else {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are never closed");
    found
}

fn attribute(tag: &str, name: &str) -> Option<usize> {
    let rest = &tag[tag.find(&format!("{name}=\""))? + name.len() + 2..];
    rest.split('"').next()?.parse().ok()
}

/// The data of a run inside a page.
fn data(page: &str, number: usize) -> serde_json::Value {
    let start = format!("<script type=\"application/json\" id=\"data-{number}\">");
    let rest = &page[page.find(&start).expect("it is there") + start.len()..];
    serde_json::from_str(&rest[..rest.find("</script>").expect("it ends")]).expect("JSON")
}

fn length(value: &serde_json::Value) -> usize {
    value.as_array().expect("a list").len()
}

#[test]
fn a_run_has_every_chart_with_as_many_marks_as_it_says() {
    let played = scene::simulate("vgg16", 16, "optane-autotm", 0.3, "cachedarrays-lmp");
    let run = Run::new(played.log());
    let report = Report::of_runs("one run", vec![run.clone()]);
    let page = report.html();
    let tags = tags(&page);
    let plots: Vec<&String> = tags.iter().filter(|tag| tag.contains("class=\"plot\"")).collect();
    assert_eq!(plots.len(), 3, "a timeline and a map for each tier");
    let data = data(&page, 0);
    let bars: usize = data["lanes"].as_array().expect("lanes").iter().map(|l| length(&l["bars"]) / 7).sum();
    assert_eq!(attribute(plots[0], "data-marks"), Some(bars));
    let timed = |span: tiercel_core::Span| span.ended > span.began;
    let expected = run.kernels.iter().filter(|k| timed(k.span)).count()
        + run.copies.iter().filter(|c| timed(c.span)).count()
        + run.stalls.len();
    assert_eq!(bars, expected, "every kernel, copy and stall is a mark");
    for (tier, plot) in plots[1..].iter().enumerate() {
        let rects = length(&data["maps"][tier]["rects"]) / 7;
        assert_eq!(attribute(plot, "data-marks"), Some(rects));
        let here = run.regions.iter().filter(|r| r.place.tier.index() == tier && timed(r.span)).count();
        assert_eq!(rects, here, "every region is a mark");
        assert!(attribute(plot, "data-shown").expect("said") < rects, "one iteration is shown of three");
    }
    let lists = tags.iter().filter(|tag| tag.contains("class=\"barlist\""));
    let said: usize = lists.filter_map(|tag| attribute(tag, "data-marks")).sum();
    assert_eq!(tags.iter().filter(|tag| tag.starts_with("tr class=\"mark\"")).count(), said);
    assert!(said > 10 && page.contains("All times are simulated."));
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing refers to elsewhere");
}

#[test]
fn a_large_comparison_stays_small_and_complete() {
    let report = Report::of_rows("large", Comparison::new(scene::many_rows(12, 8, 4)));
    let page = report.html();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let tags = tags(&page);
    let rows = tags.iter().find(|tag| tag.contains("class=\"rows\"")).expect("the table");
    assert_eq!(attribute(rows, "data-marks"), Some(384));
    let charts: Vec<&String> =
        tags.iter().filter(|tag| tag.starts_with("svg") && tag.contains("data-marks")).collect();
    assert_eq!(charts.len(), 12);
    let said: usize = charts.iter().filter_map(|tag| attribute(tag, "data-marks")).sum();
    assert_eq!(said, 12 * 7 * 4, "fast-only is a line of its own kind");
    let drawn = tags.iter().filter(|tag| tag.contains("class=\"mark") && tag.contains("data-tip")).count();
    assert_eq!(drawn, said);
    assert_eq!(tags.iter().filter(|tag| tag.contains("class=\"matrix\"")).count(), 4, "one a share");
    assert!(page.contains("memory price"));
}

#[test]
fn whatever_a_tensor_is_called_it_stays_text() {
    let bad = "</script><script>alert('x')</script>\"><img src=x onerror=\"y\">&amp;\u{2028}";
    let machine = machine(&[4096, 65536], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
    manager.record();
    let zone = manager.carve(TierId(0), bad, Bytes(1024)).expect("there is room");
    let object = manager.create(Some(bad), Bytes(100)).expect("it fits");
    let slow = manager.allocate(TierId(1), Bytes(100)).expect("there is room");
    manager.set_primary(object, slow).expect("it may live there");
    let operand = |access| [tiercel_core::Operand { object, access, bytes: Bytes(100) }];
    manager.begin(tiercel_core::Step(0), &operand(tiercel_core::Access::Write)).expect("it is placed");
    manager.end(tiercel_core::Step(0), &operand(tiercel_core::Access::Write));
    let fast = manager.allocate_in(TierId(0), zone, Bytes(100)).expect("there is room");
    manager.link(slow, fast).expect("it is loose");
    manager.copy(slow, fast).expect("there is something to copy");
    manager.set_primary(object, fast).expect("it will hold the bytes");
    manager.begin(tiercel_core::Step(0), &operand(tiercel_core::Access::Read)).expect("it arrives");
    manager.end(tiercel_core::Step(0), &operand(tiercel_core::Access::Read));
    let events = manager.take_events();
    let mut header = Header::simulated(&tiercel_workload::Trace::default(), &machine, bad);
    (header.net, header.machine, header.tiers[0].name) = (bad.to_string(), bad.to_string(), bad.to_string());
    header.kernels.push(tiercel_report::header::Kernel {
        name: bad.to_string(),
        op: bad.to_string(),
        layer: bad.to_string(),
        phase: bad.to_string(),
        fast_ns: None,
    });
    let run = Run::new(Log::new(header, &events));
    assert_eq!(run.stalls.len(), 1, "the kernel waited");
    let mut rows = vec![run.row(); 2];
    rows[1].fast_bytes = Bytes(1);
    rows.iter_mut().for_each(|row| row.iteration_ns = vec![5]);
    let mut report = Report::of_runs(bad, vec![run]);
    report.comparison.add(rows);
    let page = report.html();
    tags(&page);
    // The policy, the script and the data are the only places with these words.
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    assert_eq!(page.matches("<img").count(), 0);
    assert_eq!(data(&page, 0)["names"].as_array().expect("names").iter().filter(|n| *n == bad).count(), 1);
    let mut trace = Vec::new();
    tiercel_report::perfetto::write(&mut trace, &report.runs).expect("writes to memory");
    let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
    assert!(trace["traceEvents"].as_array().expect("a list").iter().any(|e| e["name"] == bad));
}

#[test]
fn a_long_run_is_thinned_out_and_says_so() {
    let mut played = scene::simulate("vgg16", 16, "optane-autotm", 0.3, "cachedarrays-lmp");
    // The same iteration again and again, far more than a page has room for.
    let length = played.events.last().expect("events").at;
    let once: Vec<_> = played.events.clone();
    for turn in 1..80u64 {
        let later = once.iter().cloned().map(|mut event| {
            event.at = tiercel_core::Nanos(event.at.0 + turn * length.0);
            event
        });
        played.events.extend(later);
    }
    let run = Run::new(played.log());
    let marks = run.kernels.len() + run.copies.len() + run.stalls.len() + run.regions.len();
    assert!(marks > 100_000, "{marks}");
    let page = Report::of_runs("long", vec![run]).html();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let tags = tags(&page);
    let plots = tags.iter().filter(|tag| tag.contains("class=\"plot\""));
    let drawn: usize = plots.filter_map(|tag| attribute(tag, "data-marks")).sum();
    assert!(drawn <= 60_000, "{drawn}");
    assert!(page.contains("The charts show the last iterations"));
}
