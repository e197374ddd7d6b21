//! Reads `rate_limit`: the quota, the algorithm and the store.

use std::time::Duration;

use tollgate::{LimitKind, Quota, QuotaError, StoreConfig, StoreKind, WhenFull};

use super::checker::Checker;
use super::fits;
use super::identity::LimitLabel;
use super::keys::{FieldPath, MapFields, MapKind};
use super::node::{FileNode, Value, quoted};
use super::scalar::BadValue;
use super::settings;
use crate::matching::Position;
use crate::rule::{ALGORITHMS, Amount, DEFAULT_ALGORITHM, Mode, Rule, STORES, Store, TimeUnit, UNITS};

/// The content of one `rate_limit`, before the place of its rule is known.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// The rule with the settings of the `rate_limit`.
    pub(super) rule: Rule,
    /// Distinguishes it from other limits of its descriptor.
    pub(super) label: LimitLabel,
    /// Where it limits the number of different values, if it does.
    pub(super) distinct: Option<Position>,
}

/// A limit with what distinguishes it from the other limits of its descriptor, if there are several.
pub(super) type Labelled = (Draft, Option<LimitLabel>);

/// The periods in which a limit counts.
struct Periods {
    /// Distinguishes the limit from others of its descriptor, if it has no name.
    label: String,
    /// The longest length of a period.
    length: Duration,
    calendar: Option<LimitKind>,
}

impl Checker {
    /// `None` if the limit cannot be read, which is reported.
    pub(super) fn limit(&mut self, node: &FileNode, path: &FieldPath<'_>) -> Option<Draft> {
        let fields = self.fields(node, MapKind::RATE_LIMIT, path)?;
        let unlimited = self.flag(&fields, "unlimited");
        let name = self.read(&fields, "name", FileNode::name);
        let name: Option<Box<str>> = name.filter(|name| !name.is_empty()).map(Box::from);
        let replaces = self.replaces(&fields, name.as_deref());
        let enforced_per_million =
            self.read(&fields, "enforced", FileNode::share).unwrap_or(self.settings.enforced);
        let headers = self.read(&fields, "headers", FileNode::yes).unwrap_or(true);
        let line = node.at.line as usize;
        let label = |unit: &str| match &name {
            Some(name) => LimitLabel { kind: "name", text: name.clone() },
            None => LimitLabel { kind: "unit", text: unit.into() },
        };
        let rule = |limit| {
            let (is_named, name) = (name.is_some(), name.clone().unwrap_or_default());
            Rule { name, is_named, enforced_per_million, headers, replaces, ..Rule::of(limit, line) }
        };
        if unlimited {
            self.reject_settings_of_unlimited(&fields);
            return Some(Draft { rule: rule(Amount::Unlimited), label: label("unlimited"), distinct: None });
        }
        if fields.has("in_progress") {
            let (limit, hold) = self.in_progress(&fields)?;
            let rule = Rule { hold, ..rule(limit) };
            return Some(Draft { rule, label: label("in-progress"), distinct: None });
        }
        let periods = self.periods(&fields);
        let limit = if fields.has("requests_per_unit") {
            self.requests(&fields)
        } else {
            let message = "without requests_per_unit, this limit denies all requests";
            let remedy = "write it; to deny all requests on purpose, write requests_per_unit: 0; to set no limit, write unlimited: true";
            self.warnings.add(node.at, path, message, remedy);
            Some(0)
        };
        let parameters = self.parameters(&fields, periods.as_ref().and_then(|periods| periods.calendar));
        let Periods { label: unit, length, calendar } = periods?;
        if let (Some(_), Some(0)) = (calendar, limit) {
            let message = "a limit of 0 denies all requests at all times, so a calendar has no effect on it";
            self.wrong(&fields, "period", message, "write unit instead of period");
            return None;
        }
        let (limit, soft) = self.quota(&fields, (limit?, length), parameters?)?;
        let distinct = self.distinct(&fields, &limit);
        let hold = self.hold(&fields, &limit);
        let rule = Rule { soft, hold, distinct: distinct.is_some(), ..rule(limit) };
        Some(Draft { rule, label: label(&unit), distinct })
    }

