//! Tests of the structures with fixed memory: filters, counters, rates, the heaviest keys, and the sketch store.

/// Calls a check for each type of key, with the type's name and a function from numbers to different keys.
macro_rules! for_each_key_type {
    ($check:ident) => {
        $check("integers", |n| n);
        $check("even integers", |n| 2 * n);
        $check("integers in the top half", |n| n << 32);
        $check("pairs", |n| (n / 100, n % 100));
        $check("IPv4 addresses as text", |n| format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255));
        $check("IPv4 addresses", |n| {
            std::net::Ipv4Addr::from_bits(u32::try_from(n).expect("small") | 0x0A00_0000)
        });
        $check("UUIDs", |n| {
            let mut random = tollgate_testing::accuracy::random::Random::new(n);
            let (a, b) = (random.next(), random.next());
            format!(
                "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
                a >> 32,
                a & 0xFFFF,
                b & 0xFFF,
                (b >> 12) & 0xFFF,
                b >> 16
            )
        });
    };
}

mod bloom;
mod count_min;
mod in_flight;
mod rate;
mod sketch_store;
mod sketch_turns;
mod tat_sketch;
mod top_keys;
