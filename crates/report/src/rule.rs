//! The contents of a rule, for people and for programs.

use serde_json::{Value, json};
use tollgate::{LimitKind, StoreConfig, StoreKind};
use tollgate_config::{Amount, Rule, RuleClass, SettingValue, Shared, Store};

use crate::human::{self, nanos};
use crate::output::merged;
use crate::text::printable;

/// All keys, in millionths.
const ALL_KEYS: u32 = 1_000_000;

/// How a limit is shared between processes.
fn shared_json(shared: &Shared) -> Value {
    json!({
        "mode": shared.mode.to_string(),
        "on_failure": shared.on_failure.to_string(),
        "processes": shared.processes,
        "timeout_ms": u64::try_from(shared.timeout.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Returns the settings of a rule: its limit in parts, and then the others by their names.
pub fn settings_json(rule: &Rule) -> Value {
    let (own, store) = match &rule.limit {
        Amount::Limited { limit, store } => (Some(limit), store.as_ref()),
        _ => (None, None),
    };
    let quota = own.map(|own| own.quota());
    let (units, period) = match &rule.limit {
        Amount::Blocked { period } => (Some(0), Some(*period)),
        _ => (quota.map(|quota| quota.limit()), quota.map(|quota| quota.period())),
    };
    let shared = match store {
        Some(Store::Redis(shared)) => json!({ "shared": shared_json(shared) }),
        _ => Value::Null,
    };
    // Every limit has these keys, whatever its store.
    let config = match store {
        Some(Store::Local(config)) => *config,
        _ => StoreConfig::new(StoreKind::Keyed),
    };
    let sizes = config.numbers().into_iter().map(|(name, number)| (name.to_owned(), json!(number))).collect();
    let limit = json!({
        "unlimited": matches!(rule.limit, Amount::Unlimited),
        "limit": units,
        "period_ns": period.map(nanos),
        "burst": quota.map(|quota| quota.burst_size()),
        "algorithm": own.map(|own| own.kind().name()),
        "store": store.map(ToString::to_string),
    });
    let calendar = match own.map(|own| own.kind()) {
        Some(LimitKind::CalendarWindow { calendar }) => json!({ "calendar": calendar.to_string() }),
        _ => Value::Null,
    };
    let block = own.and_then(|own| own.block()).map_or(Value::Null, |block| {
        let [first, longest] = [block.first(), block.longest()].map(nanos);
        json!({ "block": { "for_ns": first, "at_most_ns": longest } })
    });
    let hold = rule.hold.as_deref().map_or(
        Value::Null,
        |hold| json!({ "hold": { "life_ns": nanos(hold.life), "most": hold.most, "units": hold.units } }),
    );
    let in_progress = match &rule.limit {
        Amount::InProgress { most, life } => json!({ "in_progress": most, "life_ns": nanos(*life) }),
        _ => Value::Null,
    };
    // Only a rule that counts values has this key.
    let distinct = if rule.distinct { json!({ "distinct": true }) } else { Value::Null };
    let others = rule.settings().into_iter().filter_map(setting_json).collect();
    merged([limit, sizes, calendar, shared, block, hold, in_progress, distinct, others])
}

/// Returns the name and the value of a setting that is no part of the limit.
fn setting_json((name, value): (&str, SettingValue<'_>)) -> Option<(String, Value)> {
    let value = match value {
        SettingValue::Flag { is_on, .. } => json!(is_on),
        SettingValue::Units(units) => json!(units),
        SettingValue::PerMillion(keys) => json!(keys),
        SettingValue::Names(names) => json!(names),
        SettingValue::Class(class) => {
            json!(class.map(|class| json!({ "name": class.name, "share_per_million": class.share.share() })))
        }
        SettingValue::Text(_) => return None,
    };
    Some((name.replace(' ', "_"), value))
}

/// Returns what a rule does in another way than other rules, such as `shadow; enforced 10 %`. The limit and the class have
/// columns of their own.
pub fn flags(rule: &Rule) -> String {
    let mut settings = rule.settings();
    // What has a number or a name comes last.
    settings.sort_by_key(|(_, value)| matches!(value, SettingValue::Units(_) | SettingValue::Names(_)));
    settings.into_iter().filter_map(flag).collect::<Vec<_>>().join("; ")
}

fn flag((name, value): (&str, SettingValue<'_>)) -> Option<String> {
    let name = name.replace('_', " ");
    match value {
        SettingValue::Flag { is_on, default } if is_on == default => None,
        SettingValue::Flag { is_on: true, .. } => Some(name),
        SettingValue::Flag { is_on: false, .. } => Some(format!("no {name}")),
        SettingValue::PerMillion(ALL_KEYS) => None,
        SettingValue::PerMillion(keys) => {
            let name = name.trim_end_matches(" per million");
            Some(format!("{name} {}", human::share(keys.into(), ALL_KEYS.into())))
        }
        SettingValue::Units(units) => units.map(|units| format!("{name} {}", human::count(units))),
        SettingValue::Names([]) => None,
        SettingValue::Names(names) => {
            let names = names.iter().map(|name| printable(name.as_bytes(), 40)).collect::<Vec<_>>();
            Some(format!("{name} {}", names.join(", ")))
        }
        SettingValue::Class(_) | SettingValue::Text(_) => None,
    }
}

/// The identity and the name, which metrics, header fields and problem documents have.
pub fn names(rule: &Rule) -> [String; 2] {
    [&rule.identity[..], &rule.name[..]].map(|text| printable(text.as_bytes(), 80))
}

/// The limit, its algorithm and its store.
pub fn limit_texts(rule: &Rule) -> [String; 3] {
    let without_store = |text: &str| [text.to_owned(), String::new(), String::new()];
    match &rule.limit {
        Amount::Unlimited => without_store("none"),
        Amount::Blocked { .. } => without_store("denies all"),
        Amount::InProgress { most, .. } => without_store(&format!("{most} in progress")),
        Amount::Limited { limit, store } => {
            let chosen = rule.store_kind().map_or_else(String::new, |kind| kind.to_string());
            // A file can name a store for all its rules. One counter for all requests needs none.
            let named = store.as_ref().filter(|_| rule.store_kind() != Some(StoreKind::Direct));
            let store = named.map_or(chosen, store_text);
            let share = |class: &RuleClass| {
                format!("{} of ", human::share(class.share.share().into(), ALL_KEYS.into()))
            };
            let share = rule.class.as_deref().map_or_else(String::new, share);
            let quota = rule.limit.to_string();
            // The text of a limit with a block is its algorithm, its quota and its block.
            let text = limit.to_string();
            let block = text.split_once(&quota).map_or("", |(_, block)| block);
            let hold = if rule.hold.is_some() { ", with holds" } else { "" };
            let values = if rule.distinct { " different values" } else { "" };
            [format!("{share}{quota}{block}{values}{hold}"), limit.kind().name().to_owned(), store]
        }
    }
}

fn store_text(store: &Store) -> String {
    match store {
        Store::Local(config) => {
            let numbers = config.numbers().into_iter().filter_map(|(name, number)| {
                Some(match (name, number?) {
                    ("memory_bytes", bytes) => {
                        format!(" {}", human::size(usize::try_from(bytes).unwrap_or(usize::MAX)))
                    }
                    ("max_keys", most) => format!(", {}", human::counted(most, "key")),
                    (name, number) => format!(", {} {}", name.replace('_', " "), human::count(number)),
                })
            });
            format!("{store}{}", numbers.collect::<String>())
        }
        Store::Redis(shared) => {
            let of = match shared.processes {
                1 => "1 process".to_owned(),
                several => format!("{} processes", human::count(several.into())),
            };
            format!("redis, {}, {of}", shared.mode)
        }
    }
}
