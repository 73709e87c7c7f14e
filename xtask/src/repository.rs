//! Where things are: the repository, its target directory, the cache of built tools.
use std::env;
use std::path::{Path, PathBuf};

/// The root of the repository this xtask was built from.
pub fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Where built tools are kept: outside the repository, so that all clones share them and
/// `cargo clean` leaves them alone.
pub fn tools() -> anyhow::Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("CONDUCTOR_TOOLS_DIR")
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("conductor/tools")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/conductor/tools")))
        .ok_or_else(|| {
            anyhow::anyhow!("no place for built tools: set CONDUCTOR_TOOLS_DIR to the absolute path of a directory")
        })
}

/// The executable `name` on PATH, or in one of `also`.
pub fn find_program(name: &str, also: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(also.iter().cloned()).map(|dir| dir.join(name)).find(|file| file.is_file())
}
