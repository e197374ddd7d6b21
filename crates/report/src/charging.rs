//! How denied requests are charged, as an argument.

use clap::ValueEnum;
use tollgate_config::Charging;

/// How denied requests are charged.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChargingArg {
    /// Charge all limits of a request, or none.
    AllOrNothing,
    /// Every limit counts every request, including denied ones, as Envoy's service does.
    CountFirst,
    /// Charge a denied request to the limits that deny it, and to no other.
    CountDenials,
}

impl From<ChargingArg> for Charging {
    fn from(arg: ChargingArg) -> Self {
        match arg {
            ChargingArg::AllOrNothing => Self::AllOrNothing,
            ChargingArg::CountFirst => Self::CountFirst,
            ChargingArg::CountDenials => Self::CountDenials,
        }
    }
}
