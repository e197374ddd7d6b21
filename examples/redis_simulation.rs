//! What the modes that decide in the process admit, measured against what their texts say.
fn main() {}
