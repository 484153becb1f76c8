//! The page in a real browser: it loads without a complaint, draws every mark, and shows something.
//!
//! `scripts/install-browser` installs one. Where there is none the test says so and passes.

mod scene;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tiercel_report::{Comparison, Report, Run};
use tiercel_testbed::skipped;

/// The browser, if there is one.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        skipped(&format!(
            "the page in a browser: no {} on the PATH; scripts/install-browser installs one",
            names.join(", ")
        ));
    }
    found
}

/// A folder for pages and screenshots, which stays so that people can look at them.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    std::fs::create_dir_all(&folder).expect("a folder for pages");
    folder
}

/// Runs the browser on a page; returns what it printed and what it complained of.
fn visit(browser: &Path, page: &Path, hash: &str, options: &[&str]) -> (String, Vec<String>) {
    let profile = page.with_extension("profile");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-extensions", "--enable-logging=stderr"])
        .args(["--run-all-compositor-stages-before-draw", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(options)
        .arg(format!("file://{}{hash}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the browser starts");
    let _ = std::fs::remove_dir_all(&profile);
    assert!(output.status.success(), "the browser failed: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), complaints)
}

/// The value of an attribute in a tag.
fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let rest = &tag[tag.find(&format!(" {name}=\""))? + name.len() + 3..];
    rest.split('"').next()
}

fn number(tag: &str, name: &str) -> usize {
    let value = attribute(tag, name).unwrap_or_else(|| panic!("{tag} has no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name} of {tag} is no number"))
}

/// The tags of a page that contain a text.
fn tags<'p>(page: &'p str, with: &str) -> Vec<&'p str> {
    page.split('<')
        .skip(1)
        .map(|rest| rest.split('>').next().unwrap_or_default())
        .filter(|t| t.contains(with))
        .collect()
}

/// Loads a page with everything open and verifies that all that should be drawn was.
fn check(browser: &Path, name: &str, report: &Report, plots: usize) {
    let path = folder().join(format!("{name}.html"));
    std::fs::write(&path, report.html()).expect("writes");
    let (dom, complaints) = visit(browser, &path, "#all", &["--window-size=1280,2000", "--dump-dom"]);
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    let root = tags(&dom, "data-ready")[0];
    assert_eq!(number(root, "data-errors"), 0, "{name}");
    println!("{name}: {} KB, ready after {} ms", report.html().len() / 1000, number(root, "data-ready"));
    let drawn = tags(&dom, "data-drawn");
    assert_eq!(drawn.len(), plots, "{name}: charts that the script drew");
    for plot in drawn {
        assert_eq!(number(plot, "data-drawn"), number(plot, "data-shown"), "{name}: {plot}");
        assert!(number(plot, "data-shown") > 0, "{name}: {plot}");
    }
    // A browser's window has a least width; a frame has none.
    let phone = folder().join(format!("{name}-phone.html"));
    let frame =
        format!("<iframe src=\"{name}.html\" width=\"390\" height=\"2380\" style=\"border:0\"></iframe>");
    std::fs::write(&phone, format!("<!DOCTYPE html><body style=\"margin:0\">{frame}</body>"))
        .expect("writes");
    for (look, page, size, options) in [
        ("light", &path, "--window-size=1280,2400", &[][..]),
        ("dark", &path, "--window-size=1280,2400", &["--blink-settings=preferredColorScheme=0"][..]),
        ("phone", &phone, "--window-size=500,2400", &[][..]),
    ] {
        let shot = folder().join(format!("{name}-{look}.png"));
        let _ = std::fs::remove_file(&shot);
        let to = format!("--screenshot={}", shot.display());
        let (_, complaints) = visit(browser, page, "", &[&[size, to.as_str()], options].concat());
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
        let colours = colours(&std::fs::read(&shot).expect("a screenshot"));
        assert!(colours > 30, "{name}, {look}: only {colours} colours; the page is blank");
    }
}

/// How many colours a picture has: decodes just the PNG that browsers write (8 bits, no interlacing).
fn colours(png: &[u8]) -> usize {
    let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes")) as usize;
    let (width, height, depth, kind) = (word(16), word(20), png[24], png[25]);
    let pixel = match (depth, kind) {
        (8, 2) => 3,
        (8, 6) => 4,
        other => panic!("a picture of another kind: {other:?}"),
    };
    let (mut packed, mut at) = (Vec::new(), 8);
    while at < png.len() {
        if &png[at + 4..at + 8] == b"IDAT" {
            packed.extend_from_slice(&png[at + 8..at + 8 + word(at)]);
        }
        at += word(at) + 12;
    }
    let mut raw = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&packed[..]), &mut raw).expect("unpacks");
    let stride = width * pixel;
    let mut above = vec![0u8; stride];
    let mut seen = std::collections::HashSet::new();
    for line in raw.chunks(stride + 1).take(height) {
        let mut row = line[1..].to_vec();
        for i in 0..stride {
            let left = if i < pixel { 0 } else { row[i - pixel] };
            let corner = if i < pixel { 0 } else { above[i - pixel] };
            let (a, b, c) = (i32::from(left), i32::from(above[i]), i32::from(corner));
            let guess = match line[0] {
                0 => 0,
                1 => a,
                2 => b,
                3 => (a + b) / 2,
                _ => {
                    let p = a + b - c;
                    let away = |x: i32| (p - x).abs();
                    *[a, b, c].iter().min_by_key(|x| away(**x)).expect("three")
                }
            };
            row[i] = row[i].wrapping_add(guess as u8);
        }
        seen.extend(row.chunks(pixel).map(<[u8]>::to_vec));
        above = row;
    }
    seen.len()
}

