//! Where things are: the repository, its target directory, the cache of built tools.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository: of the checkout that cargo runs this in, or a test that runs this, which need not be the one it was
/// built in if they share a target directory.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let built = Path::new(env!("CARGO_MANIFEST_DIR"));
        let run = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| built.to_owned(), PathBuf::from);
        let mut above = run.ancestors().chain(built.ancestors());
        above.find(|dir| dir.join("xtask/Cargo.toml").is_file()).unwrap_or(built).to_owned()
    })
}

/// Cargo, in the repository. `cargo xtask` is itself run by cargo, whose variables about the package xtask would make build
/// scripts believe that their surroundings changed.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
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
