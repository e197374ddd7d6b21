//! The book of write-back: stepped clocks, returning keys, and lost calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tollgate::{ManualClock, Quota};
use tollgate_protocol::{Plan, slot};
use tollgate_redis::internals::{Basis, BookSettings, Post, WriteBackBook, over_at_most, places_of};
use tollgate_redis::{ErrorKind, InProcess, Limit, OnFailure, Shard};

const SEC: u64 = 1_000_000_000;
/// The start of an hour.
const START: u64 = 1_699_999_200 * SEC;

/// The settings of one of these processes.
pub(super) fn options(processes: u32, max_keys: usize, in_flight: usize) -> BookSettings {
    BookSettings {
        places: places_of(&InProcess::default().limiter("api", Limit::gcra(Quota::per_second(1)))),
        interval_ns: SEC,
        processes: processes.into(),
        on_failure: OnFailure::Local { processes },
        max_keys,
        process: 1 << 20,
        in_flight,
        in_parts: false,
        portion: None,
    }
}

pub(super) fn book_of(limit: Limit, options: BookSettings) -> WriteBackBook {
    let plan = Plan::new(&[limit]).expect("the script can count the limit");
    WriteBackBook::new(Arc::new(plan), options, || {})
}

fn book(limit: Limit, processes: u32, max_keys: usize, in_flight: usize) -> (WriteBackBook, InProcess) {
    (book_of(limit, options(processes, max_keys, in_flight)), InProcess::new(ManualClock::default()))
}

/// The server answers these calls. Returns the charged units.
fn answer(book: &WriteBackBook, posts: &[Post], server: &InProcess, local_ns: u64, server_ns: u64) -> u64 {
    let charge = |post: &Post| {
        let reply = server.answer_at(&post.call, server_ns / 1_000);
        book.posted(post, &reply, local_ns);
        reply.granted
    };
    posts.iter().map(charge).sum()
}

/// Posts everything. Returns the charged units.
fn drain(book: &WriteBackBook, server: &InProcess, local_ns: u64, server_ns: u64) -> u64 {
    book.hurry();
    let posts = std::iter::repeat_with(|| book.due(local_ns)).take(10_000);
    let sent = posts.take_while(|posts| !posts.is_empty());
    sent.map(|posts| answer(book, &posts, server, local_ns, server_ns)).sum()
}

/// Makes `requests` requests of one unit. Returns how many are admitted.
fn spend(book: &WriteBackBook, key: &[u8], requests: u64, now_ns: u64) -> u64 {
    (0..requests).map(|_| u64::from(book.check(key, 1, now_ns).decision.is_allowed())).sum()
}

#[test]
fn units_of_keys_returning_during_removal_are_counted() {
    const KEYS: u32 = 3_000;
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 2, 4_000, 1_024);
    let spend_all = |now_ns| {
        let check = |key: u32| book.check(&key.to_le_bytes(), 10, now_ns).decision;
        (0..KEYS).map(|key| if check(key).is_allowed() { 10 } else { 0 }).sum::<u64>()
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
    charged += answer(&book, &posts, &server, now_ns, now_ns);
    charged += drain(&book, &server, now_ns, now_ns);
    let counted = book.counted(now_ns);
    assert_eq!(charged + counted.evicted_pending + counted.pending, admitted);
}

#[test]
fn early_removed_keys_return_without_allowance() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 2, 4, 64);
    let keys = [b"a", b"b", b"c", b"d"];
    for key in keys {
        assert_eq!(spend(&book, key, 50, START), 50);
    }
    assert_eq!(drain(&book, &server, START, START), 200);
    let now_ns = START + 3 * SEC;
    assert_eq!(drain(&book, &server, now_ns, now_ns), 0);
    assert_eq!(book.counted(now_ns).keys, 0, "a nearly full table removes idle keys");
    assert_eq!(spend(&book, b"a", 50, now_ns), 0, "a returning key starts without an allowance");
    drain(&book, &server, now_ns, now_ns);
    let more = spend(&book, b"a", 50, now_ns);
    assert!(more > 0);
    assert_eq!(drain(&book, &server, now_ns, now_ns), more, "the new total adds to the earlier total");
}

#[test]
fn gcra_is_charged_after_local_clock_steps_back() {
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
    // A burst, the refill of 30 s, and the bound on over-admission.
    assert!((300..=20 + 300 + 28 + 1 + 11).contains(&admitted), "{admitted}");
}

