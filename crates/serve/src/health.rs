//! Health: one state, which gRPC and HTTP report.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as Service, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

/// The name of the health service itself.
pub const SERVICE: &str = "grpc.health.v1.Health";

/// The names that gateways, the protocol and Kubernetes ask for. All have the same state.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// Reports whether the server wants requests.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
    state: Arc<watch::Sender<Readiness>>,
    /// Held during a report, because an earlier state must not be reported after a later one.
    reports: Arc<Mutex<()>>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Readiness {
    /// It wants no requests yet.
    Waiting,
    /// It wants requests.
    Serving,
    /// It wants no requests any more.
    Draining,
}

impl Health {
    /// Creates the state: the server wants no requests yet.
    pub async fn new() -> Self {
        let health = Self {
            reporter: HealthReporter::new(),
            state: Arc::new(watch::Sender::new(Readiness::Waiting)),
            reports: Arc::default(),
        };
        health.report().await;
        health
    }

    /// Returns the gRPC service.
    pub fn service(&self) -> HealthServer<impl Service> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    /// Sets whether the server wants requests. Has no effect after the start of the drain.
    pub async fn set(&self, serving: bool) {
        let next = if serving { Readiness::Serving } else { Readiness::Waiting };
        self.state.send_if_modified(|state| {
            *state != Readiness::Draining && std::mem::replace(state, next) != next
        });
        self.report().await;
    }

    /// Reports that the server wants no requests any more.
    pub async fn drain(&self) {
        self.state.send_replace(Readiness::Draining);
        self.report().await;
    }

    /// Whether the server wants requests.
    pub fn is_serving(&self) -> bool {
        *self.state.borrow() == Readiness::Serving
    }

    /// Reports the state by gRPC.
    async fn report(&self) {
        let _held = self.reports.lock().await;
        for name in NAMES {
            let status = if self.is_serving() { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Ends the calls of clients that watch the state, because otherwise their connections would never end.
    pub async fn end_watches(&mut self) {
        for name in NAMES {
            self.reporter.clear_service_status(name).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Request;
    use tonic_health::pb::HealthCheckRequest;

    use super::*;

    // G108
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_during_the_drain_keeps_it() {
        for _ in 0..2_000 {
            let health = Health::new().await;
            let (loading, draining) = (health.clone(), health.clone());
            let load = tokio::spawn(async move { loading.set(true).await });
            let drain = tokio::spawn(async move { draining.drain().await });
            load.await.unwrap();
            drain.await.unwrap();
            let service = HealthService::from_health_reporter(health.reporter.clone());
            for name in NAMES {
                let asked = service.check(Request::new(HealthCheckRequest { service: name.to_owned() }));
                let status = asked.await.unwrap().into_inner().status;
                assert_eq!(status, tonic_health::pb::health_check_response::ServingStatus::NotServing as i32);
            }
        }
    }
}
