//! The program's allocator, mimalloc.
//!
//! It keeps freed memory for a second, since pages and batches of megabytes come and go on every thread
//! (`docs/design/pages-and-encodings.md`). With small budgets that would exceed them: there it frees memory at once.

#![expect(unsafe_code, reason = "mimalloc's options are functions of C")]

use std::ffi::{c_int, c_long};

use crate::arguments::MemoryBudgets;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Budgets whose sum is smaller count as small.
const SMALL_BYTES: u64 = 512 << 20;

/// `mi_option_purge_delay` of mimalloc 3: milliseconds until freed memory is returned to the system.
const PURGE_DELAY: c_int = 15;
/// Its default.
const PURGE_DELAY_DEFAULT: c_long = 1000;

unsafe extern "C" {
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_option_set(option: c_int, value: c_long);
}

/// Makes the allocator keep little memory if `budgets` are small, unless MIMALLOC_PURGE_DELAY says otherwise.
pub(crate) fn keep_within(budgets: MemoryBudgets) {
    let (Some(pool), Some(query)) = (budgets.buffer_pool, budgets.query) else { return };
    if pool.saturating_add(query) >= SMALL_BYTES {
        return;
    }
    // SAFETY: reads one number of a table that mimalloc fills before it allocates; numbers beyond it give 0.
    let delay = unsafe { mi_option_get(PURGE_DELAY) };
    // Any other number belongs to another option, or was set by the user.
    if delay == PURGE_DELAY_DEFAULT {
        // SAFETY: writes the number that was read; mimalloc reads it whenever it frees, and takes any value at any
        // time.
        unsafe { mi_option_set(PURGE_DELAY, 0) };
    }
}
