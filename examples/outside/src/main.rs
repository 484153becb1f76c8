//! A trace planned for half of the memory that it wants and played, then a network trained on real memory: a program with
//! one dependency. `cargo run --manifest-path examples/outside/Cargo.toml -- examples/outside/steps.trace`

use tiercel::session::{Choice, Fast, Options, Session, SessionError, nets};

fn main() -> Result<(), SessionError> {
    let path = std::env::args().nth(1).unwrap_or("steps.trace".to_string());
    let (sizes, half, options) = (nets::NetOptions::default(), Fast::Share(0.5), Options::default());

    // A trace says what is computed on, not how: it is planned, and the plan is played in simulation.
    let session = Session::open(&path, &sizes, "optane-autotm")?;
    let plan = session.plan("autotm-async", half, options)?;
    println!("{}: {} moves planned, of {} at the peak", session.net(), plan.moves.len(), session.peak());
    let played = session.predict(&Choice::from(plan), half, options, 3)?;
    println!("{} an iteration, {} of fast memory", played.time(), played.peak_fast());

    // A network says how: it runs for real on this machine, here with memory slowed down behind what is fast.
    let session = Session::open("mlp", &sizes, "dram-throttled")?;
    let done = session.run(&Choice::named("tiercel")?, half, options, 3)?;
    println!("{}: loss {:.4} after {} iterations", done.net, done.lessons[2].loss, done.iterations);
    Ok(())
}
