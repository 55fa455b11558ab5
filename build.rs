//! Lets binaries and tests find libtorch without LD_LIBRARY_PATH.
//!
//! torch-sys links against `$LIBTORCH/lib` (`.cargo/config.toml` has the default); the run-time search
//! path says the same, so a program that links also starts.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        // `.verbatim` is a link into the cache: the real path outlives a moved or deleted clone.
        let folder = Path::new(&libtorch).canonicalize().unwrap_or_else(|_| libtorch.into());
        rpath(&format!("{}/lib", folder.display()));
    }
    // For a binary that was moved: libtorch in ../lib, or in the cache of the clone that contains it.
    rpath("$ORIGIN/../lib");
    rpath("$ORIGIN/../../.verbatim/libtorch-2.11.0/lib");
}

fn rpath(folder: &str) {
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