/// What a script behind the page does: moves the pointer over every chart, zooms in and back, sorts a table; and what
/// it saw, a line each.
const VISITOR: &str = r#"<pre id="visitor"></pre><script>
const tip = document.getElementById("tip"), out = document.getElementById("visitor"), seen = new Set();
const say = (text) => out.append(text + "\n");
const plots = [...document.querySelectorAll(".plot")], drawn = () => plots.map((p) => p.dataset.drawn).join(" ");
for (const plot of plots) {
  const box = plot.getBoundingClientRect();
  for (let i = 0; i < 60; i++) for (let j = 0; j < 30; j++) {
    const clientX = box.left + 80 + (box.width - 90) * i / 60, clientY = box.top + 5 + (box.height - 30) * j / 30;
    plot.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX, clientY, pointerType: "mouse" }));
    if (!tip.hidden) seen.add(tip.textContent.split("\n")[0]);
  }
}
for (const name of seen) say("hover " + name);
say("before " + drawn());
document.querySelector("[data-zoom='0.5']").click();
say("closer " + drawn());
document.querySelector("[data-zoom='0']").click();
say("after " + drawn());
const box = plots[0].getBoundingClientRect();
const drag = (kind, at) => plots[0].dispatchEvent(new PointerEvent(kind,
  { bubbles: true, clientX: box.left + 80 + box.width * at, clientY: box.top + 9, pointerType: "mouse", pointerId: 1 }));
plots[0].setPointerCapture = () => {};
drag("pointerdown", .3); drag("pointermove", .5); drag("pointerup", .5);
say("dragged " + drawn());
const head = document.querySelector("table.rows th.n"), column = head.cellIndex, body = head.closest("table").tBodies[0];
head.click();
const values = () => [...body.rows].map((row) => +row.cells[column].dataset.v);
const ordered = (list, way) => list.every((v, at) => !at || way * (v - list[at - 1]) >= 0);
const first = head.getAttribute("aria-sort") === "ascending" ? 1 : -1;
say("sorted " + ordered(values(), first)); head.click(); say("sorted back " + ordered(values(), -first));
say("wide " + (document.documentElement.scrollWidth - innerWidth));
</script>"#;

