//! Asking for a cache line before it is needed.

/// Hints that the line `place` points into will be read, if it points anywhere. Does nothing where the hint
/// does not exist.
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that reads nothing and faults on nothing; SSE is in every x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint that reads nothing, writes nothing and faults on nothing.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

/// Hints that a line will be written. A line that is loaded first and then exchanged comes from another core twice: to be shared,
/// and then to be owned. Asked for in this way it comes once.
///
/// A value is the proof that the processor has the hint.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PrefetchToWrite(());

impl PrefetchToWrite {
    /// The hint, if there is one here.
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let has_hint = {
            use core::arch::x86_64::__cpuid;

            /// AMD's and Intel's manuals: PREFETCHW.
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

    /// Hints that the line `place` points into will be written.
    #[inline(always)]
    pub(crate) fn prefetch<T>(self, place: *const T) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint that reads nothing and faults on nothing; `detect` found it in the processor. (The compiler's own form is one
        // to read, unless it is told of a later processor.)
        unsafe {
            core::arch::asm!(
                "prefetchw [{place}]",
                place = in(reg) place,
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a hint that reads nothing, writes nothing and faults on nothing.
        unsafe {
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
