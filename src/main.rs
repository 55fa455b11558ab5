use std::process::ExitCode;

/// The allocator of the design: fast on many threads, and gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    verbatim::cli::main()
}
