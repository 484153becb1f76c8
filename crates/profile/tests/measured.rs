//! Kernels timed on real memory, and the file that keeps their times.

use std::path::PathBuf;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_kernels::prepare;
use tiercel_profile::{Kept, Survey, machines};
use tiercel_sim::KernelTime;
use tiercel_workload::{Kernel, Program, nets};

const THREADS: usize = 2;

fn program(net: &str, width: u64) -> Program {
    let options = nets::NetOptions { batch: Some(8), width: Some(width), ..nets::NetOptions::default() };
    prepare(nets::find(net).expect("built in").build(&options).expect("sound"), THREADS)
}

fn machine() -> Machine {
    machines::named("dram-throttled").expect("it ships")
}

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiercel-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for tests");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn everywhere(kernel: &Kernel, tier: u8) -> Vec<TierId> {
    vec![TierId(tier); kernel.reads.len() + kernel.writes.len()]
}

#[test]
fn every_kernel_of_a_program_has_a_time_in_every_placement() {
    let folder = Folder::new("survey");
    let (program, machine) = (program("mlp", 64), machine());
    let survey = Survey::new(&program, &machine, THREADS);
    let mut kept = Kept::open_in(&folder.0, THREADS);
    let mut ticks = 0;
    let all = survey.measure(&mut kept, || {
        ticks += 1;
        true
    });
    assert!(all.expect("measured") && ticks == survey.len() && ticks == kept.len());
    let times = survey.times(&kept);
    for kernel in &program.trace.kernels {
        assert_eq!(times.of(kernel).len(), 2, "{}: on plain memory, and on the emulated tier", kernel.name);
        let (fast, slow) = (everywhere(kernel, 0), everywhere(kernel, 1));
        assert!(times.time(&machine, kernel, &fast) > Nanos::ZERO);
        // The emulation never ends early: what is written takes its time at the tier's speed.
        let written: u64 = kernel.writes.iter().map(|u| u.bytes.0).sum();
        assert!(
            times.time(&machine, kernel, &slow).0 as f64 >= written as f64 / machine.tiers[1].write.0 * 1e9
        );
        let mut mixed = fast.clone();
        *mixed.last_mut().expect("a kernel writes something") = TierId(1);
        assert!(times.time(&machine, kernel, &mixed) >= times.time(&machine, kernel, &fast));
    }
}

#[test]
fn a_processor_tells_its_pace_and_times_follow_it() {
    let folder = Folder::new("pace");
    let (program, machine) = (program("mlp", 64), machine());
    let survey = Survey::new(&program, &machine, THREADS);
    let mut kept = Kept::open_in(&folder.0, THREADS);
    assert_eq!(survey.pace(&kept).expect("nothing to measure"), 1.0);
    survey.measure(&mut kept, || true).expect("measured");
    assert!(survey.pace(&kept).expect("measured") > 0.0);
    // Kept times of a processor that is a thousand times slower than any.
    let fast = |step: usize| vec![TierId(0); survey.kernels()[step].operands.len()];
    for (step, signature) in survey.kernels().iter().enumerate() {
        let slow =
            Nanos(kept.get(&signature.text, &machine, &fast(step)).expect("measured").0 + 1_000_000_000);
        kept.put(&signature.text, &machine, &fast(step), (slow, 0.0)).expect("kept");
    }
    let pace = survey.pace(&kept).expect("measured");
    assert!(pace < 0.5, "{pace}");
    let (before, after) = (survey.times(&kept), survey.times(&kept).paced(&machine, 0.5));
    for kernel in &program.trace.kernels {
        let [fast, slow] = [everywhere(kernel, 0), everywhere(kernel, 1)];
        let time =
            |times: &tiercel_profile::Measured, tiers: &[TierId]| times.time(&machine, kernel, tiers).0;
        assert_eq!(time(&after, &fast), time(&before, &fast) / 2);
        assert!(
            time(&after, &slow) >= time(&before, &slow) / 2 && time(&after, &slow) <= time(&before, &slow)
        );
    }
}

#[test]
fn what_was_interrupted_goes_on() {
    let folder = Folder::new("resume");
    let (program, machine) = (program("mlp", 32), machine());
    let survey = Survey::new(&program, &machine, THREADS);
    let mut kept = Kept::open_in(&folder.0, THREADS);
    let mut left = 5;
    let done = survey.measure(&mut kept, || {
        left -= 1;
        left > 0
    });
    assert!(!done.expect("measured"));
    let mut again = Kept::open_in(&folder.0, THREADS);
    assert_eq!((again.len(), survey.known(&again), again.complaint()), (5, 5, None));
    let mut more = 0;
    let done = survey.measure(&mut again, || {
        more += 1;
        true
    });
    assert!(done.expect("measured") && more == survey.len() - 5);
}

