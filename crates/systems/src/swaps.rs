//! Systems that swap activations between the forward and the backward pass.

use tiercel_policies::{Capuchin, Vdnn};

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// vDNN.
pub(crate) const VDNN: System = System {
    name: "vdnn",
    about: "inputs of convolutions leave after their forward use and are fetched a layer ahead",
    paper: "vDNN, MICRO 2016",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared { warmup: 2, ..Prepared::policy(Vdnn::new()) }),
};

/// Capuchin.
pub(crate) const CAPUCHIN: System = System {
    name: "capuchin",
    about: "measures an iteration, then swaps what is idle longest, fetched as early as was late before",
    paper: "Capuchin, ASPLOS 2020",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared { warmup: 3, ..Prepared::policy(Capuchin::new()) }),
};