#[test]
fn clock_forward_and_back_gives_no_second_window() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 1, 100, 64);
    assert_eq!(spend(&book, b"a", 500, START), 100);
    assert_eq!(drain(&book, &server, START, START), 100);
    let ahead = START + 2 * 3_600 * SEC;
    assert_eq!(spend(&book, b"a", 500, ahead), 100, "the window that the local clock shows");
    for at in 0..20 {
        drain(&book, &server, ahead + at * SEC, START + at * SEC);
        assert_eq!(spend(&book, b"a", 500, ahead + at * SEC), 0);
    }
    assert_eq!(spend(&book, b"a", 500, START + 21 * SEC), 0, "a corrected clock gives no second allowance");
    assert_eq!(drain(&book, &server, START + 21 * SEC, START + 21 * SEC), 0);
    assert_eq!(spend(&book, b"a", 500, START + 22 * SEC), 0);
}

#[test]
fn key_removed_by_fast_clock_returns_without_allowance() {
    let (book, server) = book(Limit::fixed_window(Quota::per_hour(100)), 1, 100, 64);
    assert_eq!(spend(&book, b"a", 500, START), 100);
    assert_eq!(drain(&book, &server, START, START), 100);
    let ahead = START + 5 * 3_600 * SEC;
    assert_eq!(drain(&book, &server, ahead, ahead), 0);
    assert_eq!(book.counted(ahead).keys, 0);
    assert_eq!(spend(&book, b"a", 500, START + SEC), 0);
}

#[test]
fn longest_waiting_keys_are_posted_first() {
    let (book, server) = book(Limit::fixed_window(Quota::per_day(1_000_000)), 2, 1_000, 4);
    let all = |now_ns| (0..20_u8).all(|key| spend(&book, &[key], 1, now_ns) == 1);
    let mut now_ns = START;
    assert!(all(now_ns));
    drain(&book, &server, now_ns, now_ns);
    for _ in 0..100 {
        // Twenty keys are used each second, and twelve calls are possible.
        now_ns += SEC;
        assert!(all(now_ns));
        for _ in 0..3 {
            answer(&book, &book.due(now_ns), &server, now_ns, now_ns);
        }
        let oldest = book.counted(now_ns).oldest_pending;
        assert!(oldest <= Some(Duration::from_secs(4)), "{oldest:?}");
    }
}

#[test]
fn due_waits_for_a_free_call() {
    let (book, server) = book(Limit::fixed_window(Quota::per_day(1_000)), 2, 1_000, 4);
    for key in 0..20_u8 {
        assert_eq!(spend(&book, &[key], 1, START), 1);
    }
    let posts = book.due(START);
    assert_eq!((posts.len(), book.due(START).len()), (4, 0));
    assert!(book.next_ns() > START);
    book.failed(&posts[0], ErrorKind::Timeout, START);
    assert_eq!(book.next_ns(), 0, "a failed call makes room for another call");
    answer(&book, &posts[1..2], &server, START, START);
    assert_eq!(book.due(START).len(), 2);
}

#[test]
fn unanswered_gcra_post_is_not_charged_twice() {
    let unanswered = || {
        let (book, server) = book(Limit::gcra(Quota::per_second(10).burst(20)), 1, 1_000, 4);
        assert_eq!(spend(&book, b"a", 20, START), 20);
        for post in book.due(START) {
            assert_eq!(server.answer_at(&post.call, START / 1_000).granted, 20, "the answer is lost");
            book.failed(&post, ErrorKind::Timeout, START);
        }
        (book, server)
    };
    let (book, server) = unanswered();
    let soon = START + 60 * SEC;
    assert_eq!(drain(&book, &server, soon, soon), 0, "the server remembers the post");
    let (book, server) = unanswered();
    let late = START + 2 * 3_600 * SEC;
    assert_eq!(drain(&book, &server, late, late), 0);
    assert_eq!((book.counted(late).evicted_pending, book.counted(late).pending), (20, 0));
    let more = spend(&book, b"a", 5, late);
    assert_eq!((more, drain(&book, &server, late, late)), (5, 5), "later units are charged");
}

