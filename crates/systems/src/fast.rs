//! How much fast memory: a share of what a trace keeps at its peak, or an amount.

use std::fmt;
use std::str::FromStr;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::{Lifetimes, Trace};

/// How much fast memory there is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fast {
    /// A share of the most bytes that are alive at once.
    Share(f64),
    /// So many bytes.
    Amount(Bytes),
    /// All that the machine has.
    All,
}

/// Why a text is no amount of fast memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FastError {
    /// It is neither a share nor a size, or one that makes no sense.
    #[error(
        "`{0}` is neither a share of the peak above 0% and up to 1000%, such as 20%, nor a size such as 8GiB, nor `all`"
    )]
    Form(String),
    /// A bare number: a share and a size are both likely, and far apart.
    #[error("`{0}` has no unit; {0}% is a share of the peak, {0}GiB a size, and {0}B are so many bytes")]
    Unit(String),
    /// More than there is.
    #[error("{wanted} of fast memory are more than the {there} of {tier} that `{machine}` has")]
    More {
        /// What was asked for.
        wanted: Bytes,
        /// What there is.
        there: Bytes,
        /// The tier.
        tier: String,
        /// The machine.
        machine: String,
    },
}

impl Fast {
    /// The bytes, of which a trace with this peak wants as many in whole grains of a heap; as many as there are of something
    /// where all are wanted.
    pub fn bytes(self, peak: Bytes, grain: Bytes) -> Bytes {
        let bytes = match self {
            Fast::Share(share) => Bytes((peak.0 as f64 * share).ceil() as u64),
            Fast::Amount(bytes) => bytes,
            Fast::All => return Bytes(u64::MAX),
        };
        bytes.max(grain).round_up(grain).unwrap_or(bytes)
    }

    /// The same on a machine: a share is never more than the fastest tier has, and an amount that is more is an error.
    pub fn on(self, machine: &Machine, peak: Bytes) -> Result<Bytes, FastError> {
        let (tier, wanted) = (&machine.tiers[0], self.bytes(peak, machine.grain()));
        match self {
            Fast::Amount(asked) if asked > tier.capacity => Err(FastError::More {
                wanted: asked,
                there: tier.capacity,
                tier: tier.name.clone(),
                machine: machine.name.clone(),
            }),
            _ => Ok(wanted.min(tier.capacity)),
        }
    }

    /// The machine with so much fast memory for a trace, and never more than it has.
    pub fn machine(self, trace: &Trace, machine: &Machine) -> Machine {
        let wanted = self.bytes(Lifetimes::new(trace).peak().1, machine.grain());
        machine.clone().with_capacity(TierId(0), wanted.min(machine.tiers[0].capacity))
    }
}

impl FromStr for Fast {
    type Err = FastError;

    fn from_str(text: &str) -> Result<Fast, FastError> {
        let bad = || FastError::Form(text.to_string());
        let text = text.trim();
        if text.parse::<f64>().is_ok_and(|number| number > 0.0 && number.is_finite()) {
            return Err(FastError::Unit(text.to_string()));
        }
        if text == "all" {
            return Ok(Fast::All);
        }
        match text.strip_suffix('%') {
            Some(share) => {
                let share: f64 = share.trim().parse().map_err(|_| bad())?;
                if share > 0.0 && share <= 1000.0 { Ok(Fast::Share(share / 100.0)) } else { Err(bad()) }
            }
            None => match text.parse() {
                Ok(Bytes(0)) | Err(_) => Err(bad()),
                Ok(bytes) => Ok(Fast::Amount(bytes)),
            },
        }
    }
}

impl fmt::Display for Fast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fast::Share(share) => f.pad(&format!("{}%", (share * 1e6).round() / 1e4)),
            Fast::Amount(bytes) => bytes.fmt(f),
            Fast::All => f.pad("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_amounts_read_and_print() {
        for (text, fast, printed) in [
            ("20%", Fast::Share(0.2), "20%"),
            (" 12.5 %", Fast::Share(0.125), "12.5%"),
            ("8GiB", Fast::Amount(Bytes::gib(8)), "8 GiB"),
            ("64B", Fast::Amount(Bytes(64)), "64 B"),
            ("all", Fast::All, "all"),
        ] {
            assert_eq!(text.parse(), Ok(fast));
            assert_eq!(fast.to_string(), printed);
        }
        for text in ["", "%", "0%", "-5%", "nan%", "2000%", "0", "a lot", "20 percent"] {
            assert_eq!(text.parse::<Fast>(), Err(FastError::Form(text.to_string())));
        }
        for text in ["20", "0.2", "64"] {
            assert_eq!(text.parse::<Fast>(), Err(FastError::Unit(text.to_string())));
        }
    }

    #[test]
    fn no_more_than_there_is() {
        let machine = tiercel_profile::machines::named("redl").expect("it ships");
        let there = machine.tiers[0].capacity;
        let on = |fast: Fast| fast.on(&machine, Bytes(there.0 * 2));
        assert_eq!(on(Fast::All), Ok(there));
        assert_eq!(on(Fast::Share(0.5)), Ok(there));
        assert_eq!(on(Fast::Share(0.9)), Ok(there));
        assert_eq!(on(Fast::Amount(Bytes::gib(1))), Ok(Bytes::gib(1)));
        let error = on(Fast::Amount(Bytes::gib(100))).expect_err("too much").to_string();
        assert_eq!(error, "100 GiB of fast memory are more than the 59.6 GiB of fast that `redl` has");
    }

    #[test]
    fn bytes_are_whole_grains_and_never_none() {
        let bytes = |fast: Fast| fast.bytes(Bytes(1000), Bytes(64)).0;
        assert_eq!(bytes(Fast::Share(0.2)), 256);
        assert_eq!(bytes(Fast::Share(1e-9)), 64);
        assert_eq!(bytes(Fast::Amount(Bytes(65))), 128);
    }
}
