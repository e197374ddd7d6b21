//! Clients that break rules. An attack ends by itself, or after a few seconds.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;
use tollgate_testing::service::client::{Grpc, LIMIT, new_values};
use tollgate_testing::service::frames::{BEGIN, RST_STREAM, call, frame, head};

use super::resp::Resp;
use super::{Life, MS};

/// The beginnings of requests of each protocol, whole and broken.
const PIECES: [&[u8]; 12] = [
    BEGIN,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\xff\xff\x04\0\0\0\0\0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /stats HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
    b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"domain\":\"rl\",\"des",
    b"POST /v1/reset HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"POST /json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffff\r\n",
    b"*3\r\n$4\r\nAUTH\r\n$3\r\nbad\r\n$5\r\nwrong\r\n",
    b"*1\r\n$99999999\r\nx",
    b"*1048576\r\n$1\r\na\r\n",
    b"CL.THROTTLE a b c d\r\nMULTI\r\nEXEC\r\nHELLO 9\r\nGET x\r\n",
];

/// Makes one attack. An error is one of the connection, which the service may end.
pub(super) async fn attack(life: &Life<'_>) -> io::Result<()> {
    let what = life.below(10);
    let mut stream = life.any_port().await?;
    match what {
        // A piece of some protocol, and a random one.
        0 | 1 => {
            let mut bytes = PIECES[life.index(PIECES.len())].to_vec();
            bytes.extend((0..life.below(200)).map(|_| life.byte()));
            stream.write_all(&bytes).await?;
            stream.shutdown().await?;
            read_all(&mut stream).await
        }
        // Frames of HTTP/2 with random heads.
        2 => {
            stream.write_all(BEGIN).await?;
            for _ in 0..life.below(50) {
                let payload: Vec<u8> = (0..life.below(40)).map(|_| life.byte()).collect();
                let on = u32::try_from(life.below(9)).unwrap();
                stream.write_all(&frame(life.byte() % 12, life.byte(), on, &payload)).await?;
            }
            stream.shutdown().await?;
            read_all(&mut stream).await
        }
        3 => {
            let mut stream = life.port("grpc").await?;
            let resets =
                (1..200).step_by(2).flat_map(|on| [head(on), frame(RST_STREAM, 0, on, &[0, 0, 0, 8])]);
            stream.write_all(&[BEGIN.to_vec(), resets.flatten().collect()].concat()).await
        }
        // It is slow, and then silent.
        4 => {
            for byte in PIECES[life.index(PIECES.len())].iter().take(20) {
                stream.write_all(&[*byte]).await?;
                sleep(50 * MS).await;
            }
            std::future::pending().await
        }
        // It asks and reads nothing.
        5 | 6 => {
            let echo = [&b"*2\r\n$4\r\nECHO\r\n$9000\r\n"[..], &[b'e'; 9_000], b"\r\n"].concat();
            let calls: Vec<u8> = (1..400).step_by(2).flat_map(|on| call(on, b"\x0a\x02rl")).collect();
            let (port, first, again) = match life.below(3) {
                0 => ("grpc", BEGIN, calls),
                1 => ("resp", &b"AUTH bad bad-secret\r\n"[..], echo),
                _ => ("http", &b""[..], PIECES[3].to_vec()),
            };
            let mut stream = life.port(port).await?;
            stream.write_all(first).await?;
            loop {
                stream.write_all(&again).await?;
            }
        }
        7 => {
            let mut grpc = Grpc::try_over(life.port("grpc").await?).await.map_err(io::Error::other)?;
            for _ in 0..100 {
                let request = new_values(life.next());
                grpc.try_call(LIMIT, &request).await.map_err(io::Error::other)?;
            }
            Ok(())
        }
        // New keys and new limits of Redis clients.
        8 => {
            let mut resp = Resp::login(life, "bad").await?;
            for _ in 0..20 {
                let lines = (0..50).map(|_| match life.below(3) {
                    0 => format!("CL.THROTTLE {} {} 1 3600\r\n", life.next(), life.below(100_000)),
                    1 => format!("TOLLGATE.CHECK rl keyed {}\r\n", life.next()),
                    _ => format!("GCRA key{} 4 5 60\r\n", life.next()),
                });
                resp.ask(&lines.collect::<String>(), 50).await?;
            }
            Ok(())
        }
        // Transactions and holds without an end.
        _ => {
            let mut resp = Resp::login(life, "bad").await?;
            let hold = "TOLLGATE.HOLD rl HITS 3 TTL 2 lost x\r\n";
            resp.ask(&hold.repeat(20), 20).await?;
            resp.ask(&format!("MULTI\r\n{}", hold.repeat(2_000)), 2_001).await?;
            std::future::pending().await
        }
    }
}

async fn read_all(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<()> {
    let mut read = [0; 4_096];
    while stream.read(&mut read).await? > 0 {}
    Ok(())
}
