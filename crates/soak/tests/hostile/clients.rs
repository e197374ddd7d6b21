//! Clients that the service must answer rightly at any time.

use std::fmt::Debug;
use std::{fs, io};

use serde_json::Value;
use tokio::time::sleep;
use tollgate_testing::service::client::{Grpc, HEALTH, LIMIT, SERVING, asking};

use super::resp::Resp;
use super::{Life, MS, Phase, add, rules, users};

/// The overall code of an answer.
const OK: &[u8] = &[8, 1];

/// Asks for one unit at a time by gRPC.
pub(super) async fn gateway(life: &Life<'_>) {
    while let Some(mut grpc) = connect(life).await {
        loop {
            if !life.goes_on() {
                return;
            }
            let (at, kind, key) = life.pick_rule();
            let answer = life.patient(grpc.try_call(LIMIT, &asking(&[(kind, &key)]))).await;
            match answer {
                Ok(called) => {
                    assert_eq!(called.status, 0, "{called:?}");
                    life.tell(at, !called.message.starts_with(OK));
                }
                Err(error) => {
                    // The connection had reached its age, and the service has not seen the request.
                    let text = format!("{error:?}");
                    let is_unseen =
                        text.contains("NO_ERROR, Remote") || error.is_canceled() || error.is_closed();
                    unanswered(life, &[at], is_unseen, &error);
                    break;
                }
            }
        }
    }
}

/// Asks for one unit at a time by JSON.
pub(super) async fn web(life: &Life<'_>) {
    while life.goes_on() {
        let (at, kind, key) = life.pick_rule();
        let ask = format!(
            r#"{{"domain":"rl","descriptors":[{{"entries":[{{"key":"{kind}","value":"{key}"}}]}}]}}"#
        );
        match life.http("http", "POST", "/json", &ask).await {
            Ok((status @ (200 | 429), _)) => life.tell(at, status == 429),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                unanswered(life, &[at], error.kind() == io::ErrorKind::UnexpectedEof, &error);
                if life.phase.get() != Phase::Serving {
                    return;
                }
            }
        }
    }
}

/// Asks as a Redis client: in pipelines and in transactions.
pub(super) async fn program(life: &Life<'_>) {
    let Some(mut resp) = login(life).await else { return };
    while life.goes_on() {
        let is_transaction = life.below(3) == 0;
        let asked: Vec<usize> = (0..=life.below(7)).map(|_| life.pick(false)).collect();
        let mut commands: String =
            asked.iter().map(|at| life.ledger.borrow().accounts[*at].command(1)).collect();
        if is_transaction {
            commands = format!("MULTI\r\n{commands}EXEC\r\n");
        }
        let (mut told, mut replies) = (0, Vec::new());
        let answered = async {
            resp.send(&commands).await?;
            if is_transaction {
                for _ in 0..=asked.len() {
                    replies.push(resp.reply().await?);
                }
                replies.push(resp.reply().await?);
                for answer in replies[asked.len() + 1][1..].split(|line| line.starts_with('*')).skip(1) {
                    life.tell(asked[told], answer[0] != ":0");
                    told += 1;
                }
                return Ok(());
            }
            for at in &asked {
                let answer = resp.reply().await?;
                assert!(answer[0].starts_with('*'), "{answer:?}");
                life.tell(*at, answer[1] != ":0");
                told += 1;
            }
            io::Result::Ok(())
        };
        match life.patient(answered).await {
            Ok(()) => assert_eq!(told, asked.len(), "{commands}: {replies:?}"),
            Err(error) => return unanswered(life, &asked[told..], false, &error),
        }
    }
}

