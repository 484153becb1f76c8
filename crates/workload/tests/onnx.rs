//! ONNX files that other programs wrote: sizes against counts that they made themselves, batches, losses, complaints.
//!
//! The small files in `onnx/` are committed; `generate.py` and `export.py` there say what is in them, and `counts.tsv` has
//! figures that were counted by the `onnx` package and by PyTorch. The large ones are inside the `onnx` wheel; a script
//! fetches them, and without a network their tests are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use expect_test::{Expect, expect};
use tiercel_workload::graph::{DType, Op};
use tiercel_workload::import::onnx;
use tiercel_workload::nets::{self, NetOptions};
use tiercel_workload::schedule::{self, Updates};
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Lifetimes, Program, Workload, open};

mod sound;

fn committed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(name).with_extension("onnx")
}

/// The folder with the wheel's models, fetched once; `None`, with a line that says why, where that does not work.
fn wheel() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
            let folder = target.join("onnx-models");
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-onnx");
            let why = match Command::new("sh").arg(script).arg(&folder).output() {
                Ok(output) if output.status.success() => return Some(folder),
                Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
                Err(error) => error.to_string(),
            };
            eprintln!("skipped: the models of the onnx wheel cannot be fetched ({why})");
            None
        })
        .as_deref()
}

fn load(path: &Path, options: &NetOptions) -> Result<(Program, u64), String> {
    match open(path.to_str().expect("a plain path"), options) {
        Ok(Workload::Program { program, batch }) => Ok((program, batch)),
        Ok(Workload::Trace(_)) => Err("a trace".to_string()),
        Err(error) => Err(error.to_string().replace(path.to_str().unwrap_or_default(), "FILE")),
    }
}

fn batch(n: u64) -> NetOptions {
    NetOptions { batch: Some(n), ..NetOptions::default() }
}

/// The lines of `counts.tsv`: file, options with batch and sequence, parameters, multiply-adds.
fn counts() -> Vec<(&'static str, NetOptions, u64, u64)> {
    let lines = include_str!("onnx/counts.tsv").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split('\t').collect();
            let [name, batch, sequence, parameters, macs] = words[..] else { panic!("{line}") };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            // The script sets a sequence for every file; only some have an open one.
            let open = ["transformer", "torch-gpt-dynamic"].contains(&name);
            let sequence = Some(number(sequence)).filter(|_| open);
            let options = NetOptions { batch: Some(number(batch)), sequence, ..NetOptions::default() };
            (name, options, number(parameters), number(macs))
        })
        .collect()
}

/// Parameters and multiply-adds are those that the onnx package and PyTorch count in the same files.
#[test]
fn sizes_are_those_that_others_count() {
    let mut seen = 0;
    for (name, options, parameters, macs) in counts() {
        let path = match (name.starts_with("light_"), wheel()) {
            (false, _) => committed(name),
            (true, Some(folder)) => folder.join("light").join(name).with_extension("onnx"),
            (true, None) => continue,
        };
        let (program, n) = load(&path, &options).expect(name);
        assert_eq!(program.graph.parameters(), parameters, "{name}");
        assert_eq!(program.graph.forward_macs(), macs, "{name}");
        assert_eq!(Some(n), options.batch, "{name}");
        seen += 1;
    }
    assert!(seen >= 10);
}

/// The published parameters: VGG-19, ResNet-50, SqueezeNet 1.1 and AlexNet as Caffe has it.
#[test]
fn published_parameters() {
    let published = [
        ("light_vgg19", 143_667_240),
        ("light_resnet50", 25_557_032),
        ("light_squeezenet", 1_235_496),
        ("light_bvlc_alexnet", 60_965_224),
    ];
    for (name, parameters) in published {
        assert!(counts().iter().any(|line| line.0 == name && line.2 == parameters), "{name}");
    }
}

/// VGG-19 and ResNet-50 from Caffe2 are the built-in ones to the last kernel, multiply-add and byte.
#[test]
fn imported_networks_are_the_built_in_ones() {
    let Some(folder) = wheel() else { return };
    for (file, name) in [("light_vgg19", "vgg19"), ("light_resnet50", "resnet50")] {
        let path = folder.join("light").join(file).with_extension("onnx");
        let (imported, _) = load(&path, &batch(32)).expect(file);
        let built_in = nets::find(name).expect("a network").build(&batch(32)).expect("fits");
        let figures = |program: &Program| {
            let lifetimes = Lifetimes::new(&program.trace);
            let counts = (program.trace.kernels.len(), program.trace.tensors.len());
            (program.graph.forward_macs(), program.graph.parameters(), counts, lifetimes.peak().1)
        };
        assert_eq!(figures(&imported), figures(&built_in), "{name}");
    }
}

