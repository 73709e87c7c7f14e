//! Scrubs that were begun. One that is cut short leaves no file system whose uid would say whose the image is, and what somebody else has
//! put under its name leaves none either: so it is noted which file is overwritten, before it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use conductor_local::{Home, home};

/// Where notes are, below a provider's home.
const NOTES: &str = "scrubs";

/// The note about one volume's scrub.
pub struct Begun(PathBuf);

/// What a file keeps for as long as it lives, and no other has: some file systems do not know when it was made.
fn identity(file: &Path) -> io::Result<String> {
    let meta = fs::symlink_metadata(file)?;
    let made = meta.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{} {}\n", meta.ino(), made.as_nanos()))
}

impl Begun {
    /// Of the volume with a uid.
    pub fn of(home: &Home, uid: &str) -> Begun {
        Begun(home.path().join(NOTES).join(uid))
    }

    /// Notes that a file is going to be overwritten.
    pub fn note(&self, home: &Home, file: &Path) -> io::Result<()> {
        home.make(NOTES, None)?;
        home::write_whole(&self.0, identity(file)?.as_bytes(), 0o600)
    }

    /// Whether this very file was to be overwritten.
    pub fn is(&self, file: &Path) -> bool {
        fs::read_to_string(&self.0).is_ok_and(|noted| identity(file).is_ok_and(|own| own == noted))
    }

    /// It is done, or its volume is gone.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_was_noted_is_known() {
        let root = tempfile::tempdir().expect("is made");
        let home = Home::at(root.path()).expect("is made");
        let (own, other) = (root.path().join("own"), root.path().join("other"));
        fs::write(&own, "1").expect("is written");
        fs::write(&other, "1").expect("is written");
        let begun = Begun::of(&home, "u");
        assert!(!begun.is(&own));
        begun.note(&home, &own).expect("is noted");
        fs::write(&own, "22").expect("is overwritten");
        assert!(begun.is(&own) && !begun.is(&other) && !Begun::of(&home, "v").is(&own));
        fs::rename(&own, root.path().join("away")).expect("moves");
        fs::rename(&other, &own).expect("takes its name");
        assert!(!begun.is(&own), "it is another under its name");
        begun.forget();
        assert!(!begun.is(&root.path().join("away")));
    }
}
