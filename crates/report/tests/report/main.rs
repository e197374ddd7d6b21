//! What the programs write. These tests call public names only.

mod decimal;
mod descriptor;
mod human;
mod text;
