//! The networks: parameters and multiply-adds against the published figures, in any size, in little time.

use std::time::{Duration, Instant};

use tiercel_core::Bytes;
use tiercel_workload::graph::DType;
use tiercel_workload::nets::{self, Options};
use tiercel_workload::schedule::{self, Updates};
use tiercel_workload::{Kernel, Lifetimes, Program};

mod sound;

fn build(name: &str, options: Options) -> Program {
    nets::find(name).expect("a network").build(&options).expect("fits")
}

/// The trainable parameters; running statistics of batch norms are not counted. The figures are those of the authors'
/// releases or of torchvision; ResNet-32's is the paper's 0.46 million, DenseNet-264's the usual 33.3 million.
#[test]
fn parameters() {
    let gpt2 = |depth, width| Options { depth: Some(depth), width: Some(width), ..Options::default() };
    let published = [
        ("vgg16", Options::default(), 138_357_544),
        ("vgg19", Options::default(), 143_667_240),
        ("resnet32", Options::default(), 464_154),
        ("resnet50", Options::default(), 25_557_032),
        ("resnet152", Options::default(), 60_192_808),
        ("resnet200", Options::default(), 64_673_832),
        ("densenet264", Options::default(), 33_337_704),
        ("inception-v3", Options::default(), 23_834_568), // without the auxiliary head
        ("inception-v4", Options::default(), 42_679_816),
        ("mobilenet", Options::default(), 4_231_976),
        ("dcgan", Options::default(), 3_576_704 + 2_765_568), // generator and discriminator
        ("bert-large", Options::default(), 335_141_888),      // with pooler, without heads
        ("gpt2", Options::default(), 124_439_808),
        ("gpt2", gpt2(24, 1024), 354_823_168),
        ("gpt2", gpt2(36, 1280), 774_030_080),
        ("gpt2", gpt2(48, 1600), 1_557_611_200),
    ];
    for (name, options, parameters) in published {
        let options = Options { batch: Some(1), ..options };
        assert_eq!(build(name, options).graph.parameters(), parameters, "{name}");
    }
}

/// Multiply-adds of one image's forward pass, in units of 10⁹, within 3 %.
#[test]
fn forward_multiply_adds() {
    let published = [
        ("vgg16", 15.5),
        ("vgg19", 19.6),
        ("resnet50", 4.1),
        ("resnet152", 11.5),
        ("densenet264", 5.8),
        ("inception-v3", 5.7),
        ("inception-v4", 12.3),
        ("mobilenet", 0.569),
    ];
    for (name, giga) in published {
        for batch in [1, 4] {
            let options = Options { batch: Some(batch), ..Options::default() };
            let ours = build(name, options).graph.forward_macs() as f64 / batch as f64 / 1e9;
            assert!((ours / giga - 1.0).abs() < 0.03, "{name}: {ours} against {giga}");
        }
    }
}

#[test]
fn every_network_is_sound_in_every_form() {
    for net in nets::all() {
        for dtype in [DType::F32, DType::Bf16] {
            for in_place in [true, false] {
                for updates in [Updates::AtEnd, Updates::WhenReady] {
                    let schedule = schedule::Options { in_place, updates };
                    let options = Options { batch: Some(2), dtype, schedule, ..Options::default() };
                    let program = net.build(&options).expect(net.name);
                    assert_eq!(program.trace.check(), Ok(()), "{}", net.name);
                    sound::nothing_reads_what_was_overwritten(&program);
                }
            }
        }
    }
}

/// A batch in parts is the same work in more kernels, whatever the size of the parts.
#[test]
fn every_network_is_sound_in_parts() {
    for net in nets::all() {
        for (in_place, batch) in [(true, 6), (false, 7)] {
            let schedule = schedule::Options { in_place, updates: Updates::WhenReady };
            let program = net.build(&Options { batch: Some(batch), schedule, ..Options::default() });
            let program = program.expect(net.name);
            let largest = program.trace.tensors.iter().map(|tensor| tensor.bytes.0).max().unwrap_or(0);
            for shares in [3, 40, 1000] {
                let Some(parts) = program.in_parts(Bytes(largest / shares)) else { continue };
                assert_eq!(parts.trace.check(), Ok(()), "{}", net.name);
                sound::nothing_reads_what_was_overwritten(&parts);
                // Only the mean of a loss in parts is a kernel of its own.
                let own = |kernel: &&Kernel| kernel.op != "mean";
                let work = |program: &Program| {
                    program.trace.kernels.iter().filter(own).map(|k| k.flops).sum::<u64>()
                };
                assert_eq!(work(&parts), work(&program), "{}", net.name);
                let peak = |program: &Program| Lifetimes::new(&program.trace).peak().1;
                let (parts, whole) = (peak(&parts).0 as f64, peak(&program).0 as f64);
                // Updates that wait for a row of parts keep small gradients a little longer.
                assert!(parts <= whole * 1.001, "{}: {parts} and {whole}", net.name);
            }
        }
    }
}

