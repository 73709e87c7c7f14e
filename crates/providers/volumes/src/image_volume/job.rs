//! What is done about one ImageVolume, blocking: its image is made, mounted, grown, scrubbed and removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conductor_local::{Ledger, Object, Scrubbed, Stock, Trouble};

use super::{Places, capacity, is_ready};
use crate::begun::Begun;
use crate::image::{self, FileSystem, ImageError, Wanted};
use crate::mounts::{self, MountError, UnmountError};
use crate::scrub;
use crate::spec::{ImageSpec, amount};

/// One look at an object: all that the blocking part needs.
pub(super) struct Job {
    pub(super) places: Arc<Places>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) object: Object,
    pub(super) spec: ImageSpec,
}

/// What the blocking part found and did.
pub(super) struct Done {
    pub(super) size: u64,
    pub(super) device: PathBuf,
    pub(super) point: PathBuf,
    pub(super) used: u64,
    pub(super) image: PathBuf,
    /// Why it is mounted again.
    pub(super) again: Option<&'static str>,
    /// Why it could not be grown.
    pub(super) resize: Option<String>,
    pub(super) scrubbed: Option<Scrubbed>,
}

/// Since when something is mounted.
enum Mounted {
    Before,
    Now,
    /// Now, after it was shut.
    Recovered,
}

/// Why a volume cannot be used whose file system had an error.
const SHUT: &str = "FileSystemError";
/// So much room there is to be on the disk before what was shut is mounted again, perhaps for want of it.
const ROOM: u64 = 16 << 20;

fn trouble(reason: &'static str) -> impl Fn(ImageError) -> Trouble {
    move |error| match error {
        ImageError::Host(crate::host::HostError::Missing { .. }) => Trouble::new("Unavailable", error.to_string()),
        ImageError::NoRoom(..) => Trouble::new("NoRoom", error.to_string()),
        other => Trouble::new(reason, other.to_string()),
    }
}

fn lost(message: String) -> Trouble {
    Trouble::new("Lost", message)
}

/// Whether a text is a UUID, which a file system can bear.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|g| g.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)))
}

impl Job {
    fn wanted<'w>(&'w self, path: &'w Path, size: u64) -> Result<Wanted<'w>, Trouble> {
        Ok(Wanted {
            path,
            size,
            file_system: self.spec.file_system()?,
            uid: self.object.uid(),
            preallocate: self.spec.preallocate,
        })
    }

    pub(super) fn run(self) -> Result<Done, Trouble> {
        if !is_uuid(self.object.uid()) {
            return Err(Trouble::new("Invalid", "metadata.uid is no UUID, which the file system is to bear"));
        }
        let file_system = self.spec.file_system()?;
        let options = self.spec.mount_options()?;
        let size = self.spec.size()?;
        let path = self.places.image(&self.object, &self.spec)?;
        let point = self.places.point(&self.object);
        for name in ["images", "mounts"] {
            self.places.home.make(name, None).map_err(Trouble::io("make a directory"))?;
        }
        self.is_there(&path, &point, size)?;
        let scrubbed = self.object.scrub_due().map(|number| Scrubbed { number, outcome: self.scrub(&path, &point) });
        if let Some(Scrubbed { outcome: Err(why), .. }) = &scrubbed {
            // not to be used, nor to be shown as usable: someone else's data may be in it
            let length = fs::metadata(&path).map(|meta| meta.len()).unwrap_or(0);
            return Ok(Done {
                size: length,
                device: PathBuf::new(),
                point,
                used: 0,
                image: path,
                again: None,
                resize: Some(why.clone()),
                scrubbed,
            });
        }
        let found = image::identity(&path).map_err(Trouble::io("read the image"))?;
        match &found {
            Some((kind, uid)) if *kind == file_system && uid == self.object.uid() => {}
            Some((kind, _)) if *kind != file_system => {
                let message = format!("the image has {} in it: spec.fileSystem cannot change", kind.name());
                return Err(Trouble::new("Invalid", message));
            }
            _ => {
                let message = format!(
                    "{} is not this volume's image: move it away, or restore the one that was there",
                    path.display()
                );
                return Err(Trouble::new("NotOurs", message));
            }
        }
        let again = match self.mount(&path, &point, file_system, options)? {
            Mounted::Recovered => Some("its file system had an error and was shut; it was checked"),
            Mounted::Now if scrubbed.is_none() && is_ready(&self.object) => {
                Some("it was unmounted by someone else: leave that to Conductor")
            }
            _ => None,
        };
        let resize = self.grow(&path, &point, size, options)?;
        self.permissions(&point)?;
        let device = mounts::at(&point).map_err(Trouble::io("read the mounts"))?.map(|m| m.device).unwrap_or_default();
        let length = fs::metadata(&path).map_err(Trouble::io("look at the image"))?;
        let size = if resize.is_some() { self.capacity().unwrap_or(length.len()) } else { length.len() };
        Ok(Done { size, device, point, used: length.blocks() * 512, image: path, again, resize, scrubbed })
    }

