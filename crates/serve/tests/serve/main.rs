//! `tollgate serve`. Every test starts the program on free ports, asks it as gateways do, and stops it.

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
mod packaging;
mod page;
mod redis;
mod reload;
mod resp;
mod server;
mod shared;
mod soak;
mod sockets;
mod start;
mod state;
mod telemetry;
mod tls;
mod xds;

use tollgate_testing::service::frames;
