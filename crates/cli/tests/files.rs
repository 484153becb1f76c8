//! Files that are damaged at random: the program says what is wrong or does its work, and never ends in a panic.

mod shell;

use shell::{Folder, tiercel};

/// The text with a few bytes changed, removed, added or moved about.
fn damaged(sound: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..random.usize(1..4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(0..bytes.len());
        match random.u8(0..7) {
            0 => bytes[at] = random.u8(..),
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, *random.choice(b"0123456789.-eE%,\"[]{}\n \x00").expect("some")),
            3 => bytes.truncate(at),
            4 => {
                // A number becomes another: the largest, nothing, or one with many digits.
                if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                    let start = at + digit;
                    let end = bytes[start..]
                        .iter()
                        .position(|b| !b.is_ascii_digit())
                        .map_or(bytes.len(), |n| start + n);
                    let number: &[u8] = random
                        .choice([&b"0"[..], b"1", b"18446744073709551615", b"9999999", b"1e300"])
                        .expect("some");
                    bytes.splice(start..end, number.iter().copied());
                }
            }
            5 => {
                let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
                let mut lines: Vec<Vec<u8>> = lines.into_iter().map(<[u8]>::to_vec).collect();
                let (a, b) = (random.usize(0..lines.len()), random.usize(0..lines.len()));
                lines.swap(a, b);
                bytes = lines.join(&b'\n');
            }
            _ => {
                let end = (at + random.usize(1..40)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Runs the program on damaged files; `arguments` names the file.
fn survives(name: &str, sound: &[u8], arguments: impl Fn(&str) -> Vec<String>) {
    let folder = Folder::new(&format!("fuzz-{}", name.replace('.', "-")));
    let mut random = fastrand::Rng::with_seed(11);
    let (mut worked, mut refused) = (0, 0);
    for turn in 0..120 {
        let file = folder.file(name, if turn == 0 { sound.to_vec() } else { damaged(sound, &mut random) });
        let arguments = arguments(&file);
        let output = tiercel(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let complaint = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => worked += 1,
            Some(1) => refused += 1,
            code => panic!(
                "{turn}: {code:?}: {complaint}\n{}",
                std::fs::read_to_string(&file).unwrap_or_default()
            ),
        }
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
    assert!(worked > 0 && refused > 20, "{worked} worked, {refused} were refused");
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|a| a.to_string()).collect()
}

#[test]
fn machines() {
    let sound = include_bytes!("../../../machines/optane-4tier.toml");
    survives("machine.toml", sound, |file| {
        owned(&[
            "compare",
            "mlp",
            "--batch",
            "4",
            "--machine",
            file,
            "--systems",
            "cachedarrays-lm,autotm-sync",
        ])
    });
}

#[test]
fn traces() {
    let folder = Folder::new("fuzz-sound");
    let path = folder.path("sound.trace");
    assert!(tiercel(&["describe", "mlp", "--batch", "4", "--out", &path]).status.success());
    let sound = std::fs::read(&path).expect("it was written");
    survives("mlp.trace", &sound, |file| {
        owned(&["compare", file, "--machine", "optane-autotm", "--systems", "cachedarrays-lm,autotm-sync"])
    });
}

#[test]
fn plans() {
    let folder = Folder::new("fuzz-plan");
    let path = folder.path("sound.json");
    let plan = [
        "plan",
        "mlp",
        "--batch",
        "4",
        "--machine",
        "optane-autotm",
        "--fast",
        "40%",
        "--system",
        "autotm-sync",
    ];
    assert!(tiercel(&[&plan[..], &["--out", &path]].concat()).status.success());
    let sound = std::fs::read(&path).expect("it was written");
    survives("plan.json", &sound, |file| owned(&["run", "mlp", "--batch", "4", "--plan", file]));
}
