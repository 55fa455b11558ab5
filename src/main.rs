//! The `verbatim` program.

use std::process::ExitCode;

/// mimalloc: fast on many threads, and it returns memory to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    verbatim::cli::main()
}

/// Asks the kernel for pages of 4 KiB throughout. With huge pages, which the allocator requests, the same work takes the
/// same time and a sixth more memory (benches/RESULTS.md).
#[cfg(target_os = "linux")]
fn use_small_pages() {
    // SAFETY: takes only numbers and touches no memory of this process. A refusal changes nothing.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(not(target_os = "linux"))]
fn use_small_pages() {}