    /// Reads `requests_per_unit`. Envoy's service has 32 bits for it. A file with the key `tollgate` has 64, for units such as
    /// bytes and millionths of a dollar.
    fn requests(&mut self, fields: &MapFields<'_, '_>) -> Option<u64> {
        if self.extended {
            return self.number(fields, "requests_per_unit", 0, u64::MAX);
        }
        self.read(fields, "requests_per_unit", |node| {
            node.number(0, u32::MAX.into()).map_err(|BadValue { message, remedy }| {
                let is_large = node.number(0, u64::MAX).is_ok();
                let more = "; for a larger limit, add `tollgate: {}` at the top of the file";
                BadValue::new(message, format!("{remedy}{}", if is_large { more } else { "" }))
            })
        })
    }

    /// Reads in which periods a limit counts.
    fn periods(&mut self, fields: &MapFields<'_, '_>) -> Option<Periods> {
        if fields.has("period") {
            let (period, calendar) = self.calendar(fields)?;
            let length = calendar.quota(1).ok()?.period();
            let calendar = Some(LimitKind::CalendarWindow { calendar });
            return Some(Periods { label: format!("calendar-{period}"), length, calendar });
        }
        let remedy = "remove it, or write period: month instead of unit: month";
        let message = |key: &str| format!("{key} applies only to a period of the calendar");
        self.reject(fields, ["time_zone", "starts"], message, remedy);
        let unit = self.unit(fields);
        let every = self.number(fields, "every", 1, u32::MAX).unwrap_or(1);
        let unit = unit?;
        let length = Duration::from_secs(unit.period().as_secs().saturating_mul(u64::from(every)));
        let label = if every == 1 { unit.to_string() } else { format!("{every}-{unit}") };
        Some(Periods { label, length, calendar: None })
    }