/// Notes requests without an answer.
#[track_caller]
fn unanswered(life: &Life<'_>, asked: &[usize], is_unseen: bool, why: &dyn Debug) {
    match life.phase.get() {
        // It may have counted them, and may have saved that.
        Phase::Killed => {}
        // It says that it has not counted them, and the next process shows whether that is true.
        Phase::Draining => asked.iter().for_each(|at| life.ledger.borrow_mut().withdraw(*at, 1)),
        _ if is_unseen => asked.iter().for_each(|at| life.ledger.borrow_mut().withdraw(*at, 1)),
        phase => panic!("no answer while {phase:?}: {why:?}: {}", life.log()),
    }
}

async fn connect(life: &Life<'_>) -> Option<Grpc> {
    let connected = async { Grpc::try_over(life.port("grpc").await?).await.map_err(io::Error::other) };
    let connected = life.patient(connected).await;
    life.served(connected)
}

async fn login(life: &Life<'_>) -> Option<Resp> {
    let resp = life.patient(Resp::login(life, "good")).await;
    life.served(resp)
}

/// Asks all the time whether the service is well, on a new connection to each endpoint.
pub(super) async fn prober(life: &Life<'_>) {
    while life.is_serving() {
        let Some(mut grpc) = connect(life).await else { return };
        let health = life.patient(grpc.try_call(HEALTH, &[])).await;
        let Some(health) = life.served(health) else { return };
        assert!(health.message == SERVING || !life.is_serving(), "{health:?}");
        for (port, path) in
            [("http", "/healthcheck"), ("metrics", "/metrics"), ("debug", "/stats"), ("debug", "/top")]
        {
            let page = life.http(port, "GET", path, "").await;
            let Some((status, page)) = life.served(page) else { return };
            assert!(status == 200 || !life.is_serving(), "{path}: {status} {page}");
            add(&life.counts.probes, 1);
        }
        let Some(mut resp) = login(life).await else { return };
        let pong = life.patient(resp.say("PING\r\n")).await;
        let Some(pong) = life.served(pong) else { return };
        assert_eq!(pong, ["+PONG"]);
        add(&life.counts.probes, 2);
        sleep(20 * MS).await;
    }
}

/// Replaces the files about once in a second: in one step, in place, and by damaged ones.
pub(super) async fn writer(life: &Life<'_>) {
    while life.is_serving() {
        sleep(MS * u32::try_from(200 + life.below(1_000)).unwrap()).await;
        let good = rules(life.next());
        let cut = &good[..good.len() / 2];
        match life.below(6) {
            0 | 1 => life.place.write("limits.yaml", &good),
            2 => fs::write(life.place.rules(), &good).unwrap(),
            3 => life.place.write("limits.yaml", format!("{cut}\n  - [")),
            4 => fs::write(life.place.rules(), [0xff; 100]).unwrap(),
            _ if life.below(2) == 0 => life.place.write("users.acl", users(life.next())),
            _ => life.place.write("users.acl", "user good on >good-sec"),
        }
    }
}

/// Acts on keys of its own, and compares each answer.
pub(super) async fn operator(life: &Life<'_>) {
    let Some(mut resp) = login(life).await else { return };
    while life.is_serving() {
        let key = format!("op{}", life.next());
        if act_on(life, &mut resp, &key).await.is_none() {
            assert!(!life.is_serving(), "the operator was not answered: {}", life.log());
            return;
        }
        add(&life.counts.acts, 6);
    }
}

