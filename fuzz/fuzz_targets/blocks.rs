//! Runs checks, peeks, forced charges, reservations and refunds on a key that denials block. Each decision must equal the
//! model's decision, to the nanosecond.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use tollgate_testing::blocks::{BlockOp, BlockSpec, play};
use tollgate_testing::fuzzing::Case;

fn verb(bytes: &mut Unstructured<'_>) -> arbitrary::Result<BlockOp> {
    Ok(match bytes.int_in_range(0..=9)? {
        0..=4 => BlockOp::Check,
        5 => BlockOp::Peek,
        6 => BlockOp::Take,
        7 => BlockOp::Force(bytes.int_in_range(1..=2)?),
        8 => BlockOp::Reserve(bytes.int_in_range(0..=1 << 44)?),
        _ => BlockOp::Refund(bytes.int_in_range(0..=3)?),
    })
}

fn run(bytes: &mut Unstructured<'_>, Case { spec, start, ops, .. }: &Case) -> arbitrary::Result<Corpus> {
    let first_ns = bytes.int_in_range(1..=1 << 42)?;
    let most_ns = bytes.int_in_range(first_ns..=first_ns << 14)?;
    let spec = BlockSpec { spec: *spec, first_ns, most_ns };
    // With more operations, forced charges would fill a word.
    let ops = ops.iter().take(60).map(|op| Ok((*op, verb(bytes)?))).collect::<arbitrary::Result<Vec<_>>>()?;
    match spec.direct().filter(|_| spec.is_exact()) {
        Some(limiter) => play(spec, *start, &ops, &limiter),
        None => return Ok(Corpus::Reject),
    }
    Ok(Corpus::Keep)
}

// G127
fuzz_target!(|bytes: &[u8]| -> Corpus {
    // The operations use the available bytes of the first half.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    match Case::read(&mut Unstructured::new(first), 1, true) {
        Ok(case) => run(&mut Unstructured::new(second), &case).unwrap_or(Corpus::Reject),
        Err(_) => Corpus::Reject,
    }
});