/// A file with a fixed batch serves any batch: all work grows with it, and all that outlives an iteration stays.
#[test]
fn any_batch() {
    let mut files: Vec<PathBuf> =
        ["mlp", "mixture", "lenet", "lstm", "torch-gpt", "torch-lstm", "torch-segment"]
            .map(committed)
            .to_vec();
    if let Some(folder) = wheel() {
        let light = std::fs::read_dir(folder.join("light")).expect("a folder");
        files.extend(light.map(|entry| entry.expect("an entry").path()));
    }
    for path in files {
        let name = path.display();
        let at = |n: u64| load(&path, &batch(n)).unwrap_or_else(|error| panic!("{name}: {error}")).0;
        let (_, stated) = load(&path, &NetOptions::default()).expect("imports");
        // Twice the file's batch, because moving an axis of extent 1 moves no data and needs no kernel.
        let (own, wide) = (at(2 * stated), at(48 * stated));
        assert_eq!(wide.graph.forward_macs(), 24 * own.graph.forward_macs(), "{name}");
        assert_eq!(wide.graph.parameters(), own.graph.parameters(), "{name}");
        assert_eq!(wide.trace.kernels.len(), own.trace.kernels.len(), "{name}");
        let sizes = |p: &Program, role: Role| -> u64 {
            p.trace.tensors.iter().filter(|t| t.role == role).map(|t| t.bytes.0).sum()
        };
        assert_eq!(sizes(&wide, Role::State), sizes(&own, Role::State), "{name}");
        assert!(sizes(&wide, Role::Activation) > 10 * sizes(&own, Role::Activation), "{name}");
    }
}

#[test]
fn every_file_is_sound_in_every_form() {
    for (name, options, ..) in counts().into_iter().filter(|line| !line.0.starts_with("light_")) {
        for dtype in [DType::F32, DType::Bf16] {
            for updates in [Updates::AtEnd, Updates::WhenReady] {
                for in_place in [true, false] {
                    let schedule = schedule::ScheduleOptions { in_place, updates };
                    let (program, _) =
                        load(&committed(name), &NetOptions { dtype, schedule, ..options }).expect(name);
                    assert_eq!(program.trace.check(), Ok(()), "{name}");
                    sound::nothing_reads_what_was_overwritten(&program);
                }
            }
        }
    }
}

/// The forward kernels of a file, and the loss with its gradient.
fn kernels(name: &str, options: &NetOptions) -> String {
    let (program, _) = load(&committed(name), options).expect(name);
    let mut text = String::new();
    let shape = |v| program.graph.value(v).shape;
    for node in program.graph.nodes.iter().filter(|n| n.phase == Phase::Forward) {
        let inputs: Vec<String> = node.inputs.iter().map(|v| shape(*v).to_string()).collect();
        text += &format!("{} {} -> {}\n", node.op.name(), inputs.join(" "), shape(node.outputs[0]));
    }
    text
}

fn check(name: &str, options: NetOptions, expected: Expect) {
    expected.assert_eq(&kernels(name, &options));
}

