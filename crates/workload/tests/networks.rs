//! The networks: parameters and multiply-adds against the published figures, in any size, in little time.

use std::time::{Duration, Instant};

use tiercel_core::Bytes;
use tiercel_workload::graph::DType;
use tiercel_workload::nets::{self, NetOptions};
use tiercel_workload::schedule::{self, Updates};
use tiercel_workload::{Kernel, Lifetimes, Program};

mod sound;

fn build(name: &str, options: NetOptions) -> Program {
    nets::find(name).expect("a network").build(&options).expect("fits")
}

/// The trainable parameters; running statistics of batch norms are not counted. The figures are those of the authors'
/// releases or of torchvision; ResNet-32's is the paper's 0.46 million, DenseNet-264's the usual 33.3 million.
#[test]
fn parameters() {
    let gpt2 = |depth, width| NetOptions { depth: Some(depth), width: Some(width), ..NetOptions::default() };
    let published = [
        ("vgg16", NetOptions::default(), 138_357_544),
        ("vgg19", NetOptions::default(), 143_667_240),
        ("resnet32", NetOptions::default(), 464_154),
        ("resnet50", NetOptions::default(), 25_557_032),
        ("resnet152", NetOptions::default(), 60_192_808),
        ("resnet200", NetOptions::default(), 64_673_832),
        ("densenet264", NetOptions::default(), 33_337_704),
        ("inception-v3", NetOptions::default(), 23_834_568), // without the auxiliary head
        ("inception-v4", NetOptions::default(), 42_679_816),
        ("mobilenet", NetOptions::default(), 4_231_976),
        ("dcgan", NetOptions::default(), 3_576_704 + 2_765_568), // generator and discriminator
        ("bert-large", NetOptions::default(), 335_141_888),      // with pooler, without heads
        ("gpt2", NetOptions::default(), 124_439_808),
        ("gpt2", gpt2(24, 1024), 354_823_168),
        ("gpt2", gpt2(36, 1280), 774_030_080),
        ("gpt2", gpt2(48, 1600), 1_557_611_200),
    ];
    for (name, options, parameters) in published {
        let options = NetOptions { batch: Some(1), ..options };
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
            let options = NetOptions { batch: Some(batch), ..NetOptions::default() };
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
                    let schedule = schedule::ScheduleOptions { in_place, updates };
                    let options = NetOptions { batch: Some(2), dtype, schedule, ..NetOptions::default() };
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
            let schedule = schedule::ScheduleOptions { in_place, updates: Updates::WhenReady };
            let program = net.build(&NetOptions { batch: Some(batch), schedule, ..NetOptions::default() });
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
        let schedule = schedule::ScheduleOptions { in_place, updates };
        let program = build("resnet50", NetOptions { schedule, ..NetOptions::default() });
        Lifetimes::new(&program.trace).peak().1
    };
    let default = peak(true, Updates::AtEnd);
    assert!(peak(false, Updates::AtEnd) > default);
    assert!(peak(true, Updates::WhenReady) <= default);
}

#[test]
fn sizes_follow_the_options() {
    let parameters = |name, options: NetOptions| build(name, options).graph.parameters();
    let small = NetOptions { batch: Some(1), image: Some(64), ..NetOptions::default() };
    assert_eq!(parameters("resnet50", small), 25_557_032);
    let long = NetOptions { batch: Some(1), sequence: Some(2048), ..NetOptions::default() };
    assert_eq!(parameters("gpt2", long), 124_439_808 + 1024 * 768);
    let bytes = |dtype| {
        let program = build("vgg16", NetOptions { batch: Some(8), dtype, ..NetOptions::default() });
        program.trace.tensors.iter().find(|t| t.name == "conv1_1.conv").map(|t| t.bytes.0)
    };
    assert_eq!(bytes(DType::F32), Some(8 * 64 * 224 * 224 * 4));
    assert_eq!(bytes(DType::Bf16), Some(8 * 64 * 224 * 224 * 2));
}

#[test]
fn what_does_not_fit_is_said() {
    let error = |name: &str, options: NetOptions| {
        nets::find(name).expect("a network").build(&options).expect_err("does not fit").to_string()
    };
    let image = |image| NetOptions { image: Some(image), ..NetOptions::default() };
    assert_eq!(error("vgg19", image(8)), "pool4.max-pool: a window of 2x2 does not fit the input 64x512x1x1");
    assert_eq!(error("vgg19", image(0)), "vgg19: image 0 is not between 1 and 65536");
    assert_eq!(
        error("dcgan", image(60)),
        "dcgan: images of 60 pixels; the side must be a power of two, 8 to 1024"
    );
    let odd = NetOptions { width: Some(200), ..NetOptions::default() };
    assert_eq!(error("gpt2", odd), "layer1.attention.attention: 3 heads do not divide the width 200");
    let huge = NetOptions {
        batch: Some(1 << 32),
        image: Some(1 << 16),
        width: Some(1 << 20),
        ..NetOptions::default()
    };
    for net in nets::all() {
        let _ = net.build(&huge);
    }
}

/// The best of three builds, so that a busy machine does not fail the test.
fn time(name: &str, options: NetOptions) -> Duration {
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
    let xl = NetOptions { depth: Some(48), width: Some(1600), ..NetOptions::default() };
    for (name, options) in [
        ("vgg416", NetOptions::default()),
        ("resnet200", NetOptions::default()),
        ("densenet264", NetOptions::default()),
        ("gpt2", xl),
    ] {
        let elapsed = time(name, options);
        assert!(elapsed < Duration::from_millis(200), "{name} took {elapsed:?}");
    }
}

#[test]
fn a_million_kernels_are_fine() {
    let start = Instant::now();
    let options =
        NetOptions { depth: Some(145_000), width: Some(16), batch: Some(4), ..NetOptions::default() };
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
    let few = NetOptions { batch: Some(2), ..NetOptions::default() };
    for net in nets::all() {
        let own = net.build(&few).expect("its own sizes").trace;
        for (name, options) in [
            ("image", NetOptions { image: Some(160), ..few }),
            ("sequence", NetOptions { sequence: Some(7), ..few }),
            ("depth", NetOptions { depth: Some(14), ..few }),
            ("width", NetOptions { width: Some(192), ..few }),
            ("words", NetOptions { words: Some(300), ..few }),
        ] {
            // Where there is a choice, there are also wrong ones.
            let other = net.build(&options).map(|program| program.trace != own).unwrap_or(true);
            assert_eq!(other, net.takes.contains(&name), "{name} of {}", net.name);
            let refused: Vec<&str> = net.refused(&options).collect();
            assert_eq!(refused, if other { vec![] } else { vec![name] }, "{}", net.name);
        }
    }
}
