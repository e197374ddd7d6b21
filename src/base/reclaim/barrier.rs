//! The two barriers between a thread that pins and a thread that frees.
//!
//! The pinning thread writes its record, passes the *light* barrier, and reads pointers. The freeing thread unpublishes a
//! pointer, passes the *heavy* barrier, and reads the records. Then at least one of them sees the other's write.
//!
//! Linux can order the memory accesses of all running threads of a process at once (`membarrier(2)`, private expedited).
//! The heavy barrier is this call, so the light one only has to keep the compiler from reordering. Where the system does
//! not have this call, both are full fences.
//!
//! The same systems call a function in each process that is copied from this one.

/// Whether this build can ask the system for a heavy barrier.
pub(super) const CAN_ASK: bool = cfg!(any(all(target_os = "linux", not(miri)), tollgate_loom));

#[cfg(tollgate_loom)]
pub(super) use self::modelled::{heavy, light};
#[cfg(all(target_os = "linux", not(tollgate_loom), not(miri)))]
pub(super) use self::system::{at_copy, heavy, register};
#[cfg(not(any(tollgate_loom, all(target_os = "linux", not(miri)))))]
pub(super) use self::without::{at_copy, heavy, register};
#[cfg(not(tollgate_loom))]
pub(super) use crate::base::sync::compiler_fence as light;

#[cfg(all(target_os = "linux", not(tollgate_loom), not(miri)))]
mod system {
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes three numbers and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Prepares the process for the heavy barrier. Returns whether the system has it.
    pub(in super::super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    /// Lets each copy of this process call `run` before its only thread returns from `fork`. If memory is short, the system
    /// may refuse, and copies do not call it.
    pub(in super::super) fn at_copy(run: extern "C" fn()) {
        // SAFETY: the function is static. The system forgets it when the library that contains it is unloaded.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(run)) };
    }

    /// Orders the accesses of all threads. Returns false if the system refused.
    pub(in super::super) fn heavy() -> bool {
        // A process that was copied may have to register again.
        let mut done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        if !done && register() {
            done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        }
        done
    }
}

#[cfg(not(any(tollgate_loom, all(target_os = "linux", not(miri)))))]
mod without {
    pub(in super::super) fn at_copy(_: extern "C" fn()) {}

    pub(in super::super) fn register() -> bool {
        false
    }

    pub(in super::super) fn heavy() -> bool {
        false
    }
}

/// The system's barrier interrupts each thread between two of its steps. In the models the light barrier is the place
/// where the interrupt may happen: an exchange of one shared word, which orders whichever of the two comes later.
#[cfg(tollgate_loom)]
mod modelled {
    use crate::base::sync::{AtomicUsize, Ordering, modelled};

    modelled::lazy_static! {
        static ref INTERRUPTS: AtomicUsize = AtomicUsize::new(0);
    }

    pub(in super::super) fn light() {
        // Ordering: AcqRel, with itself: an interrupt orders both threads.
        INTERRUPTS.fetch_add(1, Ordering::AcqRel);
    }

    pub(in super::super) fn heavy() -> bool {
        light();
        true
    }
}
