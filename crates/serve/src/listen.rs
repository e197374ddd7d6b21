//! Listeners: TCP ports and Unix sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fs, process};

use bytes::Bytes;
use rustix::net::{SendFlags, send, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::peer::Peer;
use tollgate_report::error::{Error, plain};

/// How long a peer may be silent before the system asks whether it is still there, how often it asks again, and how many times.
pub type Probes = (Duration, Duration, u32);

const PROBES: Probes = (Duration::from_secs(60), Duration::from_secs(20), 3);

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A place where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(Socket),
}

/// A Unix socket.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, which is removed on drop.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// The device and the number of the file: another process may have replaced it.
    identity: (u64, u64),
}

impl Listener {
    /// Listens on a TCP port.
    ///
    /// # Errors
    /// Returns an error that names the endpoint and the remedy.
    pub async fn tcp(endpoint: &str, addr: SocketAddr) -> Result<Self, Error> {
        TcpListener::bind(addr).await.map(Self::Tcp).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!(
                        "another process listens there; stop it, or choose another address with --{endpoint}"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    format!("ports below 1024 need a privilege; choose another one with --{endpoint}")
                }
                _ => format!("choose another address with --{endpoint}"),
            };
            Error::run(format!("cannot listen on {addr} for {endpoint}: {}: {remedy}", plain(&error)))
        })
    }

    /// Listens on a Unix socket. Removes a socket that no process listens on.
    ///
    /// # Errors
    /// If a process listens there, if the path is another kind of file, or if the folder cannot be written.
    pub async fn unix(path: &Path, mode: u32, flag: &str) -> Result<Self, Error> {
        let cannot =
            |why: String| Error::run(format!("cannot listen on the socket {}: {why}", path.display()));
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(cannot(format!("the path is a file of another kind; choose another --{flag}")));
            }
            Ok(_) => match UnixStream::connect(path).await {
                Ok(_) => {
                    return Err(cannot(format!(
                        "another process listens there; stop it, or choose another --{flag}"
                    )));
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(|error| cannot(plain(&error)))?;
                }
                Err(error) => return Err(cannot(plain(&error))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot(plain(&error))),
        }
        // No client can connect before the socket has its mode: it appears under its name afterwards.
        let first = path.with_extension(format!("{}.new", process::id()));
        let _ = fs::remove_file(&first);
        let made = UnixListener::bind(&first).and_then(|listener| {
            fs::set_permissions(&first, fs::Permissions::from_mode(mode))?;
            let file = fs::symlink_metadata(&first)?;
            fs::rename(&first, path)?;
            let file = SocketFile { path: path.to_owned(), identity: (file.dev(), file.ino()) };
            Ok(Socket { listener, file })
        });
        made.map(Self::Unix).map_err(|error| {
            let _ = fs::remove_file(&first);
            let remedy = if error.kind() == io::ErrorKind::NotFound { "; make its folder first" } else { "" };
            cannot(plain(&error) + remedy)
        })
    }

    /// Returns what the log says of its endpoint at the start.
    pub fn described(&self, endpoint: &str, has_tls: bool) -> String {
        format!("{endpoint} on {self}{}", if has_tls { " with TLS" } else { "" })
    }

    /// Whether only processes of this machine reach it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener.local_addr().is_ok_and(|addr| addr.ip().is_loopback()),
            Self::Unix(_) => true,
        }
    }

    /// Moves the listener from this runtime to another one.
    ///
    /// # Errors
    /// If that runtime cannot take it.
    pub fn move_to(self, runtime: &Handle) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                let _entered = runtime.enter();
                Self::Tcp(TcpListener::from_std(listener)?)
            }
            Self::Unix(Socket { listener, file }) => {
                let listener = listener.into_std()?;
                let _entered = runtime.enter();
                Self::Unix(Socket { listener: UnixListener::from_std(listener)?, file })
            }
        })
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// If the system cannot accept it.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer)),
            Self::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }

    /// Accepts a connection that the system has accepted already, without waiting: the runtime may not know of it yet. `None` if there
    /// is none.
    pub fn accept_queued(&self) -> Option<io::Result<Accepted>> {
        Some(match self {
            Self::Tcp(listener) => {
                let stream = std::net::TcpStream::from(rustix::net::accept(listener).ok()?);
                stream.set_nonblocking(true).and_then(|()| {
                    let peer = stream.peer_addr()?;
                    TcpStream::from_std(stream).map(|stream| Accepted::Tcp(stream, peer))
                })
            }
            Self::Unix(socket) => {
                let stream =
                    std::os::unix::net::UnixStream::from(rustix::net::accept(&socket.listener).ok()?);
                stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)).map(Accepted::Unix)
            }
        })
    }
}

/// A connection that was accepted, and is not served yet.
#[derive(Debug)]
pub enum Accepted {
    /// From this address.
    Tcp(TcpStream, SocketAddr),
    /// From a process of this machine.
    Unix(UnixStream),
}

