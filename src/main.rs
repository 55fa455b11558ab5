use std::process::ExitCode;

/// The allocator of the design: fast on many threads, and gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    verbatim::cli::main()
}

/// Asks the kernel for pages of 4 KiB throughout. With huge ones, which the allocator asks for, the same work
/// takes the same time and a sixth more memory (benches/RESULTS.md).
#[cfg(target_os = "linux")]
fn use_small_pages() {
    // SAFETY: takes numbers alone and touches none of our memory. Where it is refused, nothing is lost.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(not(target_os = "linux"))]
fn use_small_pages() {}