#[test]
fn drifting_clocks_share_one_allowance_at_window_end() {
    let (book, server) = book(Limit::fixed_window(Quota::per_minute(100)), 1, 100, 64);
    for at in 0..5 {
        let now_ns = START + at * SEC;
        let _ = spend(&book, b"z", 1, now_ns);
        drain(&book, &server, now_ns, now_ns);
    }
    // One hour later, the local clock may be 360 ms behind: the server is in the window that begins at the local end.
    let end = START + 3_600 * SEC;
    assert_eq!(spend(&book, b"a", 500, end - SEC / 10) + spend(&book, b"a", 500, end + SEC / 100), 100);
}

/// A limit of 20 among four processes; this book is one of them. Returns the units that each window admits for a
/// constantly used key, while another key's calls fail.
fn windows_while_another_key_fails(policy: OnFailure, why: ErrorKind, bad: &[u8]) -> Vec<u64> {
    let options = BookSettings { on_failure: policy, in_parts: true, ..options(4, 100, 64) };
    let book = book_of(Limit::fixed_window(Quota::new(20, Duration::from_secs(2))), options);
    let server = InProcess::new(ManualClock::default());
    let mut windows = vec![0; 3];
    for ms in 0..6_000 {
        let now_ns = START + ms * SEC / 1_000;
        let _ = book.check(bad, 1, now_ns);
        let checked = book.check(b"good", 1, now_ns);
        let is_open = checked.basis == Basis::Failing && policy == OnFailure::Open;
        windows[usize::try_from(ms / 2_000).unwrap()] += u64::from(is_open || checked.decision.is_allowed());
        for post in book.due(now_ns) {
            if post.key() == bad {
                book.failed(&post, why, now_ns);
            } else {
                answer(&book, &[post], &server, now_ns, now_ns);
            }
        }
    }
    windows
}

// G96
#[test]
fn full_server_does_not_delay_the_others() {
    let servers = ["a", "b"].map(|name| Shard::new(name, InProcess::default()));
    let set = InProcess::sharded(servers).expect("the set is valid");
    let limit = Limit::fixed_window(Quota::per_hour(100));
    let places = places_of(&set.limiter("api", limit));
    let book = book_of(limit, BookSettings { places: places.clone(), ..options(1, 100, 2) });
    // Five keys of one server, and then three keys of the other.
    let places = &places;
    let keys = |server| (0..100_u8).map(|key| [key]).filter(move |key| places.server(key) == server);
    for key in keys(0).take(5).chain(keys(1).take(3)) {
        assert!(book.check(&key, 1, START).decision.is_allowed());
    }
    let sent = |posts: &[Post]| posts.iter().map(|post| post.call.place.server).collect::<Vec<_>>();
    let posts = book.due(START);
    assert_eq!(sent(&posts), [0, 0, 1, 1], "each server has its own posts in flight");
    assert_eq!((book.in_flight(), book.due(START).len()), (4, 0));
    assert!(book.next_ns() > 0, "nothing is due until a call ends");
    // The first server does not answer. The other one does.
    answer(&book, &posts[2..], &set, START, START);
    assert_eq!((book.next_ns(), sent(&book.due(START))), (0, vec![1]));
    book.failed(&posts[0], ErrorKind::Timeout, START);
    assert_eq!(sent(&book.due(START)), [0]);
    let mut cold = keys(1).skip(3).zip(keys(0).skip(5));
    let (other, own) = cold.next().expect("more keys exist");
    assert!(book.check(&other, 1, START).decision.is_allowed(), "the failure is known for one server only");
    let _ = book.check(&own, 1, START);
    assert_eq!(book.counted(START).failures, 1);
}

// G84
#[test]
fn failure_affects_only_its_key_or_part() {
    let places = options(1, 100, 64).places;
    let part = |key: &[u8]| slot::part(&places.tag(key));
    let elsewhere = (0..100_u8).map(|key| [key]).find(|key| part(key) != part(b"good")).unwrap();
    let beside = (0..100_u8).map(|key| [key]).find(|key| part(key) == part(b"good")).unwrap();
    for policy in [OnFailure::Open, OnFailure::Closed, OnFailure::Local { processes: 4 }] {
        for why in [ErrorKind::Reply, ErrorKind::Unreachable] {
            for bad in [elsewhere, beside] {
                let windows = windows_while_another_key_fails(policy, why, &bad);
                assert_eq!(windows, [20; 3], "{policy:?}, {why:?}, {bad:?}");
            }
        }
    }
}

