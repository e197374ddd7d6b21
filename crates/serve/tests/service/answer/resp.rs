//! Redis clients get the answers of these tests, too: each request with one descriptor is sent as a command to the same rules.

use tollgate::Capacity;
use tollgate_resp::internals::{Limits, Quotas, RespShared, Session};

use super::*;

pub(super) struct Twin(Arc<RespShared<ManualClock>>);

impl Twin {
    pub(super) fn new(rules: Rules<ManualClock>, clock: ManualClock, settings: Settings) -> Self {
        Self(Arc::new(RespShared::new(
            Arc::new(Answerer::new(Arc::new(rules), settings)),
            Quotas::new(clock, 8, Capacity::memory(64 << 10)).into(),
            None,
            Limits { args: 100, bytes: 2 << 20 },
            Duration::from_secs(60),
            Arc::default(),
        )))
    }

    /// Asks the same. Compares the answers, if a command can ask it.
    pub(super) async fn asked(
        &self,
        request: RateLimitRequest,
        entry: Entry<'_>,
        expected: &Result<RateLimitResponse, Status>,
    ) {
        let texts = match (&request.descriptors[..], entry) {
            ([descriptor], Entry::ShouldRateLimit) => texts(&request, descriptor),
            _ => None,
        };
        let Some(texts) = texts else {
            let _ = self.0.answerer.answer(request, entry, deadline()).await;
            return;
        };
        let mut session = Session::new(Arc::clone(&self.0), "127.0.0.1:1".to_owned());
        let _ = session.answer(&mut command(&texts)).await;
        let told = String::from_utf8_lossy(session.replies());
        let Ok(expected) = expected else {
            assert!(told.starts_with('-'), "{told}");
            return;
        };
        if told.starts_with("-ERR no rules have the domain") {
            // A gateway has no rules for some of its domains. A client that names one in a command is wrong.
            assert!(expected.statuses[0].current_limit.is_none(), "{expected:?}");
            return;
        }
        let lines: Vec<&str> = told.split("\r\n").collect();
        let is_over = expected.overall_code == Code::OverLimit as i32;
        assert_eq!(lines[1], if is_over { ":1" } else { ":0" }, "{told} {expected:?}");
        if let Some(limit) = &expected.statuses[0].current_limit {
            // The field of the gateway has 32 bits.
            let remaining: u64 = lines[3].trim_start_matches(':').parse().unwrap();
            let seen = u32::try_from(remaining).unwrap_or(u32::MAX);
            assert_eq!(seen, expected.statuses[0].limit_remaining, "{told} {expected:?}");
            assert_eq!(lines[7], limit.name, "{told} {expected:?}");
        }
    }
}

/// Returns the bytes of a command.
fn command(texts: &[Bytes]) -> Vec<u8> {
    let text = |text: &Bytes| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
    [format!("*{}\r\n", texts.len()).into_bytes()]
        .into_iter()
        .chain(texts.iter().map(text))
        .flatten()
        .collect()
}

/// Returns the command that asks the same.
fn texts(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Option<Vec<Bytes>> {
    if descriptor.limit.is_some() || descriptor.is_negative_hits || descriptor.entries.is_empty() {
        return None;
    }
    let hits = descriptor.hits_addend.unwrap_or(request.hits_addend.max(1).into());
    i64::try_from(hits).ok()?;
    let mut texts = vec![
        Bytes::from("TOLLGATE.CHECK"),
        request.domain.clone(),
        Bytes::from("HITS"),
        hits.to_string().into(),
    ];
    texts.extend(descriptor.entries.iter().flat_map(|entry| [entry.key.clone(), entry.value.clone()]));
    (texts.len() <= 100).then_some(texts)
}
