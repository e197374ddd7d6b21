//! `tollgate serve`. Every test starts the program on free ports, asks it as gateways do, and stops it.

mod added;
mod admin;
mod browser;
mod client;
mod connections;
mod drain;
mod endpoints;
mod envoy;
mod flood;
mod log;
mod many;
mod outage;
mod page;
mod redis;
mod reload;
mod server;
mod shared;
mod sockets;
mod start;
mod state;
mod telemetry;
mod tls;
mod xds;

use tollgate_testing::service::frames;
