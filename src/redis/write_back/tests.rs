//! What went wrong once: of clocks that are stepped, keys that come back, calls that are lost, and runtimes that are gone.

use std::sync::{Arc, Barrier};
use std::thread;

use super::book::{Book, Options};
use crate::clock::ManualClock;
use crate::quota::Quota;
use crate::redis::in_process::InProcess;
use crate::redis::limit::Limit;
use crate::redis::plan::Plan;
use crate::redis::settings::OnFailure;

const SEC: u64 = 1_000_000_000;
/// A whole hour.
const START: u64 = 1_699_999_200 * SEC;

fn book(limit: Limit, processes: u32, max_keys: usize, in_flight: usize) -> (Book, InProcess) {
    let options = Options {
        head: b"p:{".as_slice().into(),
        interval_ns: SEC,
        processes: processes.into(),
        on_failure: OnFailure::Local { processes },
        max_keys,
        process: 1 << 20,
        in_flight,
    };
    let plan = Plan::new(&[limit]).expect("a limit that can be reckoned with");
    (Book::new(Arc::new(plan), options), InProcess::new(ManualClock::default()))
}

/// Posts what is due once; says what was charged, and how many calls there were.
fn post(book: &Book, server: &InProcess, local_ns: u64, server_ns: u64) -> (u64, usize) {
    let posts = book.due(local_ns);
    let mut charged = 0;
    for post in &posts {
        let reply = server.answer_at(&post.call, server_ns / 1_000);
        charged += reply.granted;
        book.posted(post, &reply, local_ns);
    }
    (charged, posts.len())
}

/// Posts all; says what was charged.
fn drain(book: &Book, server: &InProcess, local_ns: u64, server_ns: u64) -> u64 {
    book.hurry();
    let mut sum = 0;
    for _ in 0..10_000 {
        let (charged, calls) = post(book, server, local_ns, server_ns);
        sum += charged;
        if calls == 0 {
            break;
        }
    }
    sum
}

/// How many of so many requests of one unit are allowed.
fn spend(book: &Book, key: &[u8], requests: u64, now_ns: u64) -> u64 {
    (0..requests).map(|_| u64::from(book.check(key, 1, now_ns).decision.is_allowed())).sum()
}

#[test]
fn keys_that_come_back_while_others_are_removed_are_counted() {
    const KEYS: u32 = 3_000;
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 2, 4_000, 1_024);
    let spend_all = |now_ns| {
        let units =
            |key: u32| 10 * u64::from(book.check(&key.to_le_bytes(), 10, now_ns).decision.is_allowed());
        (0..KEYS).map(units).sum::<u64>()
    };
    let mut admitted = spend_all(START);
    let mut charged = drain(&book, &server, START, START);
    assert_eq!((admitted, charged), (30_000, 30_000));
    let now_ns = START + 3 * SEC;
    let barrier = Barrier::new(2);
    book.hurry();
    let posts = thread::scope(|scope| {
        let requests = scope.spawn(|| {
            barrier.wait();
            spend_all(now_ns)
        });
        barrier.wait();
        let posts = book.due(now_ns);
        admitted += requests.join().expect("checks do not panic");
        posts
    });
    for post in posts {
        let reply = server.answer_at(&post.call, now_ns / 1_000);
        charged += reply.granted;
        book.posted(&post, &reply, now_ns);
    }
    charged += drain(&book, &server, now_ns, now_ns);
    let counted = book.counted(now_ns);
    assert_eq!(charged + counted.dropped + counted.pending, admitted);
}

#[test]
fn keys_that_were_removed_early_come_back_with_nothing_and_are_counted() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 2, 4, 64);
    let keys = [b"a", b"b", b"c", b"d"];
    for key in keys {
        assert_eq!(spend(&book, key, 50, START), 50);
    }
    assert_eq!(drain(&book, &server, START, START), 200);
    let now_ns = START + 3 * SEC;
    assert_eq!(drain(&book, &server, now_ns, now_ns), 0);
    assert_eq!(book.counted(now_ns).keys, 0, "there is little room");
    assert_eq!(spend(&book, b"a", 50, now_ns), 0, "no fresh allowance");
    drain(&book, &server, now_ns, now_ns);
    let more = spend(&book, b"a", 50, now_ns);
    assert!(more > 0);
    assert_eq!(drain(&book, &server, now_ns, now_ns), more, "a total from 0 adds to the one before");
}

