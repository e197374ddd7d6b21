//! The quotas that clients send: which are in force, which make room, and their usage after a restart.

use super::*;

// G140
#[test]
fn busy_quotas_are_kept_and_idle_ones_make_room() {
    let endpoint = endpoint_with(3, None);
    let mut client = endpoint.connect();
    // Each of them has a full burst again after as many seconds as its number.
    for seconds in [30, 20, 10] {
        assert!(client.say(&format!("CL.THROTTLE a 0 1 {seconds}")).starts_with("*5|:0|"));
        endpoint.clock.advance(Duration::from_secs(1));
    }
    let refused = "-ERR 3 other quotas are in use, the most that --resp-quotas allows";
    for _ in 0..2 {
        assert!(client.say("CL.THROTTLE a 0 1 40").starts_with(refused));
    }
    // Those in force still decide, and none has forgotten its key.
    assert_eq!(client.say("CL.THROTTLE a 0 1 30"), "*5|:1|:1|:0|:27|:27|");
    endpoint.clock.advance(Duration::from_secs(10));
    assert!(client.say("CL.THROTTLE a 0 1 40").starts_with("*5|:0|"), "the one of 10 seconds is idle");
    assert_eq!(client.say("CL.THROTTLE a 0 1 30"), "*5|:1|:1|:0|:17|:17|");
    assert_eq!(client.say("CL.THROTTLE a 0 1 20"), "*5|:1|:1|:0|:8|:8|");
    assert!(client.say("CL.THROTTLE a 0 1 10").starts_with(refused), "a use keeps a quota busy");
    assert_eq!(endpoint.shared.counts.quotas_refused.get(), 3);
    assert_eq!(endpoint.shared.quotas.len(), 3);
    // All are idle. The one that was used least recently goes.
    endpoint.clock.advance(Duration::from_secs(100));
    assert!(client.say("CL.THROTTLE a 0 1 30").starts_with("*5|:0|"));
    endpoint.clock.advance(Duration::from_secs(1));
    assert!(client.say("CL.THROTTLE a 0 1 50").starts_with("*5|:0|"));
    assert!(client.say("CL.THROTTLE a 0 1 30").starts_with("*5|:1|"), "the latest one stays");
}

// G140
#[test]
fn looks_and_denials_keep_no_quota_busy() {
    let endpoint = endpoint_with(2, None);
    let mut client = endpoint.connect();
    for line in ["CL.THROTTLE a 0 1 999999999 0", "GCRA a 0 1 999999998 TOKENS 2"] {
        assert!(client.say(line).starts_with("*5|"));
    }
    assert_eq!(endpoint.shared.quotas.len(), 0, "what charges nothing takes no place and no memory");
    for line in ["CL.THROTTLE a 0 1 30", "CL.THROTTLE a 0 1 40"] {
        assert!(client.say(line).starts_with("*5|:0|"), "{line}");
    }
    assert!(client.say("CL.THROTTLE a 0 1 32").starts_with("-ERR 2 other quotas"));
    assert!(client.say("CL.THROTTLE a 0 1 32 0").starts_with("*5|:0|"), "a look needs no place, as before");
    // A flood of denials adds nothing to the debt, so it does not prolong it either.
    endpoint.clock.advance(Duration::from_secs(29));
    assert_eq!(client.say("CL.THROTTLE a 0 1 30"), "*5|:1|:1|:0|:1|:1|");
    endpoint.clock.advance(Duration::from_secs(2));
    assert!(client.say("CL.THROTTLE a 0 1 32").starts_with("*5|:0|"));
    assert_eq!(client.say("CL.THROTTLE a 0 1 40"), "*5|:1|:1|:0|:9|:9|", "this one owes, and is kept");
}

/// Cause: a store was dropped only when another quota needed its place. Symptom: after a flood of quotas, their memory was never given back.
// G140
#[test]
fn idle_quotas_give_their_memory_back() {
    let endpoint = endpoint_with(8, None);
    let mut client = endpoint.connect();
    for seconds in 1..=7 {
        assert!(client.say(&format!("CL.THROTTLE a 0 1 {seconds}")).starts_with("*5|:0|"));
    }
    assert!(client.say("CL.THROTTLE a 9 1 60").starts_with("*5|:0|"));
    let quotas_after = |seconds| {
        endpoint.clock.advance(Duration::from_secs(seconds));
        endpoint.shared.quotas.drop_idle();
        endpoint.shared.quotas.len()
    };
    assert_eq!([quotas_after(0), quotas_after(60)], [8, 8], "one that is used now and then stays");
    assert!(client.say("CL.THROTTLE a 9 1 60").starts_with("*5|:0|"));
    assert_eq!(quotas_after(8), 1, "this one owes");
    assert_eq!(client.say("CL.THROTTLE a 9 1 60 0"), "*5|:0|:10|:9|:-1|:52|");
    assert_eq!(quotas_after(3_600), 0);
}

