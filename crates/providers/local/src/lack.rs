//! What this machine has not got, and the command that gets it.

use std::env;
use std::path::PathBuf;

/// Something that must be there before a kind can be provided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is missing: {remedy}")]
pub struct Lack {
    /// What is not there: a program, a privilege, a kernel feature.
    pub what: String,
    /// What to do about it, with the command where there is one.
    pub remedy: String,
}

impl Lack {
    /// A program that a Debian package brings.
    pub fn package(program: &str, package: &str) -> Lack {
        Lack { what: format!("the program {program}"), remedy: format!("apt-get install {package}") }
    }

    /// Something else.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Lack {
        Lack { what: what.into(), remedy: remedy.into() }
    }
}

/// Directories, separated as in PATH, that are the only ones in which providers look for programs, where it is set.
pub const ONLY: &str = "CONDUCTOR_PATH";

/// Where a program is: in one of these directories, on PATH, or in those that PATH of a user may lack; or see [`ONLY`].
pub fn find_program(name: &str, also: &[PathBuf]) -> Option<PathBuf> {
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match env::var_os(ONLY) {
        Some(only) => env::split_paths(&only).collect(),
        None => also.iter().cloned().chain(env::split_paths(&path)).chain(usual).collect(),
    };
    places.into_iter().map(|dir| dir.join(name)).find(|file| is_program(file))
}

/// The same, or what is missing.
pub fn program(name: &str, package: &str, also: &[PathBuf]) -> Result<PathBuf, Lack> {
    find_program(name, also).ok_or_else(|| Lack::package(name, package))
}

fn is_program(file: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_said_to_be_missing() {
        assert!(program("sh", "dash", &[]).is_ok());
        let lack = program("no-such-program", "some-package", &[]).expect_err("is not there");
        assert!(lack.to_string().contains("apt-get install some-package"), "{lack}");
    }
}