#[test]
fn gcra_is_counted_when_the_local_clock_steps_back() {
    let (book, server) = book(Limit::gcra(Quota::per_second(10).burst(20)), 1, 100, 64);
    let (mut local, mut remote) = (START, START);
    for _ in 0..5 {
        let _ = spend(&book, b"a", 1, local);
        drain(&book, &server, local, remote);
        (local, remote) = (local + SEC / 10, remote + SEC / 10);
    }
    (local, remote) = (local + 60 * SEC, remote + 60 * SEC);
    drain(&book, &server, local, remote);
    assert_eq!(book.counted(local).keys, 0);
    local -= 600 * SEC;
    let mut admitted = 0;
    for _ in 0..300 {
        admitted += spend(&book, b"a", 20, local);
        drain(&book, &server, local, remote);
        (local, remote) = (local + SEC / 10, remote + SEC / 10);
    }
    // A burst, what comes back in 30 s, and the bound of what is over.
    assert!((300..=20 + 300 + 28 + 1 + 11).contains(&admitted), "{admitted}");
}

#[test]
fn a_window_is_not_handed_out_again_by_a_clock_that_went_forth_and_back() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 1, 100, 64);
    assert_eq!(spend(&book, b"a", 500, START), 100);
    assert_eq!(drain(&book, &server, START, START), 100);
    let ahead = START + 2 * 3_600 * SEC;
    assert_eq!(spend(&book, b"a", 500, ahead), 100, "the window that the local clock shows");
    for at in 0..20 {
        drain(&book, &server, ahead + at * SEC, START + at * SEC);
        assert_eq!(spend(&book, b"a", 500, ahead + at * SEC), 0);
    }
    assert_eq!(spend(&book, b"a", 500, START + 21 * SEC), 0, "the local clock is set right");
    assert_eq!(drain(&book, &server, START + 21 * SEC, START + 21 * SEC), 0);
    assert_eq!(spend(&book, b"a", 500, START + 22 * SEC), 0);
}

#[test]
fn a_key_that_was_removed_by_a_clock_ahead_comes_back_with_nothing() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 1, 100, 64);
    assert_eq!(spend(&book, b"a", 500, START), 100);
    assert_eq!(drain(&book, &server, START, START), 100);
    let ahead = START + 5 * 3_600 * SEC;
    assert_eq!(drain(&book, &server, ahead, ahead), 0);
    assert_eq!(book.counted(ahead).keys, 0);
    assert_eq!(spend(&book, b"a", 500, START + SEC), 0);
}

#[test]
fn keys_that_wait_longest_are_posted_first() {
    let (book, server) = book(Limit::fixed_window(Quota::per_day(1_000_000)), 2, 1_000, 4);
    let all = |now_ns| (0..20_u8).all(|key| spend(&book, &[key], 1, now_ns) == 1);
    let mut now_ns = START;
    assert!(all(now_ns));
    drain(&book, &server, now_ns, now_ns);
    for _ in 0..100 {
        // Twenty keys are used each second, and there are twelve calls.
        now_ns += SEC;
        assert!(all(now_ns));
        for _ in 0..3 {
            post(&book, &server, now_ns, now_ns);
        }
        let oldest = book.counted(now_ns).oldest_ns;
        assert!(oldest <= Some(4 * SEC), "{oldest:?}");
    }
}

#[test]
fn nothing_is_due_while_no_call_can_be_sent() {
    let (book, server) = book(Limit::fixed_window(Quota::per_day(1_000)), 2, 1_000, 4);
    for key in 0..20_u8 {
        assert_eq!(spend(&book, &[key], 1, START), 1);
    }
    let posts = book.due(START);
    assert_eq!((posts.len(), book.due(START).len()), (4, 0));
    assert!(book.next_ns() > START);
    book.failed(&posts[0], START);
    assert_eq!(book.next_ns(), 0, "one can be sent again");
    let reply = server.answer_at(&posts[1].call, START / 1_000);
    book.posted(&posts[1], &reply, START);
    assert_eq!(book.due(START).len(), 2);
}

