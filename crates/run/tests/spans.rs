//! Both worlds tell when a copy's bytes moved: not before it was asked for, not after it was seen to have ended, and one
//! copy of a lane after the other.

use tiercel_core::{Backend, Bytes, CopyOrder, Machine, Nanos, Place, Ticket, TierId};
use tiercel_run::Host;
use tiercel_sim::Sim;

fn machine() -> Machine {
    let text = r#"
        name = "test"
        [[tier]]
        name = "fast"
        capacity = "1 MiB"
        read = "10 GB/s"
        write = "10 GB/s"
        [[tier]]
        name = "slow"
        capacity = "1 MiB"
        read = "10 GB/s"
        write = "10 GB/s"
        [[link]]
        from = "fast"
        to = "slow"
        latency = "500 ns"
        threads = 1
        bandwidth = { 1 = "1 GB/s" }
        [[link]]
        from = "slow"
        to = "fast"
        threads = 1
        bandwidth = { 1 = "1 GB/s" }
    "#;
    Machine::parse(text).expect("a machine")
}

fn copy(world: &mut impl Backend, from: u8, offset: u64, bytes: u64, after: &[Ticket]) -> Ticket {
    let place = |tier| Place { tier: TierId(tier), offset: Bytes(offset) };
    world.copy(CopyOrder { from: place(from), to: place(1 - from), bytes: Bytes(bytes), after })
}

#[test]
fn a_simulated_copy_tells_to_the_nanosecond() {
    let mut sim = Sim::new(machine());
    let a = copy(&mut sim, 0, 0, 1000, &[]);
    let b = copy(&mut sim, 0, 1000, 2000, &[]);
    let c = copy(&mut sim, 1, 4000, 1000, &[a]);
    let never = copy(&mut sim, 0, 8000, 1000, &[]);
    assert_eq!(sim.span(a), None, "it has not ended");
    sim.cancel(never);
    sim.wait(b).expect("it does not fail");
    sim.wait(c).expect("it does not fail");
    let span = |ticket| sim.span(ticket).map(|span| (span.began.0, span.ended.0));
    // The latency of the link is a part of the copy; the second waits for the first, the third for its turn.
    assert_eq!(span(a), Some((0, 1500)));
    assert_eq!(span(b), Some((1500, 4000)));
    assert_eq!(span(c), Some((1500, 2500)));
    assert_eq!(span(never), None, "nothing of it moved");
    sim.forget(a);
    assert_eq!(sim.span(a), None);
}

#[test]
fn a_real_copy_tells_when_its_bytes_moved() {
    let mut host = Host::open(&machine()).expect("two megabytes");
    let mut lanes = [Nanos::ZERO; 2];
    for round in 0..50u64 {
        let asked = host.now();
        let a = copy(&mut host, 0, 0, 100_000, &[]);
        let b = copy(&mut host, 0, 200_000, 50_000, &[]);
        let c = copy(&mut host, 1, 400_000, 1 + round, &[a]);
        for ticket in [c, b, a] {
            host.wait(ticket).expect("it does not fail");
        }
        let seen = host.now();
        let [a, b, c] = [a, b, c].map(|ticket| host.span(ticket).expect("it has ended"));
        for span in [a, b, c] {
            assert!(asked <= span.began && span.began <= span.ended && span.ended <= seen, "{span:?}");
        }
        assert!(lanes[0] <= a.began && a.ended <= c.began, "{a:?} {c:?}");
        // One thread serves the lane: the second copy is taken up when the first has been moved.
        assert!(a.ended <= b.began && lanes[1] <= c.began, "{a:?} {b:?}");
        lanes = [b.ended, c.ended];
    }
    let ticket = copy(&mut host, 0, 0, 100, &[]);
    host.wait(ticket).expect("it does not fail");
    host.forget(ticket);
    assert_eq!(host.span(ticket), None);
}
