//! What does a map of addresses cost that a server's authors wrote for themselves, beside the stores of Tollgate?
//!
//! The maps behave as those of servers that are in use, and are written here from a description of that behaviour: see
//! [`validator`], [`dns`] and [`governors`]. Each map and each store is built for as many addresses as the scenario has,
//! which is also the cap of those that have one. A check is the whole work of the server for one request: its clock, its
//! lookup, and its share of the sweeps.
//!
//! The tables of caps have the time of an address that a full map has never seen. [`forget`] measures what the map then does
//! with the others.

use std::net::{IpAddr, Ipv4Addr};

use tollgate::{Capacity, Compact, Keyed, RateLimiter, WhenFull};

use crate::compact::COMPACT;
use crate::harness::{Draw, Scenario, Table};
use crate::keys::Key;
use crate::ours::gcra;
use crate::plan::{Plan, chosen, scenario};
use crate::subject::{Expect, Recipe, Setup, Subject};
use crate::support::length;

mod dns;
pub(crate) mod forget;
mod governors;
pub(crate) mod validator;

/// The address of a client. Each is in another /24, because the map of the DNS server has one bucket for a /24.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Source(IpAddr);

impl Key for Source {
    const KIND: &'static str = "IPv4 addresses";

    fn numbered(number: u64) -> Self {
        // Multiplication by an odd number permutes the 2^24 networks. The scenarios have fewer addresses.
        let network = (number.wrapping_mul(0x009E_3779) & 0x00FF_FFFF) << 8;
        let bits = u32::try_from(network | 7).expect("24 bits and the host's eight");
        Self(IpAddr::V4(Ipv4Addr::from_bits(bits)))
    }
}

struct OursCompact(RateLimiter<Compact>);

impl Subject<Source> for OursCompact {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        self.0.check(&source.0).is_allowed()
    }
}

struct OursKeyed(RateLimiter<Keyed<IpAddr>>);

impl OursKeyed {
    fn new(setup: Setup, when_full: WhenFull) -> Self {
        let builder = RateLimiter::builder(gcra(setup.expect));
        Self(builder.max_keys(length(setup.population), when_full).keyed())
    }
}

impl Subject<Source> for OursKeyed {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        self.0.check(&source.0).is_allowed()
    }
}

pub(crate) const FORGET: &str = "tollgate keyed, Forget";

/// The rows of all tables.
pub(crate) fn recipes() -> Vec<Recipe<Source>> {
    let ours = vec![
        Recipe {
            name: COMPACT,
            counts: "check, GCRA, ahash, default clock; 1.5 slots an address",
            build: |setup| {
                let capacity = Capacity::slots(length(setup.population) * 3 / 2);
                let builder = RateLimiter::builder(gcra(setup.expect)).capacity(capacity);
                Box::new(OursCompact(builder.compact().expect("the quota fits in a slot's word")))
            },
        },
        Recipe {
            name: FORGET,
            counts: "check, max_keys with WhenFull::Forget, GCRA, ahash, default clock",
            build: |setup| Box::new(OursKeyed::new(setup, WhenFull::Forget)),
        },
        Recipe {
            name: "tollgate keyed, Deny",
            counts: "the same with WhenFull::Deny",
            build: |setup| Box::new(OursKeyed::new(setup, WhenFull::Deny)),
        },
    ];
    chosen([ours, vec![validator::recipe(), dns::recipe()], governors::recipes()])
}

impl Plan {
    /// Runs the scenarios of known addresses, which all maps admit.
    pub(crate) fn theirs(self, tables: &mut Vec<Table>) {
        let rows = recipes();
        for (id, title, population) in [
            ("theirs-2k", "Addresses: 2,048 known, allowed", 2_048),
            ("theirs-100k", "Addresses: 100,000 known, allowed", 100_000),
            ("theirs-1m", "Addresses: 1 M known, allowed", 1_000_000),
        ] {
            let mut known = scenario(id, title, population, Expect::Allowed);
            (known.floor, known.governor) = (validator::NAME, governors::CAPPED);
            self.scenario(tables, known, &rows);
        }
        self.caps(tables);
    }

    /// Runs floods of new addresses against full maps, at small and large caps.
    fn caps(self, tables: &mut Vec<Table>) {
        let mut rows = recipes();
        rows.retain(|recipe| [FORGET, validator::NAME].contains(&recipe.name));
        for (id, title, cap) in [
            ("theirs-cap-64", "A new address at a cap of 64", 64),
            ("theirs-cap-256", "A new address at a cap of 256", 256),
            ("theirs-cap-1k", "A new address at a cap of 1,024", 1_024),
            ("theirs-cap-16k", "A new address at a cap of 16,384", 16_384),
            ("theirs-cap-100k", "A new address at a cap of 100,000", 100_000),
        ] {
            let full = Scenario {
                draw: Draw::NewAfter(4 * cap),
                checks: 100_000,
                rounds: 9,
                floor: validator::NAME,
                governor: validator::NAME,
                ..scenario(id, title, cap, Expect::Allowed)
            };
            self.scenario(tables, full, &rows);
        }
    }
}
