//! ReDL: idle migration for what lives briefly, and periods whose length a search settles for the rest.

use tiercel_policies::Redl;

use crate::copiers::Copies;
use crate::{Allowance, Prepared, System};

/// ReDL.
pub(crate) const REDL: System = System {
    name: "redl",
    about: "short-lived objects move when idle, the others by periods; late moves leave kernels on slow memory",
    paper: "ReDL",
    allowance: Allowance::Given,
    copies: Copies::Mixed,
    hears_ahead: false,
    plans: false,
    prepare: |_| Ok(Prepared::policy(Redl::new())),
};
