//! Fields in proto3 JSON, where they differ from what serde derives.
//!
//! Reading accepts `null` for every field that is not repeated, numbers as text, whole numbers with a fraction of zero or an
//! exponent, and values of enumerations by name or by number. Writing leaves out the fields that are zero.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::enums::{Code, Unit};

/// A message that is read from an object. What serde derives also reads a message from a list of its fields.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_any(ObjectVisitor(PhantomData)).map(Self)
    }
}

/// Reads a list of messages.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let all: Vec<Object<T>> = nullable(from)?;
    Ok(all.into_iter().map(|object| object.0).collect())
}

/// Reads a message that may be absent.
pub(super) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|object| object.0))
}

/// Reads a value, or the default for `null`.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads a text.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    nullable::<_, String>(from).map(Bytes::from)
}

/// Reads a whole number that is not negative.
pub(super) fn number<'de, D: Deserializer<'de>, T: TryFrom<u64> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<Whole<T>>::deserialize(from)?.map(|whole| whole.0).unwrap_or_default())
}

/// Reads a whole number that may be absent.
pub(super) fn optional_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole<u64>>::deserialize(from)?.map(|whole| whole.0))
}

/// Reads a duration in seconds, such as `"60s"` or `"1.5s"`.
pub(super) fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let read = text.parse::<Duration>().ok().filter(|_| text.ends_with('s'));
    read.map(Some)
        .ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &"a duration, such as \"60s\""))
}

/// Reads a unit by its name or its number.
pub(super) fn unit<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    struct UnitVisitor;

    impl Visitor<'_> for UnitVisitor {
        type Value = i32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a unit, such as \"MINUTE\"")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<i32, E> {
            let unit = Unit::of_descriptor(name).map(|unit| unit as i32);
            unit.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<i32, E> {
            i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<i32, E> {
            i32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_unit<E: Error>(self) -> Result<i32, E> {
            Ok(0)
        }
    }

    from.deserialize_any(UnitVisitor)
}

/// A whole number in one of the forms that proto3 JSON permits.
struct Whole<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WholeVisitor(PhantomData)).map(Self)
    }
}

struct WholeVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for WholeVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0, of at most {} bits", size_of::<T>() * 8)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        match whole(number) {
            Some(whole) => self.visit_u64(whole),
            None => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        // A number begins with a digit or a sign; Rust's own syntax also has "inf" and a leading point.
        let starts = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        let number = match text.parse() {
            _ if !starts(text) => None,
            Ok(number) => Some(number),
            Err(_) => text.parse().ok().and_then(whole),
        };
        match number {
            Some(number) => self.visit_u64(number),
            None => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// Returns a number without a fraction as an integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are checked first")]
fn whole(number: f64) -> Option<u64> {
    const PAST_ALL: f64 = 18_446_744_073_709_551_616.0;
    ((0.0..PAST_ALL).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// Whether a field has the value that is left out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes a code by name.
pub(super) fn code<S: Serializer>(code: &i32, to: S) -> Result<S::Ok, S::Error> {
    named(Code::try_from(*code).map(Code::as_str_name), *code, to)
}

/// Writes the unit of an answer by name.
pub(super) fn answer_unit<S: Serializer>(unit: &i32, to: S) -> Result<S::Ok, S::Error> {
    named(Unit::try_from(*unit).map(Unit::as_str_name), *unit, to)
}

/// Writes a name, or the number of a value without a name.
fn named<S: Serializer, E>(name: Result<&str, E>, number: i32, to: S) -> Result<S::Ok, S::Error> {
    match name {
        Ok(name) => to.serialize_str(name),
        Err(_) => to.serialize_i32(number),
    }
}

/// Writes bytes in base64.
pub(super) fn base64<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&BASE64_STANDARD.encode(bytes))
}

/// Writes a duration of whole seconds. Answers have no other durations.
pub(super) fn duration<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{}s", duration.unwrap_or_default().seconds))
}

/// Writes metadata.
pub(super) fn metadata<S: Serializer>(metadata: &Option<Struct>, to: S) -> Result<S::Ok, S::Error> {
    metadata.as_ref().map(object).serialize(to)
}

fn object(all: &Struct) -> Json {
    all.fields.iter().map(|(name, value)| (name.as_str(), json(value))).collect()
}

fn json(value: &Value) -> Json {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        // JSON has no whole numbers, so one has no fraction here.
        Some(Kind::NumberValue(number)) => whole(*number).map_or_else(|| Json::from(*number), Json::from),
        Some(Kind::StringValue(text)) => Json::from(text.as_str()),
        Some(Kind::BoolValue(value)) => Json::from(*value),
        Some(Kind::StructValue(all)) => object(all),
        Some(Kind::ListValue(list)) => list.values.iter().map(json).collect(),
    }
}
