//! The text form: it loses nothing, says where it is wrong, and never panics.

mod arbitrary;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tiercel_workload::{nets, text};

const DOCUMENT: &str = include_str!("../../../docs/trace-format.md");

/// The example of the reference page.
fn example() -> &'static str {
    DOCUMENT.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example")
}

#[test]
fn the_example_of_the_reference_reads() {
    let trace = text::parse(example()).expect("sound");
    assert_eq!((trace.layers.len(), trace.tensors.len(), trace.kernels.len()), (2, 5, 4));
    assert_eq!(trace.kernels[0].timings[1].time.0, 4_000);
    assert_eq!(trace.kernels[0].alternatives[0].workspace.0, 65_536);
    assert_eq!(trace.kernels[1].reads[0].tensor, trace.kernels[1].writes[0].tensor);
    assert_eq!(text::parse(&text::write(&trace)), Ok(trace));
}

#[test]
fn canonical_text() {
    let trace = text::parse(example()).expect("sound");
    expect![[r#"
        tiercel-trace 1
        name one-layer

        layer fc
        layer loss

        tensor x input 12544
        tensor labels input 128
        tensor fc.weight weight 3920 persistent
        tensor out activation 1280
        tensor fc.weight.grad gradient 3920

        kernel fc.forward linear forward fc flops 62720
          read x
          read fc.weight
          write out
          time 1500ns at 0 0 0
          time 4000ns at 1 0 0
          alternative packed workspace 65536 factor 0.8

        kernel loss cross-entropy forward loss flops 1600
          read out
          read labels
          write out

        kernel fc.backward linear.backward-weight backward fc flops 62720
          read x
          read out
          write fc.weight.grad

        kernel fc.update sgd update fc flops 1960
          read fc.weight
          read fc.weight.grad
          write fc.weight
    "#]]
    .assert_eq(&text::write(&trace));
}

/// The errors of some lines behind a common head, one a line.
fn errors(cases: &[&str], expected: Expect) {
    let head = "tiercel-trace 1\nlayer l\ntensor x input 8\ntensor y activation 8\n";
    let error = |case: &&str| match text::parse(&format!("{head}{case}")) {
        Ok(_) => "no error\n".to_string(),
        Err(error) => format!("{error}\n"),
    };
    expected.assert_eq(&cases.iter().map(error).collect::<String>());
}

#[test]
fn errors_of_form() {
    errors(
        &[
            "tensor z activation",
            "tensor z activation 12parsecs",
            "tensor z blob 12",
            "tensor z input 8 forever",
            "tensor \"z input 8",
            "tensor \"z\\q\" input 8",
            "layer",
            "layer a b",
            "widget 3",
            "read x",
            "kernel k add sideways l",
            "kernel k add forward l flops many",
            "kernel k add forward m",
            "kernel k add forward l\n  time 3 at 0",
            "kernel k add forward l\n  time 3ns at 256",
            "kernel k add forward l\n  alternative a workspace 1KiB",
            "name a\nname b",
        ],
        expect![[r#"
            line 5, column 20: `tensor` needs a size such as 4096 or 64KiB here
            line 5, column 21: `12parsecs` is not a size such as 4096 or 64KiB
            line 5, column 10: `blob` is not a role: weight, gradient, state, input, activation, workspace
            line 5, column 18: `forever` stands where only `persistent` can
            line 5, column 8: a quote without its end
            line 5, column 10: an escape other than \\ \" \n \r \t \u{…}
            line 5, column 6: `layer` needs a name here
            line 5, column 9: `b` is one word too many
            line 5, column 1: `widget` starts no line; lines start with name, layer, tensor, kernel, read, write, time, alternative
            line 5, column 1: `read` belongs under a kernel line
            line 5, column 14: `sideways` is not a phase: forward, backward, update
            line 5, column 30: `many` is not a whole number
            line 5, column 22: kernel `k` is of layer `m`, which no layer line above names
            line 6, column 8: `3` is not a time such as 1500ns or 2ms
            line 6, column 15: `256` is not a tier, 0 to 255
            line 6, column 31: `alternative` needs the word `factor` here
            line 6, column 1: a second name of the trace
        "#]],
    );
    for (bad, place) in [("", (1, 1)), ("hello\n", (1, 1)), ("\n tiercel-trace 2", (2, 16))] {
        let error = text::parse(bad).expect_err("no trace");
        assert_eq!((error.line, error.column), place, "{error}");
    }
    let error = text::parse_bytes(b"tiercel-trace 1\nname \xff").expect_err("no text");
    assert_eq!(error.to_string(), "line 2, column 6: this is not UTF-8 text");
}

#[test]
fn errors_of_meaning() {
    errors(
        &[
            "tensor x input 8",
            "tensor z input 0",
            "tensor z input 9999999PiB",
            "tensor \"\" input 9",
            "layer l",
            "kernel k add forward l\n  read x9",
            "kernel k add forward l\n  read y",
            "kernel k add forward l\n  read y\n  write y",
            "kernel k add forward l\n  read x\n  read x",
            "kernel k add forward l\n  write y\nkernel k add forward l",
            "kernel k add forward l\n  write y\n  time 3ns at 0 1",
            "kernel k add forward l\n  alternative a workspace 1 factor -1",
            "kernel k add forward l\n  alternative a workspace 1 factor nan",
            "kernel k add forward l flops 18446744073709551615",
        ],
        expect![[r#"
            line 5, column 8: a second tensor named `x`
            line 5, column 16: tensor `z` has no bytes
            line 5, column 16: `9999999PiB` is not a size such as 4096 or 64KiB
            line 5, column 8: a tensor without a name
            line 5, column 7: a second layer named `l`
            line 6, column 8: kernel `k` reads `x9`, which no tensor line above names
            line 6, column 8: kernel `k` reads `y`, which no kernel has written yet
            line 6, column 8: kernel `k` reads `y`, which no kernel has written yet
            line 7, column 8: kernel `k` reads `x` twice
            line 7, column 8: a second kernel named `k`
            line 7, column 8: kernel `k` has 1 operands and a time for 2 of them
            line 6, column 15: alternative `a` has a factor that is not positive
            line 6, column 15: alternative `a` has a factor that is not positive
            line 5, column 30: with kernel `k` the operations exceed 2^62
        "#]],
    );
}

#[test]
fn networks_survive_the_text() {
    for name in ["resnet50", "gpt2", "dcgan", "dlrm", "lstm"] {
        let net = nets::find(name).expect("a network");
        let trace = net.build(&nets::NetOptions::default()).expect("fits").trace;
        assert_eq!(text::parse(&text::write(&trace)).as_ref(), Ok(&trace), "{name}");
    }
}

proptest! {
    #[test]
    fn any_trace_survives_the_text(trace in arbitrary::trace()) {
        prop_assert_eq!(trace.check(), Ok(()));
        let written = text::write(&trace);
        prop_assert_eq!(text::parse(&written), Ok(trace), "{}", written);
    }
}

/// A small generator of random numbers, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Changes the text a little: bytes, ranges, lines and words.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const WORDS: [&str; 12] = [
        "kernel",
        " read x",
        "tensor ",
        "\"",
        "#",
        "\\u{110000}",
        "99999999999999999999",
        "1e400",
        "-1",
        " persistent",
        "\u{2028}",
        "\r\n",
    ];
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(30)).min(bytes.len());
    match random.below(6) {
        0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece = bytes[at..end].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        3 => {
            let word = WORDS[random.below(WORDS.len())].bytes();
            bytes.splice(at..at, word);
        }
        4 => {
            let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
            let (a, b) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(a, b);
            *bytes = lines.join(&b'\n');
        }
        _ => bytes.truncate(bytes.len() - random.below(bytes.len() / 8 + 1)),
    }
}

#[test]
fn mutated_files_never_panic() {
    let mut random = Random(0x5eed);
    let mut good = 0;
    for _ in 0..120_000 {
        let mut bytes = example().as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            mutate(&mut bytes, &mut random);
        }
        // What still is a trace must be sound, and survive the text.
        if let Ok(trace) = text::parse_bytes(&bytes) {
            good += 1;
            assert_eq!(trace.check(), Ok(()));
            assert_eq!(text::parse(&text::write(&trace)), Ok(trace));
        }
    }
    assert!(good > 1_000, "only {good} mutations were harmless: the fuzzer no longer gets past the head");
}