#[test]
fn key_asks_again_soon_after_a_failure() {
    for policy in [OnFailure::Open, OnFailure::Closed] {
        let options = BookSettings { on_failure: policy, ..options(1, 100, 64) };
        let book = book_of(Limit::fixed_window(Quota::per_hour(100)), options);
        let server = InProcess::new(ManualClock::default());
        let mut calls = 0;
        for ms in 0..2_000 {
            let now_ns = START + ms * SEC / 1_000;
            for key in [b"a", b"b", b"c"] {
                let _ = book.check(key, 100, now_ns);
            }
            for post in book.due(now_ns) {
                calls += 1;
                book.failed(&post, ErrorKind::Breaker, now_ns);
            }
        }
        // One key in 100 ms, and all pending posts in each interval.
        assert!((20..=40).contains(&calls), "{policy:?}: {calls}");
        // The server is back: each key is asked about when 100 ms have passed since its failure.
        let now_ns = START + 3 * SEC;
        let _ = book.check(b"a", 100, now_ns);
        answer(&book, &book.due(now_ns), &server, now_ns, now_ns);
        for key in [b"a", b"b", b"c"] {
            let checked = book.check(key, 100, now_ns);
            let asks = book.due(now_ns).len();
            assert!(checked.basis != Basis::Failing || asks == 1, "{policy:?}: {checked:?}, {asks}");
        }
    }
}

/// Returns the units that four processes admit in each window of the server's clock, with demand far above the limit.
/// The server's clock is stepped once. One of `fails` calls is not answered.
fn windows_by_the_server(limit: u64, at_ms: u64, step_ms: i64, fails: Option<u64>) -> BTreeMap<u64, u64> {
    const PERIOD_MS: u64 = 2_000;
    let limit = Limit::fixed_window(Quota::new(limit, Duration::from_millis(PERIOD_MS)));
    let options = |process| BookSettings { process, ..options(4, 100, 64) };
    let books = [1, 2, 3, 4].map(|number| book_of(limit, options(number << 20)));
    let server = InProcess::new(ManualClock::default());
    let mut windows = BTreeMap::new();
    let (mut posts, mut calls) = (Vec::<(&WriteBackBook, Post)>::new(), 0_u64);
    for ms in 0..20_000_u64 {
        let local_ns = START + ms * SEC / 1_000;
        let step_ms = if ms < at_ms { 0 } else { step_ms };
        let server_ms = (local_ns / 1_000_000).saturating_add_signed(step_ms);
        // An answer takes one millisecond.
        for (book, post) in posts.drain(..) {
            let reply = server.answer_at(&post.call, server_ms * 1_000);
            calls += 1;
            if fails.is_some_and(|fails| calls % fails == 0) {
                book.failed(&post, ErrorKind::Timeout, local_ns);
            } else {
                book.posted(&post, &reply, local_ns);
            }
        }
        for book in &books {
            let units = spend(book, b"a", 1, local_ns);
            *windows.entry(server_ms / PERIOD_MS).or_insert(0) += units;
            posts.extend(book.due(local_ns).into_iter().map(|post| (book, post)));
        }
    }
    windows
}

// G80
#[test]
fn stepped_server_clock_admits_at_most_two_windows() {
    let bound = 200 + over_at_most(200, 4);
    let mut most = [0; 2];
    for at_ms in (10_000..12_000).step_by(250) {
        assert!(windows_by_the_server(200, at_ms, 0, None).into_values().all(|units| units <= bound));
        for (most, step_ms) in most.iter_mut().zip([5_000, -5_000]) {
            *most = windows_by_the_server(200, at_ms, step_ms, None).into_values().max().unwrap().max(*most);
        }
    }
    assert!(most.iter().all(|most| *most <= 2 * bound), "{most:?}, bound {bound}");
}

// G80
#[test]
fn intermittent_errors_add_one_limit_per_window() {
    let bound = 200 + over_at_most(200, 4);
    for fails in [1, 2, 3, 7] {
        let windows = windows_by_the_server(200, 0, 0, Some(fails));
        assert!(windows.values().all(|units| *units <= bound + 200), "{fails}: {windows:?}, bound {bound}");
    }
}
