//! Values that several flags of the service have.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::Duration;

use crate::duration;

/// Where an endpoint listens. All flags of addresses have this form.
///
/// A port alone is on loopback, because its user asked for no more. `:PORT` is on all interfaces, as in programs written in Go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl Address {
    /// Returns the address.
    pub const fn addr(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(addr) => Some(addr),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        let wrong = || {
            format!(
                "{text:?} is no address; expected one such as 127.0.0.1:8081, [::1]:8081, 8081 (on loopback), :8081 (on all interfaces) or off"
            )
        };
        let at = if let Ok(port) = text.parse() {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
        } else if let Some(port) = text.strip_prefix(':') {
            SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.parse().map_err(|_| wrong())?)
        } else if let Ok(addr) = text.parse() {
            addr
        } else {
            let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|_| wrong())?.collect();
            // IPv4 first: `localhost` has both, and most callers use the older one.
            *found.iter().find(|addr| addr.is_ipv4()).or(found.first()).ok_or_else(wrong)?
        };
        Ok(Self::At(at))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(addr) => addr.fmt(f),
        }
    }
}

/// Parses a flag's variable.
pub fn truth(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a duration above 0.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("expected a time above 0".to_owned()),
        time => Ok(time),
    }
}

/// Parses a size in bytes: `4MiB`, `512KiB` or `65536`.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no size; expected one such as 4MiB, 512KiB or 65536");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    // HTTP/2 and gRPC count in 32 bits.
    match bytes {
        Some(bytes @ 1..=0x7fff_ffff) => usize::try_from(bytes).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

pub fn some_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("expected a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_on_loopback_and_colon_opens_all_interfaces() {
        let parsed = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(parsed("8081"), Ok("127.0.0.1:8081".to_owned()));
        assert_eq!(parsed(":8081"), Ok("0.0.0.0:8081".to_owned()));
        assert_eq!(parsed("[::1]:1"), Ok("[::1]:1".to_owned()));
        assert_eq!(parsed("OFF"), Ok("off".to_owned()));
        assert_eq!(parsed("localhost:8081"), Ok("127.0.0.1:8081".to_owned()));
        for text in ["", "66000", "-1", "localhost", ":", ":x", "1.2.3.4:99999"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
