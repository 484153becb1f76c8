//! A uniform plasma on one core, by phase, beside what memory and arithmetic allow: `tiercel pic bench` for more cases.

use tiercel_pic::bench::Case;
use tiercel_pic::{Passes, PicError, Real};

fn measure<R: Real>(case: Case) -> Result<(), PicError> {
    let speed = case.measure::<R>()?;
    println!(
        "{} order {}, u_th {:<5} {:?}: {:6.1} M updates/s (best step); ns a particle: push {:.2}, deposit {:.2}, fields {:.2}, exchange {:.2}; floors {:.2} (bytes) and {:.2} (operations)",
        R::NAME,
        case.order,
        case.thermal,
        case.passes,
        speed.best / 1e6,
        speed.push,
        speed.deposit,
        speed.fields,
        speed.exchange,
        speed.bytes_floor,
        speed.operations_floor,
    );
    Ok(())
}

fn main() -> Result<(), PicError> {
    for thermal in [0.01, 0.1] {
        for passes in [Passes::One, Passes::Two] {
            measure::<f32>(Case { thermal, passes, ..Case::default() })?;
            measure::<f64>(Case { thermal, passes, order: 2, ..Case::default() })?;
        }
    }
    measure::<f32>(Case { order: 2, ..Case::default() })?;
    measure::<f32>(Case { order: 3, ..Case::default() })?;
    measure::<f64>(Case::default())?;
    measure::<f64>(Case { order: 3, ..Case::default() })
}
