//! The enumerations of the messages, with the names of their values.

use prost::Enumeration;

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

impl Code {
    /// Returns the name in the protocol.
    pub const fn as_str_name(self) -> &'static str {
        ["UNKNOWN", "OK", "OVER_LIMIT"][self as usize]
    }
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`: the units of an answer. `envoy.type.v3.RateLimitUnit`,
/// the unit of a descriptor's own limit, has the same values except the week.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    /// Returns the name in the protocol.
    pub const fn as_str_name(self) -> &'static str {
        ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"][self as usize]
    }

    /// Returns the value with this name that the unit of a descriptor's own limit can have.
    pub fn of_descriptor(name: &str) -> Option<Self> {
        (0..Self::Week as i32).flat_map(Self::try_from).find(|unit| unit.as_str_name() == name)
    }
}
