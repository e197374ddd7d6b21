//! Stands in for `facade` without the feature `metrics`: the same names, without effect.

#[derive(Default)]
pub(super) struct ReloadHandles;

impl ReloadHandles {
    pub(super) const fn loaded(&self, _rules: u32, _config_hash: u64, _unix_seconds: f64) {}
    pub(super) const fn failed(&self) {}
    pub(super) const fn unknown_domain(&self) {}
    pub(super) const fn removed_domain(&self) {}
    #[cfg(feature = "watch")]
    pub(super) const fn version(&self, _version: u64, _unix_seconds: f64) {}
    #[cfg(feature = "watch")]
    pub(super) const fn polled(&self, _answer_unix_seconds: f64, _fails: bool) {}
}