/// The final softmax is part of the loss.
#[test]
fn a_convolutional_network() {
    check(
        "lenet",
        batch(2),
        expect![[r#"
        conv 2x1x28x28 4x1x5x5 4 -> 2x4x28x28
        relu 2x4x28x28 -> 2x4x28x28
        max-pool 2x4x28x28 -> 2x4x14x14
        conv 2x4x14x14 8x4x5x5 8 -> 2x8x10x10
        relu 2x8x10x10 -> 2x8x10x10
        max-pool 2x8x10x10 -> 2x8x5x5
        linear 2x200 10x200 10 -> 2x10
        tanh 2x10 -> 2x10
        linear 2x10 10x10 10 -> 2x10
        cross-entropy 2x10 2 -> 1
    "#]],
    );
}

/// Weights stand output by input, whatever the file has; a product and a sum are one layer.
#[test]
fn linear_layers() {
    check(
        "mlp",
        batch(8),
        expect![[r#"
        linear 8x36 16x36 16 -> 8x16
        relu 8x16 -> 8x16
        linear 8x16 12x16 12 -> 8x12
        relu 8x12 -> 8x12
        dropout 8x12 -> 8x12
        linear 8x12 5x12 5 -> 8x5
        cross-entropy 8x5 8 -> 1
    "#]],
    );
}

/// Layer norms and GELU are whole again, shapes are computed, and the word table serves twice.
#[test]
fn a_transformer() {
    check(
        "transformer",
        NetOptions { sequence: Some(7), ..batch(2) },
        expect![[r#"
        embedding 1000x64 2x7 -> 2x7x64
        slice 128x64 -> 7x64
        add 2x7x64 7x64 -> 2x7x64
        layer-norm 2x7x64 64 64 -> 2x7x64
        linear 2x7x64 64x64 64 -> 2x7x64
        transpose 2x7x4x16 -> 2x4x7x16
        linear 2x7x64 64x64 64 -> 2x7x64
        transpose 2x7x4x16 -> 2x4x7x16
        linear 2x7x64 64x64 64 -> 2x7x64
        transpose 2x7x4x16 -> 2x4x7x16
        transpose 2x4x7x16 -> 2x4x16x7
        matmul 2x4x7x16 2x4x16x7 -> 2x4x7x7
        scale 2x4x7x7 -> 2x4x7x7
        scale 2x7 -> 2x7
        add 2x7 1 -> 2x7
        scale 2x7 -> 2x7
        add 2x4x7x7 2x1x1x7 -> 2x4x7x7
        softmax 2x4x7x7 -> 2x4x7x7
        matmul 2x4x7x7 2x4x7x16 -> 2x4x7x16
        transpose 2x4x7x16 -> 2x7x4x16
        linear 2x7x64 64x64 64 -> 2x7x64
        add 2x7x64 2x7x64 -> 2x7x64
        layer-norm 2x7x64 64 64 -> 2x7x64
        linear 2x7x64 256x64 256 -> 2x7x256
        gelu 2x7x256 -> 2x7x256
        linear 2x7x256 64x256 64 -> 2x7x64
        add 2x7x64 2x7x64 -> 2x7x64
        layer-norm 2x7x64 64 64 -> 2x7x64
        linear 2x7x64 1000x64 -> 2x7x1000
        cross-entropy 2x7x1000 2x7 -> 1
    "#]],
    );
    let (program, _) =
        load(&committed("transformer"), &NetOptions { sequence: Some(7), ..batch(2) }).expect("imports");
    let words: Vec<&str> = program
        .graph
        .values
        .iter()
        .filter(|v| v.name.starts_with("words"))
        .map(|v| v.name.as_str())
        .collect();
    assert!(words.contains(&"words") && words.contains(&"words.grad"), "{words:?}");
}

#[test]
fn everything_else() {
    check(
        "mixture",
        NetOptions::default(),
        expect![[r#"
        conv 2x3x16x16 8x3x3x3 -> 2x8x8x8
        batch-norm 2x8x8x8 8 8 8 8 -> 2x8x8x8
        leaky-relu 2x8x8x8 -> 2x8x8x8
        response-norm 2x8x8x8 -> 2x8x8x8
        split 2x8x8x8 -> 2x3x8x8
        slice 2x5x8x8 -> 2x4x8x8
        relu6 2x3x8x8 -> 2x3x8x8
        scale 2x4x8x8 -> 2x4x8x8
        add 2x4x8x8 1 -> 2x4x8x8
        scale 2x4x8x8 -> 2x4x8x8
        relu6 2x4x8x8 -> 2x4x8x8
        scale 2x4x8x8 -> 2x4x8x8
        mul 2x4x8x8 2x4x8x8 -> 2x4x8x8
        concat 2x3x8x8 2x4x8x8 -> 2x7x8x8
        average-pool 2x7x8x8 -> 2x7x5x5
        pad 2x7x5x5 -> 2x7x6x5
        pad 2x7x6x5 -> 2x7x6x6
        global-pool 2x7x6x6 -> 2x7x1x1
        conv 2x7x1x1 7x7x1x1 -> 2x7x1x1
        sigmoid 2x7x1x1 -> 2x7x1x1
        mul 2x7x6x6 2x7x1x1 -> 2x7x6x6
        mul 2x7x6x6 2x7x6x6 -> 2x7x6x6
        transpose 2x7x6x6 -> 2x6x6x7
        global-pool 1x72x1x7 -> 1x72x1x1
        scale 1x72x1x1 -> 1x72x1x1
        power 2x1x6x6 -> 2x1x6x6
        add 2x1x6x6 1 -> 2x1x6x6
        power 2x1x6x6 -> 2x1x6x6
        mul 2x7x6x6 2x1x6x6 -> 2x7x6x6
        exp 2x7x6x6 -> 2x7x6x6
        mul 2x7x6x6 1x6 -> 2x7x6x6
        add 2x7x6x6 1x6 -> 2x7x6x6
        conv-transposed 2x7x6x6 7x4x2x2 4 -> 2x4x12x12
        fill  -> 2x4x12x2x12x2
        add 2x4x12x2x12x2 2x4x12x1x12x1 -> 2x4x12x2x12x2
        conv 2x4x24x24 4x1x3x3 -> 2x4x24x24
        transpose 2x4x24x24 -> 2x24x4x24
        global-pool 1x48x1x96 -> 1x48x1x1
        mul 2x24 24 -> 2x24
        binary-cross-entropy 2x4x24x24 2x4x24x24 -> 1
        cross-entropy 2x24 2 -> 1
    "#]],
    );
}

#[test]
fn losses() {
    let losses = |name: &str, options: NetOptions| {
        let (program, _) = load(&committed(name), &options).expect(name);
        let is_loss = |op: &Op| matches!(op, Op::CrossEntropy | Op::BinaryCrossEntropy | Op::MeanSquare);
        let losses = program.graph.nodes.iter().filter(|n| is_loss(&n.op));
        losses.map(|n| n.op.name()).collect::<Vec<_>>().join(" ")
    };
    let sequence = NetOptions { sequence: Some(9), ..NetOptions::default() };
    assert_eq!(losses("lenet", NetOptions::default()), "cross-entropy"); // of the logits before the softmax
    assert_eq!(losses("mlp", NetOptions::default()), "cross-entropy"); // batch by classes
    assert_eq!(losses("transformer", sequence), "cross-entropy"); // logits of words
    assert_eq!(losses("mixture", NetOptions::default()), "binary-cross-entropy cross-entropy"); // a sigmoid, and classes
    assert_eq!(losses("lstm", NetOptions::default()), "mean-square"); // one number a sample
}

#[test]
fn complaints() {
    let complaint =
        |name: &str, options: NetOptions| load(&committed(name), &options).expect_err("is refused") + "\n";
    let none = NetOptions::default();
    let mut text = complaint("loop", none);
    text += &complaint("transformer", none);
    text += &complaint("mlp", batch(0));
    text += &complaint("mlp", NetOptions { depth: Some(3), ..none });
    text += &complaint("mlp", NetOptions { sequence: Some(3), ..none });
    text += &complaint("mixture", NetOptions { image: Some(64), ..none });
    text += &complaint("missing", none);
    let bytes = |bytes: &[u8]| onnx::read(bytes, "net", &none).expect_err("is refused").to_string() + "\n";
    text += &bytes(b"");
    text += &bytes(b"tiercel-trace 1\n");
    text += &bytes(b"\x3a\x00");
    text += &bytes(b"\x3a\x00\x42\x02\x10\x0d");
    text += &bytes(b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
    expect![[r#"
        FILE: node 1 `loop_1`: operator `Loop` is not supported; supported are Add, ConvTranspose, Gather, Identity, Mul, Relu, Sqrt, Upsample and 65 more (docs/onnx.md)
        FILE: input `ids`: axis 1 has no size in the file; `--sequence` gives it
        FILE: mlp: batch 0 is not between 1 and 4294967296
        FILE: mlp: a file has its layers already; `--depth` does not apply
        FILE: mlp: the file states all sizes of its inputs but the batch; `--sequence` does not apply
        FILE: mixture: the file states all sizes of its inputs but the batch; `--image` does not apply
        cannot read `FILE`: No such file or directory (os error 2)
        byte 0: there is no graph
        byte 1: no field has the wire type 4
        net: the file does not say which version of ONNX's operators it uses
        net: has no kernels
        byte 10: 9223372036854775807 bytes should follow, and 0 do
    "#]].assert_eq(&text);
}

/// Every operator that is supported has a line in the documentation, and no other has.
#[test]
fn the_documentation_lists_the_operators() {
    let document = include_str!("../../../docs/onnx.md");
    let listed = document.split("<!-- operators -->").nth(1).expect("a list");
    let mut names: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
    names.sort_unstable();
    assert_eq!(names, onnx::operators());
}

/// The wheel has 1,400 files more, one an operator; whatever is in them, importing them ends.
#[test]
fn the_other_files_of_the_wheel_end_well() {
    let Some(folder) = wheel() else { return };
    let (mut files, mut imported) = (0, 0);
    for kind in ["node", "simple", "pytorch-converted", "pytorch-operator"] {
        for entry in std::fs::read_dir(folder.join(kind)).expect("a folder") {
            files += 1;
            let path = entry.expect("an entry").path();
            for options in [NetOptions::default(), batch(3)] {
                if let Ok((program, _)) = load(&path, &options) {
                    imported += 1;
                    assert_eq!(program.trace.check(), Ok(()), "{}", path.display());
                }
            }
        }
    }
    assert!(files > 1000 && imported > 60, "{imported} of {files}");
}