#[test]
fn hovering_names_tensors_and_zooming_shows_fewer_marks() {
    let Some(browser) = browser() else { return };
    let played = scene::simulate("vgg16", 16, "optane-autotm", 0.3, "cachedarrays-lmp");
    let run = Run::new(played.log());
    let path = folder().join("visited.html");
    let page = Report::of_runs("A page with a visitor", vec![run.clone()]).html();
    std::fs::write(&path, page.replace("</body>", &format!("{VISITOR}</body>"))).expect("writes");
    let (dom, complaints) = visit(&browser, &path, "#all", &["--window-size=500,2000", "--dump-dom"]);
    assert!(complaints.is_empty(), "{complaints:#?}");
    let said = dom.split("<pre id=\"visitor\">").nth(1).expect("the visitor was there");
    let said: Vec<&str> = said.split("</pre>").next().expect("it ends").lines().collect();
    let line = |word: &str| {
        let found = said.iter().find_map(|line| line.strip_prefix(word));
        found.unwrap_or_else(|| panic!("no {word} in {said:#?}"))
    };
    let known = |name: &&str| {
        let name = name.split(" and ").next().unwrap_or_default();
        let object = |name: &str| run.objects.iter().any(|o| &*o.name == name);
        let kernel = |name: &str| run.header.kernels.iter().any(|k| k.name == name);
        let waited =
            name.split_once(" for ").is_some_and(|(k, o)| (kernel(k) || k == "loading") && object(o));
        object(name) || kernel(name) || waited || name == "free" || name == "loading"
    };
    let hovered: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("hover ")).collect();
    let strange: Vec<&&str> = hovered.iter().filter(|name| !known(name)).collect();
    assert!(strange.is_empty(), "{strange:?} are no names");
    let tensors = hovered.iter().filter(|name| run.objects.iter().any(|o| &*o.name == **name)).count();
    assert!(tensors > 50, "{tensors} tensors were named");
    let numbers =
        |word: &str| -> Vec<u32> { line(word).split(' ').map(|n| n.parse().expect("a number")).collect() };
    let (before, closer, after) = (numbers("before "), numbers("closer "), numbers("after "));
    assert_eq!(before, after, "reset shows the same again");
    for (number, chart) in [("closer", closer), ("dragged", numbers("dragged "))] {
        assert!(chart.iter().zip(&before).all(|(near, far)| 0 < *near && near <= far), "{number}: {chart:?}");
        assert!(chart[0] < before[0], "{number}: {chart:?} of {before:?}");
    }
    assert_eq!((line("sorted "), line("sorted back ")), ("true", "true"));
    assert_eq!(line("wide "), "0", "nothing sticks out of a narrow window");
}

#[test]
fn the_page_of_a_run_draws_all_its_charts() {
    let Some(browser) = browser() else { return };
    let played = scene::simulate("resnet50", 64, "optane-autotm", 0.3, "cachedarrays-lmp");
    let report = Report::of_runs("ResNet-50 on a third of its memory", vec![Run::new(played.log())]);
    check(&browser, "run", &report, 3);
}

#[test]
fn the_page_of_a_large_comparison_opens() {
    let Some(browser) = browser() else { return };
    let report = Report::of_rows("A large comparison", Comparison::new(scene::many_rows(12, 8, 4)));
    check(&browser, "comparison", &report, 0);
}

#[test]
fn the_page_of_several_systems_draws_all_their_charts() {
    let Some(browser) = browser() else { return };
    let systems = ["cachedarrays-lm", "cachedarrays-lmp", "first-touch", "memory-mode"];
    let mut runs = Vec::new();
    for share in [0.2, 0.4] {
        for system in systems {
            runs.push(Run::new(scene::simulate("vgg16", 64, "optane-autotm", share, system).log()));
        }
    }
    let plots = runs.iter().map(|run| 1 + run.peak.iter().filter(|bytes| bytes.0 > 0).count()).sum();
    check(&browser, "systems", &Report::of_runs("VGG-16, four systems", runs), plots);
}