/// `helped` has five units. `None` if the service ends meanwhile.
async fn act_on(life: &Life<'_>, resp: &mut Resp, key: &str) -> Option<()> {
    let mut admitted = async |times: usize| {
        let answers =
            resp.ask(&format!("TOLLGATE.CHECK rl helped {key}\r\n").repeat(times), times).await.ok()?;
        Some(answers.iter().filter(|answer| answer[1] == ":0").count())
    };
    let act = async |verb: &str, more: &str| {
        let body = format!(r#"{{"domain":"rl","descriptors":[[["helped","{key}"]]]{more}}}"#);
        let (status, page) = life.http("admin", "POST", &format!("/v1/{verb}"), &body).await.ok()?;
        assert!(status == 200 || !life.is_serving(), "{status} {page}");
        Some(
            serde_json::from_str::<Value>(&page).unwrap_or_else(|error| panic!("{error}: {page}"))["rules"]
                [0]
            .take(),
        )
    };
    let why = r#","why":"a soak""#;
    assert_eq!(admitted(5).await?, 5, "{key}");
    assert_eq!(act("reset", why).await?["units"], 5, "{key}");
    assert_eq!(admitted(3).await?, 3, "{key}");
    assert_eq!(act("grant", &format!(r#"{why},"units":2"#)).await?["units"], 2, "{key}");
    assert_eq!(act("inspect", "").await?["state"]["remaining"], 4, "{key}");
    act("block", &format!(r#"{why},"for":"1h""#)).await?;
    assert_eq!(admitted(2).await?, 0, "{key}");
    act("unblock", why).await?;
    assert_eq!(admitted(6).await?, 5, "{key}: a key that is unblocked owes nothing");
    act("reset", why).await?;
    Some(())
}

/// What the holder knows of its present key.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) key: String,
    pub(super) committed: u64,
    pub(super) open: Vec<(String, u64)>,
    pub(super) all: u64,
}

/// Holds units, and settles or forgets them. Holds outlive a process that drains.
pub(super) async fn holder(life: &Life<'_>) {
    let Some(mut resp) = login(life).await else { return };
    while life.goes_on() {
        let held = life.patient(hold(life, &mut resp)).await;
        if life.served(held).is_none() {
            return;
        }
    }
}

async fn hold(life: &Life<'_>, resp: &mut Resp) -> io::Result<()> {
    let key = life.holds.borrow().key.clone();
    let (units, is_lost) = (1 + life.below(9), life.below(4) == 0);
    let ttl = if is_lost { "TTL 1" } else { "TTL 3600" };
    let answer = resp.say(&format!("TOLLGATE.HOLD rl HITS {units} {ttl} held {key}\r\n")).await?;
    assert_eq!(answer[..2], ["*2", ":0"], "{answer:?}");
    {
        let mut holds = life.holds.borrow_mut();
        holds.all += 1;
        if !is_lost {
            holds.open.push((answer[2].clone(), units));
        }
    }
    if life.holds.borrow().open.len() > 20 {
        commit(life, resp).await?;
    }
    Ok(())
}

/// Commits an open hold, for at most its units.
async fn commit(life: &Life<'_>, resp: &mut Resp) -> io::Result<()> {
    let at = life.index(life.holds.borrow().open.len());
    let (id, units) = life.holds.borrow().open[at].clone();
    let (key, used) = (life.holds.borrow().key.clone(), life.below(units + 1));
    let answer = resp.say(&format!("TOLLGATE.COMMIT rl {id} {used} held {key}\r\n")).await?;
    assert_eq!(answer, [":1"], "{id} was not found: {}", life.log());
    let mut holds = life.holds.borrow_mut();
    holds.open.swap_remove(at);
    holds.committed += used;
    Ok(())
}

/// Settles all holds, and waits until those that were lost have ended: then exactly the committed units are used.
pub(super) async fn settle(life: &Life<'_>) {
    let mut resp = Resp::login(life, "good").await.unwrap();
    while !life.holds.borrow().open.is_empty() {
        commit(life, &mut resp).await.unwrap();
    }
    let (key, mut used) = (life.holds.borrow().key.clone(), u64::MAX);
    for _ in 0..600 {
        let answer = resp.say(&format!("TOLLGATE.CHECK rl held {key}\r\n")).await.unwrap();
        assert_eq!(answer[1], ":0", "{answer:?}");
        life.holds.borrow_mut().committed += 1;
        used = super::used(&answer);
        if used == life.holds.borrow().committed {
            return;
        }
        sleep(100 * MS).await;
    }
    panic!("{used} units are used, and {:?}", life.holds.borrow());
}