    /// Sees to it that there is an image: makes one, unless there was one.
    fn is_there(&self, path: &Path, point: &Path, size: u64) -> Result<(), Trouble> {
        let mounted = mounts::at(point).map_err(Trouble::io("read the mounts"))?;
        let loops = mounts::loops().map_err(Trouble::io("read the loop devices"))?;
        let shows = mounted.as_ref().and_then(|m| loops.iter().find(|l| l.device == m.device));
        let gone =
            self.object.was_ready() && fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        if shows.is_some_and(|l| l.deleted || gone) {
            return Err(lost(format!(
                "the image {} was deleted or moved; its data can still be read at {} until that is unmounted: copy it away, then delete \
                 the claim or restore the image",
                path.display(),
                point.display()
            )));
        }
        if let Some(mount) = &mounted {
            self.is_shown(path, point, mount, shows)?;
        }
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() => match self.capacity().filter(|said| meta.len() < *said) {
                // what was there is gone, and zeros in its place would hide it
                Some(said) if self.object.was_ready() && self.object.scrub_due().is_none() => Err(lost(format!(
                    "the image {} was cut short: it had {} and has {}; restore it from a backup under this name, or delete the claim",
                    path.display(),
                    amount(said),
                    amount(meta.len())
                ))),
                _ => Ok(()),
            },
            Ok(_) => Err(Trouble::new("NotOurs", format!("{} is no file: move it away", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.object.was_ready() => {
                self.promise(path, size)?;
                self.wanted(path, size)?.make().map_err(trouble("MakingFailed"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(lost(format!(
                "the image {} is gone, and with it the data: restore it from a backup under this name, or delete the claim",
                path.display()
            ))),
            Err(error) => Err(Trouble::io("look at the image")(error)),
        }
    }

    /// What is mounted must be what stands under the image's name: who writes to anything else has it nowhere after the next mount.
    fn is_shown(
        &self,
        path: &Path,
        point: &Path,
        mount: &mounts::Mount,
        shows: Option<&mounts::Loop>,
    ) -> Result<(), Trouble> {
        let Some(shows) = shows else {
            let message = format!(
                "at {} is mounted {}, which is not this volume's image: umount it",
                point.display(),
                mount.device.display()
            );
            return Err(Trouble::new("NotOurs", message));
        };
        let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        match (file(&shows.file), file(path)) {
            (Ok(shown), Ok(own)) if shown != own => Err(lost(format!(
                "at {} is mounted {}, not {}: to keep what is in the first, move it back under the second's name; to go on with the second, \
                 umount {}",
                point.display(),
                shows.file.display(),
                path.display(),
                point.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Has so much of the disk promised.
    fn promise(&self, path: &Path, size: u64) -> Result<(), Trouble> {
        let disk = Stock::disk(path.parent().unwrap_or(path)).map_err(Trouble::io("look at the disk"))?;
        self.ledger.promise(self.object.uid(), &disk, size, self.spec.shown.overcommit)
    }

    /// Mounts it, unless it is mounted and can be used.
    fn mount(&self, path: &Path, point: &Path, kind: FileSystem, options: &[String]) -> Result<Mounted, Trouble> {
        let mounted = mounts::at(point).map_err(Trouble::io("read the mounts"))?;
        let mut how = Mounted::Now;
        match mounted.map(|mount| mount.fault(options)) {
            Some(None) => return Ok(Mounted::Before),
            Some(Some(fault)) => {
                self.recover(path, point, kind, &fault)?;
                how = Mounted::Recovered;
            }
            None if image::has_errors(path).map_err(Trouble::io("read the image"))? => checked(path, kind, false)?,
            None => {}
        }
        mounts::mount_image(path, point, kind.name(), options).map(|()| how).map_err(|error| match error {
            MountError::NotEmpty(..) => Trouble::new("MountPointNotEmpty", error.to_string()),
            other => Trouble::new("MountFailed", other.to_string()),
        })
    }

    /// Unmounts what has shut itself, and mends it. Whoever uses it has to let go first: nothing that is written there is kept any more.
    fn recover(&self, path: &Path, point: &Path, kind: FileSystem, fault: &str) -> Result<(), Trouble> {
        let trouble = |what: String| {
            let message = format!("the file system at {} had an error ({fault}) and is shut: {what}", point.display());
            Trouble::new(SHUT, message)
        };
        let disk = path.parent().unwrap_or(path);
        let free = rustix::fs::statvfs(disk).map_err(|e| Trouble::io("look at the disk")(e.into()))?;
        if !self.spec.preallocate && free.f_bavail * free.f_frsize < ROOM {
            let (disk, room) = (disk.display(), amount(ROOM));
            return Err(trouble(format!(
                "{disk}, where its image is, has less than {room} left: make room, then it is checked and mounted again"
            )));
        }
        mounts::unmount(point).map_err(|error| {
            trouble(format!(
                "it is checked and mounted again when nobody uses it; {}",
                crate::users::said(&error, point)
            ))
        })?;
        checked(path, kind, true)?;
        tracing::warn!(name = self.object.name(), fault, "its file system was shut; it is checked and mounted again");
        Ok(())
    }

    fn capacity(&self) -> Option<u64> {
        capacity(&self.object)
    }

    /// Grows what is too small; `Some`: why that cannot be done now. The volume is usable either way.
    fn grow(&self, path: &Path, point: &Path, size: u64, options: &[String]) -> Result<Option<String>, Trouble> {
        let length = fs::metadata(path).map_err(Trouble::io("look at the image"))?.len();
        // a file that was grown may hold a file system that was not: only what was reported is known to be done
        let known = self.capacity().map_or(length, |said| said.min(length));
        if known > size {
            // what was taken to make it larger, and is not wanted any more, goes back
            if let Err(error) = self.wanted(path, length)?.reserve() {
                tracing::debug!(name = self.object.name(), %error, "its blocks stay as they are");
            }
            return Ok(Some(format!(
                "it has {} and cannot shrink to {}: ask for what it has, or claim a smaller one",
                amount(known),
                amount(size)
            )));
        }
        // what has begun to grow grows to its end, though less is asked for by now: only then it is known what it has
        let size = size.max(length);
        let wanted = self.wanted(path, size)?;
        let grown = match known == size {
            // whoever writes to it may have given some of it back
            true => wanted.reserve(),
            false => match self.promise(path, size) {
                Ok(()) => wanted.grow(point, options),
                Err(refused) => return Ok(Some(refused.message)),
            },
        };
        match grown {
            Ok(()) => Ok(None),
            Err(ImageError::InUse(busy @ UnmountError::Busy(_))) => Ok(Some(format!(
                "ext4 grows only while it is not mounted here (CAP_SYS_RESOURCE is missing), and {}",
                crate::users::said(&busy, point)
            ))),
            Err(error @ (ImageError::NoRoom(..) | ImageError::Host(_))) => Ok(Some(error.to_string())),
            Err(error) => Err(trouble("GrowingFailed")(error)),
        }
    }

    fn permissions(&self, point: &Path) -> Result<(), Trouble> {
        let (owner, mode) = self.spec.shown.permissions()?;
        crate::permissions(point, owner, mode).map_err(Trouble::io("set the owner of the volume"))
    }

    /// Scrubs the image and puts an empty file system into it; how that was verified, or why it was not.
    fn scrub(&self, path: &Path, point: &Path) -> Result<String, String> {
        let method = self.spec.method().map_err(|t| t.message)?;
        let begun = self.begun();
        if !self.is_own(path).map_err(|e| format!("the image cannot be read: {e}"))? {
            return Err(format!(
                "{} is not this volume's image and is left as it is: restore the one that was there under its name, or delete the volume",
                path.display()
            ));
        }
        match mounts::unmount(point) {
            Err(busy @ UnmountError::Busy(_)) => return Err(crate::users::said(&busy, point)),
            outcome => outcome.map_err(|e| e.to_string())?,
        }
        if let Err(error) = begun.note(&self.places.home, path) {
            // on a disk that is full, say: should it be cut short, somebody must look
            tracing::warn!(name = self.object.name(), %error, "that its scrub begins cannot be noted");
        }
        scrub::image(path, method).map_err(|e| e.to_string())?;
        let length = fs::metadata(path).map_err(|e| e.to_string())?.len();
        let wanted = self.wanted(path, length).map_err(|t| t.message)?;
        // what was given back is the next one's, too
        wanted.reserve().map_err(|e| e.to_string())?;
        wanted.format(path).map_err(|e| e.to_string())?;
        begun.forget();
        Ok(format!("{}: {} read back as zeros, then a new file system", method.name(), amount(length)))
    }

    fn begun(&self) -> Begun {
        Begun::of(&self.places.home, self.object.uid())
    }

    /// Whether a file under our name is ours: it bears our uid, or a scrub that was cut short has taken that from it.
    fn is_own(&self, path: &Path) -> io::Result<bool> {
        let found = image::identity(path)?;
        Ok(found.is_some_and(|(_, uid)| uid == self.object.uid()) || self.begun().is(path))
    }

    pub(super) fn remove(self) -> Result<(), Trouble> {
        let point = self.places.point(&self.object);
        mounts::unmount(&point).map_err(|error| match &error {
            UnmountError::Busy(_) => Trouble::new("Busy", crate::users::said(&error, &point)),
            UnmountError::Littered(_) | UnmountError::Other(..) => Trouble::new("UnmountFailed", error.to_string()),
        })?;
        let path = match self.places.image(&self.object, &self.spec) {
            // for what is refused and was never of use nothing was made
            Err(_) if !self.object.was_ready() => return Ok(()),
            path => path?,
        };
        let size = self.spec.size().unwrap_or(0);
        let unfinished = self.wanted(&path, size)?.unfinished();
        // an image under our name that is not ours was never made by us
        let ours = self.is_own(&path).unwrap_or(true);
        for file in [Some(&path).filter(|_| ours), Some(&unfinished)].into_iter().flatten() {
            match fs::remove_file(file) {
                Err(error) if !is_nowhere(&error) => return Err(Trouble::io("remove the image")(error)),
                _ => {}
            }
        }
        self.begun().forget();
        Ok(())
    }
}

/// Sees to it that an image with errors is in order before it is mounted.
fn checked(path: &Path, kind: FileSystem, whole: bool) -> Result<(), Trouble> {
    image::check(path, kind, whole).map_err(|error| {
        let message =
            format!("{error}; its file system has errors that a person must look at: e2fsck -f {}", path.display());
        Trouble::new(SHUT, message)
    })
}

/// Whether nothing is, or can be, where something was looked for.
fn is_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

#[cfg(test)]
mod tests {
    use conductor_claims::lifecycle::SCRUB_ASKED;
    use conductor_local::Home;
    use serde_json::json;

    use super::*;
    use crate::scrub::Method;

    #[test]
    fn what_is_not_ours_is_neither_scrubbed_nor_removed() {
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        let (places, path, uid) = (Arc::new(places), at("images/a.img"), "0b5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11");
        let job = || {
            let object = Object(json!({
                "metadata": {"name": "a", "namespace": "conductor-system", "uid": uid},
                "spec": {"size": "16Mi", "scrub": 1}, "status": {"readySince": "2026-01-01T00:00:00Z"},
            }));
            let spec = object.spec().expect("is read");
            Job { places: places.clone(), ledger: Arc::default(), object, spec }
        };
        fs::create_dir(&places.images).expect("is made");
        fs::write(&path, "somebody's").expect("is written");
        let said = job().scrub(&path, &at("mounts/a")).expect_err("is somebody's");
        assert!(said.contains("not this volume's image"), "{said}");
        job().remove().expect("goes without it");
        assert_eq!(fs::read_to_string(&path).expect("is there"), "somebody's");
        // a scrub that was cut short
        job().begun().note(&places.home, &path).expect("is noted");
        assert!(job().is_own(&path).expect("is read"));
        job().remove().expect("goes");
        assert!(!path.exists() && !job().begun().is(&path));
    }

    /// An ImageVolume that was made anew from its copy shows the scrub that its forerunner did: its image has a claim's data since.
    #[test]
    fn what_is_made_anew_from_a_copy_is_not_scrubbed() {
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        let (places, path) = (Arc::new(places), at("images/a.img"));
        let uid = "0b5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11";
        fs::create_dir(&places.images).expect("is made");
        for (status, of) in [
            (json!({}), "8f14e45f-ceea-467f-a9d4-1c3e5f6a7b8c"),
            (json!({"scrubbed": 1, "conditions": [{"type": "Scrubbed", "status": "False"}]}), "before"),
        ] {
            fs::write(&path, "a claim's").expect("is written");
            let object = Object(json!({
                "metadata": {
                    "name": "a", "namespace": "conductor-system", "uid": uid,
                    "annotations": {SCRUB_ASKED: format!("1 {of}")},
                },
                "spec": {"size": "16Mi", "scrub": 1}, "status": status,
            }));
            let spec = object.spec().expect("is read");
            let job = Job { places: places.clone(), ledger: Arc::default(), object, spec };
            // it is accepted as its own
            job.begun().note(&places.home, &path).expect("is noted");
            let why = job.run().err().expect("no file system is in it");
            assert_eq!(why.reason, "NotOurs", "{why}");
            assert_eq!(fs::read_to_string(&path).expect("is there"), "a claim's");
        }
    }

    #[test]
    fn what_was_taken_from_the_disk_for_a_volume_is_there_after_a_scrub_too() {
        if crate::host::find("mkfs.ext4").is_none() {
            println!("skipped: mkfs.ext4 is not installed");
            return;
        }
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        let (places, path) = (Arc::new(places), at("images/a.img"));
        fs::create_dir(&places.images).expect("is made");
        let blocks = || fs::metadata(&path).expect("is there").blocks() * 512;
        for (method, preallocate) in [("discard", true), ("zero", true), ("shred", true), ("discard", false)] {
            let object = Object(json!({
                "metadata": {"name": "a", "namespace": "conductor-system", "uid": "0b5c3f6e-2f7d-4f43-9d4b-0d0c5b7f9a11"},
                "spec": {"size": "16Mi", "scrub": 1, "scrubMethod": method, "preallocate": preallocate},
                "status": {"readySince": "2026-01-01T00:00:00Z", "capacity": {"storage": "16Mi"}},
            }));
            let spec = object.spec().expect("is read");
            let job = Job { places: places.clone(), ledger: Arc::default(), object, spec };
            job.wanted(&path, 16 << 20).expect("can be").make().expect("is made");
            job.scrub(&path, &at("mounts/a")).expect("is scrubbed");
            assert_eq!(blocks() >= 16 << 20, preallocate, "{method}: {}", blocks());
            // and what its user gives back (fstrim) is taken again
            scrub::image(&path, Method::Discard).expect("can be");
            assert_eq!(job.grow(&path, &at("mounts/a"), 16 << 20, &[]).expect("can be"), None);
            assert_eq!(blocks() >= 16 << 20, preallocate, "{method}: {}", blocks());
            fs::remove_file(&path).expect("is there");
        }
    }

    #[test]
    fn what_was_never_of_use_is_removed_whatever_its_spec_says() {
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        let places = Arc::new(places);
        fs::write(at("file"), "").expect("is written");
        let check = |directory: &str, ready: Option<&str>, fine: bool| {
            let object = Object(json!({
                "metadata": {"name": "a", "namespace": "conductor-system", "uid": "u"},
                "spec": {"size": "16Mi", "directory": directory},
                "status": {"readySince": ready},
            }));
            let spec = object.spec().expect("is read");
            let removed = Job { places: places.clone(), ledger: Arc::default(), object, spec }.remove();
            assert_eq!(removed.is_ok(), fine, "{directory}: {removed:?}");
        };
        check("relative", None, true);
        check("/srv/../etc", None, true);
        check(&at("file").display().to_string(), None, true);
        check(&format!("/{}", "long".repeat(100)), None, true);
        check(&at("missing").display().to_string(), None, true);
        // what may hold data is looked for
        check("relative", Some("2026-01-01T00:00:00Z"), false);
    }
}