#[test]
fn gcra_that_was_not_answered_is_not_charged_again_when_the_server_forgot_it() {
    let (book, server) = book(Limit::gcra(Quota::per_second(10).burst(20)), 1, 1_000, 4);
    assert_eq!(spend(&book, b"a", 20, START), 20);
    let mut charged = 0;
    for post in book.due(START) {
        charged += server.answer_at(&post.call, START / 1_000).granted;
        book.failed(&post, START);
    }
    assert_eq!(charged, 20, "the answer is lost");
    let soon = START + 60 * SEC;
    assert_eq!(drain(&book, &server, soon, soon), 0, "it is remembered");
    let (book, server) = self::book(Limit::gcra(Quota::per_second(10).burst(20)), 1, 1_000, 4);
    assert_eq!(spend(&book, b"a", 20, START), 20);
    for post in book.due(START) {
        let _ = server.answer_at(&post.call, START / 1_000);
        book.failed(&post, START);
    }
    let late = START + 2 * 3_600 * SEC;
    assert_eq!(drain(&book, &server, late, late), 0);
    assert_eq!((book.counted(late).dropped, book.counted(late).pending), (20, 0));
    let more = spend(&book, b"a", 5, late);
    assert_eq!((more, drain(&book, &server, late, late)), (5, 5), "what comes after is charged");
}

#[test]
fn clocks_that_drift_between_answers_share_one_allowance_around_a_windows_end() {
    let (book, server) = book(Limit::fixed_window(Quota::per_minute(100)), 1, 100, 64);
    for at in 0..5 {
        let now_ns = START + at * SEC;
        let _ = spend(&book, b"z", 1, now_ns);
        drain(&book, &server, now_ns, now_ns);
    }
    // An hour later the local clock may be 360 ms behind: the server is in the window that begins at the local end.
    let end = START + 3_600 * SEC;
    let admitted = spend(&book, b"a", 500, end - SEC / 10) + spend(&book, b"a", 500, end + SEC / 100);
    assert_eq!(admitted, 100);
}

mod runtimes {
    use std::future::Future;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    use super::*;
    use crate::redis::write_back::WriteBackLimiter;

    fn runtime() -> Runtime {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime")
    }

    fn in_time<R>(future: impl Future<Output = R>) -> Option<R> {
        runtime().block_on(async { timeout(Duration::from_secs(3_600), future).await.ok() })
    }

    fn limiter(of: &Runtime) -> WriteBackLimiter<ManualClock> {
        let clock = ManualClock::default();
        let server = InProcess::new(clock.clone());
        let limit = Limit::fixed_window(Quota::per_hour(100));
        let limiter = of.block_on(async { server.limiter("api", limit).write_back().clock(clock).build() });
        limiter.expect("a limiter")
    }

    #[test]
    fn a_limiter_is_closed_after_its_runtime() {
        let first = runtime();
        let limiter = limiter(&first);
        assert!(limiter.check("a").is_allowed());
        drop(first);
        let closed = in_time(limiter.clone().close());
        assert_eq!(closed, Some(0), "and what it let through is posted");
        assert_eq!(limiter.stats().posts, 1);
        let again = in_time(limiter.close());
        assert_eq!(again, Some(0));
    }

    #[test]
    fn a_limiter_is_closed_beside_a_runtime_that_does_not_run() {
        let first = runtime();
        let limiter = limiter(&first);
        assert!(limiter.check("a").is_allowed());
        let closed = in_time(limiter.close());
        assert_eq!(closed, Some(0));
        drop(first);
    }

    #[test]
    fn posts_that_went_with_their_runtime_have_failed() {
        let first = runtime();
        let limiter = limiter(&first);
        assert!(limiter.check("a").is_allowed());
        // The task runs once: its posts are spawned, and not carried.
        first.block_on(tokio::task::yield_now());
        drop(first);
        let left = in_time(limiter.flush());
        assert_eq!(left, Some(0));
        assert!(limiter.stats().posts >= 1);
    }
}
