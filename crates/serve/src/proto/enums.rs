//! The enumerations of the messages, with the names of their values.

use prost::Enumeration;

/// `envoy.type.v3.RateLimitUnit`: the units of a descriptor's own limit. It has no week.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum RateLimitUnit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`: the units of an answer.
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

/// Defines the names of an enumeration's values, with the functions that prost generates.
macro_rules! names {
    ($($enumeration:ident = [$($value:ident => $name:literal),+];)+) => {$(
        impl $enumeration {
            /// Returns the name in the protocol.
            pub const fn as_str_name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// Returns the value with this name.
            pub fn from_str_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    )+};
}

names! {
    RateLimitUnit = [
        Unknown => "UNKNOWN", Second => "SECOND", Minute => "MINUTE", Hour => "HOUR", Day => "DAY", Month => "MONTH",
        Year => "YEAR"
    ];
    Code = [Unknown => "UNKNOWN", Ok => "OK", OverLimit => "OVER_LIMIT"];
    Unit = [
        Unknown => "UNKNOWN", Second => "SECOND", Minute => "MINUTE", Hour => "HOUR", Day => "DAY", Month => "MONTH",
        Year => "YEAR", Week => "WEEK"
    ];
}
