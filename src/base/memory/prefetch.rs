//! Hints that request a cache line before it is needed.

/// Hints that the line at `place` will be read; `place` may be any address. Does nothing on targets without the hint.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: a hint that reads nothing, writes nothing and faults on nothing; SSE is in every x86-64.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "prfm pldl1keep, [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

/// Hints that a line will be written. A line that is first loaded and then exchanged is transferred from another core
/// twice: once to share it, and once to own it. With this hint it is transferred once.
///
/// A value of this type proves that the processor has the hint.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PrefetchToWrite(());

impl PrefetchToWrite {
    /// Returns the hint, if this processor has it.
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let has_hint = {
            use core::arch::x86_64::__cpuid;

            /// PREFETCHW, from the manuals of AMD and Intel.
            const LEAF: u32 = 0x8000_0001;
            const ECX_BIT: u32 = 1 << 8;

            // SAFETY: every x86-64 has this instruction.
            #[allow(unused_unsafe, reason = "later compilers know that")]
            let (least, features) = unsafe { (__cpuid(0x8000_0000), __cpuid(LEAF)) };
            least.eax >= LEAF && features.ecx & ECX_BIT != 0
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let has_hint = cfg!(target_arch = "aarch64");
        has_hint.then_some(Self(()))
    }

    /// Hints that the line at `place` will be written.
    #[inline(always)]
    pub(crate) fn prefetch<T>(self, place: *const T) {
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
        // SAFETY: a hint that reads nothing, writes nothing and faults on nothing; `detect` found it in the processor. (The
        // compiler's own intrinsic is a hint to read, unless the compiler targets a later processor.)
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                "prefetchw [{place}]",
                place = in(reg) place,
                options(nostack, preserves_flags, readonly)
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                "prfm pstl1keep, [{place}]",
                place = in(reg) place,
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = place;
    }
}
