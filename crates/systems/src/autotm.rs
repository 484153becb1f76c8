//! AutoTM (sections 3 and 7): an optimal plan is made ahead of time and played.

use crate::copiers::Copies;
use crate::planning::{Planner, follow};
use crate::{Allowance, System};

/// The static formulation.
pub(crate) const STATIC: System = System {
    name: "autotm-static",
    about: "planned ahead: every tensor stays on one tier",
    paper: "AutoTM, ASPLOS 2020",
    allowance: Allowance::Given,
    copies: Copies::Awaited,
    hears_ahead: false,
    plans: true,
    prepare: |setting| follow(Planner::Static, setting),
};

/// The synchronous formulation.
pub(crate) const SYNC: System = System {
    name: "autotm-sync",
    about: "planned ahead: tensors move between kernels, and kernels wait",
    prepare: |setting| follow(Planner::Synchronous, setting),
    ..STATIC
};

/// The asynchronous formulation.
pub(crate) const ASYNC: System = System {
    name: "autotm-async",
    about: "planned ahead: tensors move while kernels run",
    copies: Copies::Beside,
    prepare: |setting| follow(Planner::Asynchronous, setting),
    ..STATIC
};
