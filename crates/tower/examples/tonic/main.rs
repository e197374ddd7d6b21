//! A tonic server with a limit for each client: `cargo run -p tollgate-tower-examples --example tonic`.
//!
//! The program serves on a free port of this machine and calls itself five times. Three calls are answered. Two are
//! denied with the gRPC status `RESOURCE_EXHAUSTED`, with `retry-after` as metadata. Then it ends.

mod echo;

use echo::{EchoClient, EchoServer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::{Quota, RateLimiter};
use tollgate_tower::{ClientIp, RateLimitLayer};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server};

const PER_CLIENT: Quota = Quota::per_hour(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // tonic puts the peer's address where this function finds it.
    let by_client = ClientIp::peer()
        .peer_from(|extensions| Some(extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    let layer = RateLimitLayer::new(RateLimiter::new(PER_CLIENT), by_client).policy("per-client", PER_CLIENT);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().layer(layer).add_service(EchoServer).serve_with_incoming_shutdown(
        TcpIncoming::from(listener),
        async {
            stopped.await.ok();
        },
    );
    let server = tokio::spawn(server);

    let mut client = EchoClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);
    for call in 1..=5 {
        let answer = client.say("hello").await;
        assert_eq!(answer.is_ok(), call <= 3);
        match answer {
            Ok(text) => println!("call {call}: {text}"),
            Err(status) => {
                let retry_after = status.metadata().get("retry-after");
                println!(
                    "call {call}: {:?}, {}; retry-after {retry_after:?}",
                    status.code(),
                    status.message()
                );
            }
        }
    }

    drop(client);
    let _ = stop.send(());
    server.await??;
    Ok(())
}
