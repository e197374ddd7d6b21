//! Values that are longer than a server or a table of this process should hold.

use std::time::Duration;

use tollgate::redis::Client;

use super::*;

#[test]
fn long_values_are_shared_as_hashes() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let long = "x".repeat(50_000);
    let longer = [&*long, "y"].concat();
    for mode in ["atomic", "lease", "write-back"] {
        let settings = format!("store: redis, mode: {mode}, charging: count-denials, timeout: 5s");
        let text = file(&settings, &[rule("a", &format!("requests_per_unit: 4, name: {mode}"))]);
        run(async {
            let process = || process(Client::open(&server.url()).unwrap(), &clock(), &text);
            let (one, other) = (process(), process());
            assert_eq!(admitted(&one, &[("a", &long)], 3).await, 3, "{mode}");
            one.close().await;
            assert_eq!(admitted(&other, &[("a", &long)], 1).await, 1, "{mode}");
            // In the mode `write-back`, a process learns of other processes' units after its first post.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(admitted(&other, &[("a", &long)], 3).await, 0, "{mode}: the processes share a key");
            assert_eq!(admitted(&other, &[("a", &longer)], 4).await, 4, "{mode}: another key");
            other.close().await;
        });
        let keys: Vec<Vec<u8>> = server.command(&["KEYS", "*"]);
        let longest = keys.iter().map(Vec::len).max().unwrap_or_default();
        assert!((1..400).contains(&longest), "{mode}: {longest} bytes");
        server.command::<()>(&["FLUSHALL"]);
    }
}