/// Two servers with the same clients. One gives the memory of idle quotas back before each command, and must not answer otherwise.
// G140
#[test]
fn dropped_quotas_change_no_answer() {
    let (keeps, drops) = (endpoint(), endpoint());
    let (mut keeper, mut dropper) = (keeps.connect(), drops.connect());
    let mut counts = [0; 4];
    for turn in 0..3_000_u64 {
        let number = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let pause = [0, 0, 1_700, 10_300, 40_000, 64_500, 90_100][(number % 7) as usize];
        // Quotas of both kinds of stores, which refill in 3 to 60 seconds.
        let quota = ["0 1 3", "4 10 60", "2 3 60", "99999999 99999999 9"][(number / 7 % 4) as usize];
        let line = format!("CL.THROTTLE key:{} {quota} {}", number / 28 % 3, number / 84 % 4);
        for endpoint in [&keeps, &drops] {
            endpoint.clock.advance(Duration::from_millis(pause));
        }
        drops.shared.quotas.drop_idle();
        assert_eq!(keeper.say(&line), dropper.say(&line), "{turn}: {line}");
        counts[drops.shared.quotas.len().min(3)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

/// What another process takes over, at another time.
// G143
#[test]
fn usage_of_quotas_is_taken_over() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    for line in ["CL.THROTTLE a 9 10 1000 6", "GCRA b 0 1 10", "CL.THROTTLE c 0 1 1000 0"] {
        assert!(client.say(line).starts_with("*5|:0|"), "{line}");
    }
    let mut bytes = Vec::new();
    endpoint.shared.quotas.save(&mut bytes).unwrap();
    // Seconds that the clock of the next process is ahead, the quotas taken over, and the units that are left then. A clock that is behind frees
    // nothing, and prolongs nothing.
    for (now, count, left) in [(0, 2, 4), (20, 1, 4), (250, 1, 6), (1_011, 0, 10), (-500, 2, 4)] {
        let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000_u64.saturating_add_signed(now)));
        let mut quotas = Quotas::new(clock.clone(), 1, Capacity::memory(64 << 10));
        assert_eq!(quotas.restore(&mut &bytes[..]).ok(), Some(count), "{now}");
        assert_eq!(quotas.len(), count);
        let quota = ClientQuota { burst: 10, count: 10, period_ns: 1_000_000_000_000 };
        let user = User::anyone();
        let look = |units| quotas.check(quota, b"a", units, &user).map(|decision| decision.remaining());
        assert_eq!(look(0).ok(), Some(left), "{now}");
        let other = ClientQuota { burst: 1, ..quota };
        assert_eq!(quotas.check(other, b"a", 1, &user).is_ok(), count == 0, "{now}");
        clock.advance(Duration::from_secs(1_020));
        assert!(quotas.check(other, b"a", 1, &user).is_ok(), "{now}: it is idle again");
        assert_eq!(quotas.len(), 1);
    }
    // Every byte counts, and no bytes change anything or take much memory.
    let mut quotas = Quotas::new(endpoint.clock.clone(), 1, Capacity::memory(64 << 10));
    for at in 0..bytes.len() {
        bytes[at] ^= 0x80;
        assert!(
            quotas.restore(&mut &bytes[..]).is_err() && quotas.restore(&mut &bytes[..at]).is_err(),
            "{at}"
        );
        bytes[at] ^= 0x80;
    }
    assert_eq!((quotas.len(), quotas.restore(&mut &bytes[..]).ok()), (0, Some(2)));
}

// G140
#[test]
fn flood_of_quotas_stays_within_its_bounds() {
    let endpoint = endpoint_with(16, None);
    let mut client = endpoint.connect();
    let mut commands = Vec::new();
    for count in 1..=20_000 {
        commands.extend(command(&["CL.THROTTLE", "a", "0", &count.to_string(), "3600"]));
    }
    let (replies, goes_on) = client.send(&commands);
    let replies = String::from_utf8(replies).unwrap();
    assert!(goes_on);
    assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 16);
    assert_eq!(replies.matches("-ERR 16 other quotas are in use").count(), 20_000 - 16);
    assert_eq!(endpoint.shared.quotas.len(), 16);
    // A limit that is in force is not affected.
    assert!(client.say("CL.THROTTLE a 0 1 3600").starts_with("*5|:1|:1|:0|:3600|"));
}

// G140
#[test]
fn threads_share_a_quota_that_comes_and_goes() {
    let endpoint = endpoint_with(2, None);
    let admitted: usize = std::thread::scope(|scope| {
        let ask = |thread: usize| {
            let mut client = endpoint.connect();
            move || {
                let mut admitted = 0;
                for turn in 0..500 {
                    // All threads begin with this quota, so it has a place.
                    admitted += usize::from(client.say("CL.THROTTLE a 99 1 3600").starts_with("*5|:0|"));
                    // Other quotas compete for the second place.
                    client.say(&format!("CL.THROTTLE b 0 {} 1", 1 + (turn + thread) % 7));
                }
                admitted
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(ask(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}
