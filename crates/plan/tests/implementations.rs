//! Kernels with a choice of implementations: memory decides, bounds hold, and what is chosen is what is played.

use std::time::Duration;

use tiercel_core::{Bytes, Machine};
use tiercel_plan::{Effort, Formulation, arranged, implemented, verify};
use tiercel_sim::Roofline;
use tiercel_workload::{Trace, text};

fn machine(fast: &str, computable: bool) -> Machine {
    let text = format!(
        "name = 'm'
        [[tier]]\nname = 'a'\ncapacity = '{fast}'\nread = '100 GB/s'\nwrite = '100 GB/s'
        [[tier]]\nname = 'b'\ncapacity = '1 GiB'\nread = '10 GB/s'\nwrite = '10 GB/s'\ncomputable = {computable}
        [[link]]\nfrom = 'a'\nto = 'b'\nthreads = 1\nbandwidth = {{ 1 = '10 GB/s' }}
        [[link]]\nfrom = 'b'\nto = 'a'\nthreads = 1\nbandwidth = {{ 1 = '10 GB/s' }}
        [compute]\nthreads = 1\ngflops = 1.0"
    );
    Machine::parse(&text).expect("two tiers")
}

/// Two kernels of a millisecond each; the second has two faster ways, one of them with much workspace.
fn trace() -> Trace {
    let text = "tiercel-trace 1
name choice
layer all
tensor x input 1MiB
tensor y activation 1MiB
tensor z activation 1MiB
kernel first conv forward all flops 1000000
  read x
  write y
kernel second conv forward all flops 1000000
  read y
  write z
  alternative tiled workspace 1MiB factor 0.8
  alternative wasteful workspace 2MiB factor 0.9
  alternative packed workspace 4MiB factor 0.5
";
    text::parse(text).expect("it is well-formed")
}

fn time(fast: &str, computable: bool, formulation: Formulation) -> (f64, f64, Vec<String>) {
    let (trace, machine) = (trace(), machine(fast, computable));
    let effort = Effort { gap: 1e-6, time: Duration::from_secs(5), ..Effort::default() };
    let arranged = arranged(&trace, &machine, &Roofline, formulation, &effort).expect("there is a plan");
    let played = implemented(&trace, &arranged.plan.implementations).expect("the trace offers them");
    assert_eq!(verify(&arranged.plan, &played, &machine), Ok(()));
    let names = arranged.plan.implementations.iter().map(|i| i.name.clone()).collect();
    (arranged.plan.iteration_ns / 1e6, arranged.plan.bound_ns / 1e6, names)
}

#[test]
fn memory_decides_which_implementation_runs() {
    for formulation in [Formulation::Static, Formulation::Synchronous, Formulation::Asynchronous] {
        for computable in [true, false] {
            let roomy = time("64 MiB", computable, formulation);
            assert_eq!(roomy.2, ["packed"], "{formulation:?}");
            assert!((roomy.0 - 1.5).abs() < 0.01, "{roomy:?}");
            let scarce = time("3200 KiB", computable, formulation);
            assert_eq!(scarce.2, ["tiled"], "{formulation:?}");
            assert!((scarce.0 - 1.8).abs() < 0.15, "{scarce:?}");
            let none = time("2 MiB", computable, formulation);
            assert!(none.2.is_empty() || computable, "{none:?}");
            for (cost, bound, _) in [roomy, scarce, none] {
                assert!(bound <= cost + 1e-9, "{bound} {cost}");
            }
        }
    }
}

#[test]
fn less_scratch_memory_is_a_choice_too() {
    let text = "tiercel-trace 1
name slim
layer all
tensor x input 1MiB
tensor y activation 1MiB
tensor only.workspace workspace 8MiB
kernel only conv forward all flops 1000000
  read x
  write y
  write only.workspace
  alternative slim workspace 1KiB factor 1.5
";
    let trace = text::parse(text).expect("it is well-formed");
    let effort = Effort { gap: 1e-6, time: Duration::from_secs(5), ..Effort::default() };
    let plan = |fast| {
        let machine = machine(fast, false);
        arranged(&trace, &machine, &Roofline, Formulation::Synchronous, &effort).expect("a plan").plan
    };
    assert_eq!(plan("16 MiB").implementations, []);
    let little = plan("3 MiB");
    assert_eq!(little.implementations[0].name, "slim");
    let played = implemented(&trace, &little.implementations).expect("the trace offers it");
    assert!(tiercel_workload::Lifetimes::new(&played).peak().1 <= Bytes(2 * 1024 * 1024 + 1024));
    let mut other = little.implementations;
    other[0].name = "unheard-of".into();
    assert_eq!(implemented(&trace, &other).map_err(|choice| choice.name), Err("unheard-of".to_string()));
    let twice =
        text.replace("  alternative slim", "  alternative slim workspace 0B factor 2\n  alternative slim");
    let refused = text::parse(&twice).expect_err("a plan would not know which").to_string();
    assert!(refused.contains("kernel `only` has two alternatives `slim`"), "{refused}");
}
