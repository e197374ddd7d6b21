//! The conversion of a fuzzer's bytes to operations.

use crate::kinds::{ALL, Kind};
use crate::oracle::Spec;
use crate::steps::{Cost, Op, Step};
use arbitrary::{Arbitrary, Result, Unstructured};

/// An algorithm, a quota that is decided exactly, a start time, and operations.
#[derive(Debug)]
pub struct Case {
    pub kind: Kind,
    pub spec: Spec,
    pub start: u64,
    pub ops: Vec<Op>,
}

impl Case {
    /// Reads a case with `keys` keys. Time steps back only if `backward` is true.
    pub fn read(bytes: &mut Unstructured<'_>, keys: u32, backward: bool) -> Result<Self> {
        let kind = *bytes.choose(&ALL)?;
        let limit = match bytes.int_in_range(0..=3)? {
            0 => bytes.int_in_range(1..=1 << 20)?,
            _ => bytes.int_in_range(1..=20)?,
        };
        let period_ns = match bytes.int_in_range(0..=3)? {
            0 => bytes.int_in_range(1..=1 << 61)?,
            1 => bytes.int_in_range(1..=1_000)?,
            _ => 1_000_000_000 * bytes.int_in_range(1..=100_000)?,
        };
        let spec = Spec::new(limit, period_ns);
        let spec = if bytes.arbitrary()? { spec.with_burst(bytes.int_in_range(1..=1 << 20)?) } else { spec };
        if !spec.is_exact() {
            return Err(arbitrary::Error::IncorrectFormat);
        }
        let start =
            if bytes.arbitrary()? { 1_700_000_000_000_000_000 } else { u64::from(bytes.arbitrary::<u16>()?) };
        let mut ops = Vec::new();
        while !bytes.is_empty() && ops.len() < 400 {
            let key = bytes.int_in_range(0..=keys - 1)?;
            ops.push(Op { key, step: step(bytes, backward)?, cost: cost(bytes)? });
        }
        Ok(Self { kind, spec, start, ops })
    }
}

pub fn step(bytes: &mut Unstructured<'_>, backward: bool) -> Result<Step> {
    let kinds = if backward { 7 } else { 5 };
    Ok(match bytes.int_in_range(0..=kinds)? {
        0 => Step::Stay,
        1 => Step::Nanos(u8::arbitrary(bytes)?.into()),
        2 => Step::Intervals(bytes.int_in_range(0..=20)?, bytes.int_in_range(-1..=1)?),
        3 => Step::Boundary(bytes.int_in_range(0..=3)?, bytes.int_in_range(-1..=1)?),
        4 => Step::Wait(bytes.int_in_range(0..=16)?, bytes.int_in_range(-1..=1)?),
        5 => Step::Nanos(bytes.int_in_range(0..=1 << 58)?),
        6 => Step::Back(bytes.int_in_range(0..=1 << 58)?),
        _ => Step::BackShare(bytes.int_in_range(1..=40)?),
    })
}

pub fn cost(bytes: &mut Unstructured<'_>) -> Result<Cost> {
    Ok(match bytes.int_in_range(0..=9)? {
        0 => Cost::Zero,
        1 => Cost::Over,
        2 => Cost::Max,
        3 => Cost::Remaining(0),
        4 => Cost::Remaining(1),
        5 => Cost::Share(bytes.int_in_range(0..=16)?),
        _ => Cost::Units(bytes.int_in_range(1..=4)?),
    })
}