/// Working in place and updating early change where bytes are, never what must be computed.
#[test]
fn in_place_and_early_updates_save_memory() {
    let peak = |in_place, updates| {
        let schedule = schedule::Options { in_place, updates };
        let program = build("resnet50", Options { schedule, ..Options::default() });
        Lifetimes::new(&program.trace).peak().1
    };
    let default = peak(true, Updates::AtEnd);
    assert!(peak(false, Updates::AtEnd) > default);
    assert!(peak(true, Updates::WhenReady) <= default);
}

#[test]
fn sizes_follow_the_options() {
    let parameters = |name, options: Options| build(name, options).graph.parameters();
    let small = Options { batch: Some(1), image: Some(64), ..Options::default() };
    assert_eq!(parameters("resnet50", small), 25_557_032);
    let long = Options { batch: Some(1), sequence: Some(2048), ..Options::default() };
    assert_eq!(parameters("gpt2", long), 124_439_808 + 1024 * 768);
    let bytes = |dtype| {
        let program = build("vgg16", Options { batch: Some(8), dtype, ..Options::default() });
        program.trace.tensors.iter().find(|t| t.name == "conv1_1.conv").map(|t| t.bytes.0)
    };
    assert_eq!(bytes(DType::F32), Some(8 * 64 * 224 * 224 * 4));
    assert_eq!(bytes(DType::Bf16), Some(8 * 64 * 224 * 224 * 2));
}

#[test]
fn what_does_not_fit_is_said() {
    let error = |name: &str, options: Options| {
        nets::find(name).expect("a network").build(&options).expect_err("does not fit").to_string()
    };
    let image = |image| Options { image: Some(image), ..Options::default() };
    assert_eq!(error("vgg19", image(8)), "pool4.max-pool: a window of 2x2 does not fit the input 64x512x1x1");
    assert_eq!(error("vgg19", image(0)), "vgg19: image 0 is not between 1 and 65536");
    assert_eq!(
        error("dcgan", image(60)),
        "dcgan: images of 60 pixels; the side must be a power of two, 8 to 1024"
    );
    let odd = Options { width: Some(200), ..Options::default() };
    assert_eq!(error("gpt2", odd), "layer1.attention.attention: 3 heads do not divide the width 200");
    let huge =
        Options { batch: Some(1 << 32), image: Some(1 << 16), width: Some(1 << 20), ..Options::default() };
    for net in nets::all() {
        let _ = net.build(&huge);
    }
}

/// The best of three builds, so that a busy machine does not fail the test.
fn time(name: &str, options: Options) -> Duration {
    let once = || {
        let start = Instant::now();
        let program = build(name, options);
        let elapsed = start.elapsed();
        assert!(!program.trace.kernels.is_empty());
        elapsed
    };
    (0..3).map(|_| once()).min().expect("three")
}

#[test]
fn the_largest_networks_build_at_once() {
    let xl = Options { depth: Some(48), width: Some(1600), ..Options::default() };
    for (name, options) in [
        ("vgg416", Options::default()),
        ("resnet200", Options::default()),
        ("densenet264", Options::default()),
        ("gpt2", xl),
    ] {
        let elapsed = time(name, options);
        assert!(elapsed < Duration::from_millis(200), "{name} took {elapsed:?}");
    }
}

#[test]
fn a_million_kernels_are_fine() {
    let start = Instant::now();
    let options = Options { depth: Some(145_000), width: Some(16), batch: Some(4), ..Options::default() };
    let program = build("mlp", options);
    assert!(program.trace.kernels.len() > 1_000_000);
    let lifetimes = Lifetimes::new(&program.trace);
    assert!(lifetimes.peak().1 > lifetimes.short_lived_peak());
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
}

#[test]
fn misspelt_names_find_their_network() {
    let nearest = |name| nets::nearest(name).map(|net| net.name);
    assert_eq!(nearest("resnet-200"), Some("resnet200"));
    assert_eq!(nearest("VGG-19"), Some("vgg19"));
    assert_eq!(nearest("gpt-2"), Some("gpt2"));
    assert_eq!(nearest("inceptionv4"), Some("inception-v4"));
    assert_eq!(nearest("banana"), None);
    assert_eq!(nearest(""), None);
}

#[test]
fn networks_have_the_sizes_that_they_say_and_no_others() {
    let few = Options { batch: Some(2), ..Options::default() };
    for net in nets::all() {
        let own = net.build(&few).expect("its own sizes").trace;
        for (name, options) in [
            ("image", Options { image: Some(160), ..few }),
            ("sequence", Options { sequence: Some(7), ..few }),
            ("depth", Options { depth: Some(14), ..few }),
            ("width", Options { width: Some(192), ..few }),
            ("words", Options { words: Some(300), ..few }),
        ] {
            // Where there is a choice, there are also wrong ones.
            let other = net.build(&options).map(|program| program.trace != own).unwrap_or(true);
            assert_eq!(other, net.takes.contains(&name), "{name} of {}", net.name);
            let refused: Vec<&str> = net.refused(&options).collect();
            assert_eq!(refused, if other { vec![] } else { vec![name] }, "{}", net.name);
        }
    }
}