    fn unit(&mut self, fields: &MapFields<'_, '_>) -> Option<TimeUnit> {
        let remedy = "use second, minute, hour, day, week, month or year";
        if !fields.has("unit") {
            self.problems.add(fields.node.at, fields.path, "the unit is missing", remedy);
            return None;
        }
        self.read(fields, "unit", |node| {
            let text = node.text_or(|| remedy.to_owned())?;
            let unit = UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(text)).map(|&(_, unit)| unit);
            unit.ok_or_else(|| BadValue::new(format!("no unit is called {}", quoted(text)), remedy))
        })
    }

    fn reject_settings_of_unlimited(&mut self, fields: &MapFields<'_, '_>) {
        let ours = MapKind::RATE_LIMIT.ours().filter(|key| *key != "enforced");
        for key in ours.chain(["unit"]) {
            let Some(node) = fields.get(key) else { continue };
            if !matches!(&node.kind, Value::Scalar(_, text) if text.is_empty()) {
                let message = format!("{key} cannot be used with unlimited: true");
                self.wrong(fields, key, message, "remove one of them");
            }
        }
        if fields.has("requests_per_unit") {
            self.requests(fields);
            let (at, path) = (fields.at("requests_per_unit"), fields.path.key("requests_per_unit"));
            self.warnings.add(at, path, "has no effect together with unlimited: true", "remove one of them");
        }
    }

    fn replaces(&mut self, fields: &MapFields<'_, '_>, own: Option<&str>) -> Vec<Box<str>> {
        let items = self.read(fields, "replaces", FileNode::list).unwrap_or_default();
        let path = fields.path.key("replaces");
        let mut names = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let Some(fields) = self.fields(item, MapKind::REPLACED, &path) else { continue };
            let name = if fields.has("name") { self.read(&fields, "name", FileNode::text) } else { Some("") };
            match name {
                Some("") => {
                    let remedy = "write the name of the rule that this rule switches off";
                    self.wrong(&fields, "name", "the name is missing", remedy);
                }
                Some(name) if Some(name) == own => {
                    let message = format!("a rule cannot replace itself: {} is its own name", quoted(name));
                    self.wrong(&fields, "name", message, "name another rule");
                }
                Some(name) => names.push(name.into()),
                None => {}
            }
        }
        names
    }

    fn parameters(
        &mut self,
        fields: &MapFields<'_, '_>,
        calendar: Option<LimitKind>,
    ) -> Option<(LimitKind, Option<Store>)> {
        let before = self.problems.len();
        let algorithm = match fields.has("algorithm") {
            true => match (self.word(fields, "algorithm", "algorithm", ALGORITHMS), calendar) {
                (Some(LimitKind::FixedWindow), Some(calendar)) => Some(calendar),
                (Some(other), Some(calendar)) => {
                    let message = format!("{} cannot count periods of the calendar", other.name());
                    let remedy = "remove it, or use algorithm: fixed-window, or write unit instead of period";
                    self.wrong(fields, "algorithm", message, remedy);
                    Some(calendar)
                }
                (algorithm, _) => algorithm,
            },
            false => calendar.or(self.settings.algorithm).or(Some(DEFAULT_ALGORITHM)),
        };
        let strict = self.flag(fields, "strict");
        let given = self.number(fields, "parts", 1, u32::MAX);
        let store = self.store_of(fields, algorithm);
        let algorithm = algorithm?;
        let is_window = matches!(algorithm, LimitKind::SlidingWindow { .. } | LimitKind::SubWindow { .. });
        let has_parts = matches!(algorithm, LimitKind::SubWindow { .. });
        for (key, fits, right) in [
            ("burst", algorithm.has_burst(), "gcra, token-bucket or leaky-bucket"),
            ("block", algorithm.has_blocks(), "gcra, token-bucket or leaky-bucket"),
            ("strict", is_window, "sliding-window or sub-window"),
            ("parts", has_parts, "sub-window"),
        ] {
            if !fits && fields.has(key) {
                let remedy = match calendar {
                    Some(_) => "remove it, or write unit instead of period".to_owned(),
                    None => format!("remove it, or use algorithm: {right}"),
                };
                self.wrong(fields, key, format!("{} does not use {key}", algorithm.name()), remedy);
            }
        }
        let algorithm = match algorithm {
            LimitKind::SubWindow { parts, .. } => {
                LimitKind::SubWindow { parts: given.unwrap_or(parts), strict }
            }
            LimitKind::SlidingWindow { .. } => LimitKind::SlidingWindow { strict },
            other => other,
        };
        (self.problems.len() == before).then_some((algorithm, store))
    }

    fn store_of(&mut self, fields: &MapFields<'_, '_>, algorithm: Option<LimitKind>) -> Option<Store> {
        let defaults = self.settings;
        let named = self.word(fields, "store", "store", STORES);
        let memory = self.read(fields, "memory", settings::memory);
        let max_keys = self.number(fields, "max_keys", 1, usize::MAX);
        let keyed = StoreConfig::new(StoreKind::Keyed);
        let keyed = max_keys.map_or(keyed, |most| keyed.with_max_keys(most, WhenFull::Forget));
        // A size in this limit implies its kind of store. A size for the whole file implies it only if that kind is
        // possible here.
        let implied = if fields.has("max_keys") {
            Some(Store::Local(keyed))
        } else if fields.has("memory")
            || (defaults.memory.is_some()
                && algorithm.is_none_or(LimitKind::is_compact)
                && !fields.has("block"))
        {
            Some(Store::Local(StoreConfig::new(StoreKind::Compact)))
        } else {
            None
        };
        let shared = self.shared(fields, defaults.shared);
        let store = named.or(defaults.store).or(implied);
        if !matches!(store, Some(Store::Redis(_))) {
            let message = |key: &str| format!("{key} applies only to limits with store: redis");
            self.reject(fields, settings::SHARED_KEYS, message, "remove it, or write store: redis");
        }
        let memory_given = memory.or(defaults.memory).unwrap_or(Store::MEMORY);
        let store = match store? {
            Store::Local(config) => Store::Local(match config.kind() {
                StoreKind::Compact | StoreKind::Sketch => config.with_capacity(memory_given),
                StoreKind::Keyed => keyed,
                StoreKind::Direct => config,
            }),
            Store::Redis(_) => Store::Redis(shared),
        };
        if !self.rejects_block_in(fields, &store)
            && let Some(algorithm) = algorithm
        {
            let refused = match store {
                Store::Local(config) if !config.kind().supports(algorithm) => Some(match config.kind() {
                    StoreKind::Sketch => ("sketch", "fixed-window or sliding-window, or another store"),
                    StoreKind::Compact | StoreKind::Keyed | StoreKind::Direct => ("compact", "store: keyed"),
                }),
                Store::Redis(shared) if shared.mode != Mode::Atomic && !algorithm.is_compact() => Some((
                    "redis",
                    "fixed-window, sliding-window, gcra, token-bucket or leaky-bucket, or another store, or mode: atomic",
                )),
                _ => None,
            };
            if let Some((what, supported)) = refused {
                let is_default = named.is_none() && defaults.store.is_some();
                let whose = if is_default { ", the file's default," } else { "" };
                let message = format!("the {what} store{whose} does not support {}", algorithm.name());
                self.wrong(fields, "store", message, format!("use {supported}"));
            }
        }
        self.reject_memory_size(fields, Some(store), "; to limit the number of keys, write max_keys");
        if store.kind() != Some(StoreKind::Keyed) && fields.has("max_keys") {
            let remedy = match store {
                Store::Redis(_) => "remove it, or use store: keyed",
                _ => "remove it, or use store: keyed; to set the size of this store, write memory",
            };
            self.wrong(fields, "max_keys", "max_keys applies only to the keyed store", remedy);
        }
        Some(store)
    }

    /// Reads the limit and the soft limit.
    fn quota(
        &mut self,
        fields: &MapFields<'_, '_>,
        (limit, period): (u64, Duration),
        (kind, store): (LimitKind, Option<Store>),
    ) -> Option<(Amount, u64)> {
        let (before, at, path) = (self.problems.len(), fields.node.at, fields.path);
        let burst = self.number(fields, "burst", 1, u64::MAX);
        let soft = self.number(fields, "soft", 0, u64::MAX);
        if self.problems.len() > before {
            return None;
        }
        let block = self.block(fields, limit);
        if self.problems.len() > before {
            return None;
        }
        if limit == 0 {
            return Some((Amount::Blocked { period }, soft.unwrap_or(u64::MAX)));
        }
        let quota = Quota::try_new(limit, period).and_then(|quota| match burst {
            Some(burst) => quota.try_burst(burst),
            None => Ok(quota),
        });
        // The remedy of an error that knows the number precedes the general one.
        let misfit = |error: QuotaError, remedy: &str| {
            let text = error.to_string();
            match text.rsplit_once("; ").filter(|_| error.is_out_of_range()) {
                Some((message, own)) => BadValue::new(message, own),
                None => BadValue::new(text, remedy),
            }
        };
        let quota = quota.map_err(|error| misfit(error, "choose another limit, period or burst"));
        let mut quota = self.take(fields.node, &path, quota)?;
        if let Some(most) = fits::most_in_window(&quota).filter(|_| kind == LimitKind::FixedWindow) {
            let message = format!("a window this short cannot count to {limit}; {most} is used instead");
            self.warnings.add(at, path, message, "to set no limit, write unlimited: true");
            quota = Quota::try_new(most, period).ok()?;
        }
        let remedy = match store {
            Some(_) => "choose another limit, algorithm or store",
            None => "choose another limit or algorithm",
        };
        let limit = fits::checked(kind, quota, block, store).map_err(|error| misfit(error, remedy));
        let limit = self.take(fields.node, &path, limit)?;
        let most = limit.most();
        if let Some(soft) = soft.filter(|&soft| soft > most) {
            let what = if kind.has_burst() { "burst" } else { "limit" };
            let message = format!("{soft} is above the {what} of {most}, so it would have no effect");
            self.wrong(fields, "soft", message, format!("write a number below {most}"));
            return None;
        }
        if let Some(Store::Redis(how)) = store
            && how.mode != Mode::Atomic
            && fields.has("soft")
        {
            let message =
                format!("has no effect in the mode {}: no process knows how many units are in use", how.mode);
            let remedy = "remove it, or write mode: atomic";
            self.warnings.add(fields.at("soft"), path.key("soft"), message, remedy);
        }
        Some((Amount::Limited { limit, store }, soft.unwrap_or(u64::MAX)))
    }
}