#[test]
fn writers_take_in_what_others_wrote() {
    let folder = Folder::new("writers");
    let machine = machine();
    let (mut one, mut two) = (Kept::open_in(&folder.0, 1), Kept::open_in(&folder.0, 1));
    let at = [TierId(0), TierId(1)];
    one.put("a", &machine, &at, (Nanos(1), 0.0)).expect("written");
    two.put("b", &machine, &at, (Nanos(2), 0.0)).expect("written");
    one.save().expect("written");
    two.save().expect("written");
    let all = Kept::open_in(&folder.0, 1);
    assert_eq!((all.get("a", &machine, &at), all.get("b", &machine, &at)), (Some(Nanos(1)), Some(Nanos(2))));
    assert_eq!(all.get("a", &machine, &[TierId(1); 2]), None);
    assert!(Kept::open_in(&folder.0, 2).is_empty(), "another number of threads");
    one.put("a", &machine, &at, (Nanos(9), 0.5)).expect("written");
    assert!(!one.disturbed("a", &machine, &at), "what was measured in peace stays");
    one.put("c", &machine, &at, (Nanos(9), 0.5)).expect("written");
    assert!(one.disturbed("c", &machine, &at));
    one.put("c", &machine, &at, (Nanos(7), 0.3)).expect("written");
    assert_eq!((one.get("c", &machine, &at), one.disturbed("c", &machine, &at)), (Some(Nanos(7)), true));
    one.put("c", &machine, &at, (Nanos(8), 0.0)).expect("written");
    assert_eq!((one.get("c", &machine, &at), one.disturbed("c", &machine, &at)), (Some(Nanos(8)), false));
    // Another speed of an emulated tier is another memory; another capacity is not.
    let mut other = machine.clone().with_capacity(TierId(1), tiercel_core::Bytes::mib(7));
    assert!(all.get("a", &other, &at).is_some());
    other.tiers[1].write.0 *= 2.0;
    assert!(all.get("a", &other, &at).is_none());
}

#[test]
fn many_writers_at_once_leave_a_whole_file() {
    let folder = Folder::new("crowd");
    let machine = machine();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (folder, machine) = (&folder.0, &machine);
            scope.spawn(move || {
                let mut kept = Kept::open_in(folder, 1);
                for at in 0..10 {
                    kept.put(&format!("{writer}/{at}"), machine, &[TierId(0)], (Nanos(at), 0.0))
                        .expect("written");
                    kept.save().expect("written");
                }
            });
        }
    });
    let all = Kept::open_in(&folder.0, 1);
    assert_eq!((all.complaint(), all.len()), (None, 80));
}

#[test]
fn a_file_that_makes_no_sense_is_measured_again() {
    let folder = Folder::new("damage");
    let machine = machine();
    let mut kept = Kept::open_in(&folder.0, 1);
    kept.put("a", &machine, &[TierId(0)], (Nanos(1), 0.0)).expect("written");
    kept.save().expect("written");
    let whole = std::fs::read(kept.path()).expect("it is there");
    for cut in [0, 1, whole.len() / 2, whole.len() - 3] {
        std::fs::write(kept.path(), &whole[..cut]).expect("writable");
        let mut damaged = Kept::open_in(&folder.0, 1);
        assert!(
            damaged.is_empty() && damaged.complaint().is_some_and(|why| why.contains("measured again")),
            "{cut}"
        );
        damaged.put("b", &machine, &[TierId(0)], (Nanos(2), 0.0)).expect("written");
        damaged.save().expect("written");
        let after = Kept::open_in(&folder.0, 1);
        assert_eq!((after.complaint(), after.len()), (None, 1));
    }
}

/// A kernel that changes weights without a gradient takes what those that it stands for take, until it is measured itself.
#[test]
fn kernels_that_stand_for_others_have_times_too() {
    let folder = Folder::new("fused");
    let options = nets::NetOptions { batch: Some(16), width: Some(600), ..nets::NetOptions::default() };
    let whole = prepare(nets::find("mlp").expect("built in").build(&options).expect("sound"), THREADS);
    let parts = whole.updating_early().in_parts(Bytes::kib(800)).expect("large weights");
    let machine = machine();
    let measured = |program: &Program| {
        let survey = Survey::new(program, &machine, THREADS);
        let mut kept = Kept::open_in(&folder.0, THREADS);
        assert!(survey.measure(&mut kept, || true).expect("measured"));
        survey.times(&kept)
    };
    let (of_whole, of_parts) = (measured(&whole), measured(&parts));
    let named = |program: &Program, name: &str| {
        program.trace.kernels.iter().find(|kernel| kernel.name == name).expect("a kernel").clone()
    };
    let single = |does: &str| {
        let kernel = named(&whole, &format!("hidden2.linear.backward-{does}"));
        of_whole.time(&machine, &kernel, &everywhere(&kernel, 0)).0 as f64
    };
    let together = single("weight") + single("data");
    let fused = parts.trace.kernels.iter().filter(|k| k.name.starts_with("hidden2.linear.backward-sgd.part"));
    let told: f64 = fused.map(|k| of_whole.time(&machine, k, &everywhere(k, 0)).0 as f64).sum();
    assert!((1.0..1.5).contains(&(told / together)), "{told} for {together}");
    let one = named(&parts, "hidden2.linear.backward-sgd.part0");
    let (fast, slow) = (everywhere(&one, 0), everywhere(&one, 1));
    assert!(of_whole.time(&machine, &one, &slow) > of_whole.time(&machine, &one, &fast));
    assert!(of_whole.of(&one).is_empty() && !of_parts.of(&one).is_empty());
    assert!(of_parts.time(&machine, &one, &fast) > Nanos::ZERO);
}
