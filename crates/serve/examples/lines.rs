//! The service with an endpoint of your own: lines of text over TCP, such as `path /login`, are answered by the rules of the domain `lines`.
//!
//! ```sh
//! cargo run -p tollgate-serve --example lines -- serve limits.yaml --lines 7070
//! echo 'path /login' | nc localhost 7070      # yes, or no with the seconds to wait
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_report::error::Error;
use tollgate_report::{line, output};
use tollgate_serve::Program;
use tollgate_serve::answer::{AddedMethod, Answerer, Entry, SingleAnswer, SingleRequest};
use tollgate_serve::endpoint::{
    Address, Backend, Count, Endpoint, EndpointFlags, HANDSHAKE, Io, Listening, Place, Protocol, ServeArgs,
    ServerPhase, ShortHelp, Stats, Tls, is_closing, linger, patience,
};

/// The longest line, in bytes, so that a client cannot fill the memory.
const LONGEST: u64 = 1_024;

#[derive(Args, Debug)]
#[command(next_help_heading = "Lines")]
struct Lines {
    /// Address for lines of text, such as 7070, or off
    #[arg(long, default_value = "off", value_name = "ADDRESS")]
    lines: Address,
}

impl EndpointFlags for Lines {
    fn endpoints(
        &self,
        args: &ServeArgs,
        tls: Option<&Arc<Tls>>,
        stats: &Arc<Stats>,
    ) -> Result<Vec<Endpoint>, Error> {
        let Some(addr) = self.lines.addr() else { return Ok(Vec::new()) };
        let (count, deadline) =
            (stats.counter("lines_total", "Lines that were answered"), args.bounds.deadline);
        let start = move |listening: Listening, backend: &Backend| {
            let answerer = Arc::clone(&backend.answerer);
            let method = answerer.method("lines");
            tokio::spawn(listening.serve_streams(move |stream, _, phase| {
                let (answerer, method) = (Arc::clone(&answerer), Arc::clone(&method));
                serve(stream, phase, (answerer, method), Arc::clone(&count), deadline)
            }));
            // No files that are read again.
            Ok(None)
        };
        let full = b"no: all connections are in use\n";
        let endpoint = Endpoint::new("lines", Place::Port(addr), Protocol::Stream { full }, start);
        Ok(vec![Endpoint { tls: tls.cloned(), decides: true, ..endpoint }])
    }

    fn deciding(&self) -> &'static [&'static str] {
        &["--lines"]
    }

    fn short_help() -> ShortHelp {
        ShortHelp { endpoints: "  --lines ADDRESS    Lines of text [default: off]\n", ..ShortHelp::default() }
    }
}

/// Serves a client until its stream ends, it is silent, or the server closes.
async fn serve(
    stream: Io,
    phase: watch::Receiver<ServerPhase>,
    (answerer, method): (Arc<Answerer>, Arc<AddedMethod>),
    count: Arc<Count>,
    deadline: Duration,
) {
    let (mut stream, mut watched) = (BufReader::new(stream), phase.clone());
    loop {
        let line = tokio::select! {
            biased;
            line = next_line(&mut stream) => line,
            _ = watched.wait_for(is_closing) => None,
        };
        let Some(line) = line else { break };
        count.add();
        let told = answer(&answerer, &method, line.trim_end(), deadline).await;
        if stream.write_all(told.as_bytes()).await.is_err() {
            return;
        }
    }
    // The client must be able to read the last answers.
    let _ = timeout(patience(&phase), linger(stream.into_inner())).await;
}

/// Reads a line. `None` at the end, or if the client is silent or its line is too long.
async fn next_line(stream: &mut BufReader<Io>) -> Option<String> {
    let mut line = String::new();
    let read = timeout(HANDSHAKE, stream.take(LONGEST).read_line(&mut line)).await;
    (matches!(read, Ok(Ok(1..))) && line.ends_with('\n')).then_some(line)
}

/// Charges a unit to the key and the value of a line.
async fn answer(answerer: &Answerer, method: &AddedMethod, line: &str, deadline: Duration) -> String {
    let (key, value) = line.split_once(' ').unwrap_or((line, ""));
    let entries = [[key.as_bytes(), value.as_bytes()]].into_iter();
    let request = SingleRequest {
        domain: b"lines",
        entries,
        hits: None,
        entry: Entry::Added(method),
        patience: deadline,
    };
    let mut told = "yes\n".to_owned();
    let put = |answer: &SingleAnswer<'_>| {
        if answer.is_over {
            let seconds = answer.retry_after.map_or(0, |wait| wait.as_secs() + 1);
            told = format!("no {seconds}\n");
        }
    };
    match answerer.answer_single(request, None, put).await {
        (Ok(()), _) => told,
        (Err(status), _) => format!("error: {}\n", status.message()),
    }
}

fn main() -> ExitCode {
    output::end(tollgate_serve::run(&line::read::<Program<Lines>>().command))
}
