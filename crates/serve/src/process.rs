//! The process as its supervisor and its operator see it: health checks of containers, systemd, and metrics of the process.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::log::{Level, Seldom};
use tollgate_report::error::{Error, plain};
use tollgate_report::output::print;

/// Reads a file again, such as a certificate, and puts it in force if it changed, or gives back memory that is not used any more. It is
/// called each second and at SIGHUP, by threads that give way.
pub type ReadAgain = Arc<dyn Fn() + Send + Sync>;

/// Reads all files again. One that panics, which may be code of a program, keeps none of the others from it, and is called again.
pub fn read_all(files: &[ReadAgain]) {
    static PANICKED: LazyLock<Seldom> = LazyLock::new(Seldom::default);
    for read_again in files {
        if catch_unwind(AssertUnwindSafe(|| read_again())).is_err() {
            PANICKED.write(Level::Error, "a file could not be read again, because its reader panicked; its last content stays in force");
        }
    }
}

/// Lowers the priority of this thread, and of those that it starts, because a load or a page takes time, and on a machine with one
/// core no answer may wait for it.
pub fn give_way() {
    // On other systems, this would be the priority of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(10);
}

/// Starts a thread that gives way.
///
/// # Errors
/// If the system cannot start it.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    spawn_equal(name, || {
        give_way();
        run();
    })
}

/// Starts a thread with the priority of this one.
///
/// # Errors
/// If the system cannot start it.
pub fn spawn_equal(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| Error::run(format!("cannot start a thread: {error}")))
}

/// How long a service may take to say whether it is healthy.
const PATIENCE: Duration = Duration::from_secs(1);

/// When the process started. The first use sets it.
pub static START: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// Asks a running service whether it wants requests.
///
/// # Errors
/// If it wants none, or does not answer.
pub fn check_health(http: Option<SocketAddr>) -> Result<(), Error> {
    let mut address =
        http.ok_or_else(|| Error::usage("--http is off, so --healthcheck has no address to ask"))?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /healthcheck HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1_024).read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.split(' ').nth(1) == Some("200") => print(b"serving\n"),
        Ok(_) => Err(Error::run(format!("the service at {address} wants no requests"))),
        // The clock of the socket reports its end in one of two ways.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(Error::run(format!(
                "the service at {address} did not answer within {} s: it is stopped, overloaded, or another program listens \
                 there; look at its log, or start it again",
                PATIENCE.as_secs()
            )))
        }
        Err(error) => Err(Error::run(format!(
            "cannot ask {address}: {}; set TOLLGATE_HTTP for the service and for --healthcheck alike",
            plain(&error)
        ))),
    }
}

/// Tells systemd about a change, such as `READY=1`, if it started this process with `Type=notify`.
#[cfg(target_os = "linux")]
pub fn tell_systemd(change: &str) {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // The name of an abstract socket has `@` instead of its first byte, 0.
    let address = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // Without an answer, systemd itself reports that the service did not start.
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(change.as_bytes(), &address);
    }
}

/// Other systems have no systemd.
#[cfg(not(target_os = "linux"))]
pub fn tell_systemd(_change: &str) {}

/// Adds the metrics of the process, under the names that all Prometheus clients use, and the build's.
pub fn metrics(page: &mut String) {
    let mut add = |name: &str, kind: &str, help: &str, labels: &str, value: f64| {
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}");
    };
    let build = format!(
        "{{version=\"{}\",os=\"{}\",arch=\"{}\"}}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    add("tollgate_build_info", "gauge", "The program's version", &build, 1.0);
    let start = START.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    add("process_start_time_seconds", "gauge", "The Unix time of the start", "", start);
    #[cfg(target_os = "linux")]
    for (name, kind, help, value) in of_linux().into_iter().flatten() {
        add(name, kind, help, "", value);
    }
}

/// Reads the metrics that the kernel has.
#[cfg(target_os = "linux")]
#[expect(clippy::cast_precision_loss, reason = "a sample of Prometheus is a double")]
fn of_linux() -> Option<Vec<(&'static str, &'static str, &'static str, f64)>> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in brackets, and may contain spaces. The field after it is the third one.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Some(vec![
        ("process_cpu_seconds_total", "counter", "Processor time", (field(14)? + field(15)?) as f64 / ticks),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Memory in use",
            (field(24)? * rustix::param::page_size() as u64) as f64,
        ),
        ("process_virtual_memory_bytes", "gauge", "Address space", field(23)? as f64),
        ("process_threads", "gauge", "Threads", field(20)? as f64),
        ("process_open_fds", "gauge", "Open file descriptors", open as f64),
        (
            "process_max_fds",
            "gauge",
            "The most open file descriptors",
            most.map_or(f64::INFINITY, |most| most as f64),
        ),
    ])
}