impl Accepted {
    /// Returns the connection's bytes and the name of its peer.
    pub fn open(self) -> (Io, String) {
        match self {
            Self::Tcp(stream, peer) => {
                // Answers are small, and a gateway waits for each of them.
                let _ = stream.set_nodelay(true);
                let _ = probe_silent_peer(&stream, PROBES);
                (Io::new(stream), peer.to_string())
            }
            Self::Unix(stream) => {
                let user = stream.peer_cred().ok().map(|peer| Peer::User(peer.uid()));
                (Io::new(stream).of_client(user), "a local process".to_owned())
            }
        }
    }

    /// Closes the connection of a peer on the network. It can read these bytes, if the system takes them without waiting.
    pub fn close_with(self, bytes: &[u8]) {
        if let Self::Tcp(stream, _) = self {
            let _ = send(stream, bytes, SendFlags::DONTWAIT);
        }
    }
}

/// Lets the system close the connection when its peer has disappeared, because otherwise it would count as open for ever.
pub fn probe_silent_peer(stream: &TcpStream, (silent, again, times): Probes) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, silent)?;
    sockopt::set_tcp_keepintvl(stream, again)?;
    sockopt::set_tcp_keepcnt(stream, times)
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(addr) => addr.fmt(f),
                Err(_) => f.write_str("an unknown address"),
            },
            Self::Unix(socket) => socket.file.path.display().fmt(f),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection's bytes, whatever it runs over.
pub struct Io {
    /// `None` only after the drop.
    stream: Option<Box<dyn Stream>>,
    /// Gets the stream when the HTTP connection drops it.
    back: Option<oneshot::Sender<Box<dyn Stream>>>,
    /// Who the client is, as far as the connection tells.
    client: Option<Box<Peer>>,
    /// Bytes that were read already, and are read again.
    first: Bytes,
    /// How long the peer may take no bytes.
    patience: Option<Duration>,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Io {
    /// Creates the bytes of a stream.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let stream: Box<dyn Stream> = Box::new(stream);
        let first = Bytes::new();
        Self { stream: Some(stream), back: None, client: None, first, patience: None, waiting: None }
    }

    /// Sets who the client is.
    pub fn of_client(mut self, client: Option<Peer>) -> Self {
        self.client = client.map(Box::new);
        self
    }

    /// Takes who the client is.
    pub fn take_client(&mut self) -> Option<Peer> {
        self.client.take().map(|client| *client)
    }

    /// Sends the stream back when it is dropped.
    pub fn and_back(mut self) -> (Self, oneshot::Receiver<Box<dyn Stream>>) {
        let (back, returned) = oneshot::channel();
        self.back = Some(back);
        (self, returned)
    }

    fn stream(&mut self) -> Pin<&mut dyn Stream> {
        match &mut self.stream {
            Some(stream) => Pin::new(&mut **stream),
            None => unreachable!("the stream is taken only by the drop"),
        }
    }

    /// Cuts off a peer that takes no bytes for this time, so that it does not keep a connection that others need.
    pub const fn cut_off_after(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Returns the result of a write, or an error if the write waits for too long.
    fn or_late<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Some(patience) = self.patience.filter(|_| result.is_pending()) else {
            self.waiting = None;
            return result;
        };
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }

    /// Lets these bytes, which were the first, be read again.
    pub fn again(mut self, first: Vec<u8>) -> Self {
        self.first = first.into();
        self
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if let (Some(back), Some(stream)) = (self.back.take(), self.stream.take()) {
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return self.stream().poll_read(cx, into);
        }
        let taken = self.first.len().min(into.remaining());
        into.put_slice(&self.first.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(cx, bytes);
        self.or_late(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write_vectored(cx, slices);
        self.or_late(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_write_vectored())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// The timer of the connection that was accepted on a port, as the system lists it: its kind, and the hundredths of a second that are
    /// left. Kind 2 is a probe of a silent peer.
    #[cfg(target_os = "linux")]
    fn timer(port: u16) -> (u64, u64) {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let ours = format!(":{port:04X}");
        let mut lines = table.lines().map(|line| Vec::from_iter(line.split_whitespace()));
        // 01 is an established connection.
        let line = lines.find(|line| line[1].ends_with(&ours) && line[3] == "01").expect("no connection");
        let (kind, left) = line[5].split_once(':').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(kind), number(left))
    }

    // G141
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn silent_peers_are_probed_after_a_minute() {
        let listener = Listener::tcp("grpc", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address: SocketAddr = listener.to_string().parse().unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let _accepted = listener.accept().await.unwrap().open();
        let (kind, left) = timer(address.port());
        assert!(kind == 2 && left <= 6_100, "timer {kind}, {left}");
    }

    // G147
    #[tokio::test(start_paused = true)]
    async fn peer_that_takes_no_bytes_is_cut_off() {
        let (ours, mut theirs) = duplex(16);
        let mut patient = Io::new(ours);
        patient.cut_off_after(Duration::from_secs(10));
        patient.write_all(&[0; 16]).await.unwrap();
        // A peer that is slow is not cut off.
        for _ in 0..3 {
            let read = async {
                sleep(Duration::from_secs(9)).await;
                theirs.read_exact(&mut [0; 4]).await.unwrap();
            };
            let (written, ()) = tokio::join!(patient.write_all(&[0; 4]), read);
            written.unwrap();
        }
        let error = patient.write_all(&[0; 4]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
