//! The page in a real browser: it loads without a complaint, draws every mark, and shows something.
//!
//! `scripts/install-browser` installs one. Where there is none the test says so and passes.

mod scene;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tiercel_report::{Comparison, Report, Run};

/// The browser, if there is one.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let found = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: no {} on the PATH; scripts/install-browser installs one", names.join(", "));
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
    for (look, size, options) in [
        ("light", "--window-size=1280,2400", &[][..]),
        ("dark", "--window-size=1280,2400", &["--blink-settings=preferredColorScheme=0"][..]),
        ("phone", "--window-size=500,2400", &[][..]),
    ] {
        let shot = folder().join(format!("{name}-{look}.png"));
        let _ = std::fs::remove_file(&shot);
        let to = format!("--screenshot={}", shot.display());
        let (_, complaints) = visit(browser, &path, "", &[&[size, to.as_str()], options].concat());
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
