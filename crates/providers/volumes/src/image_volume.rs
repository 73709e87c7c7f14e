//! ImageVolume: a file with a file system in it, mounted; its size is a hard limit.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conductor_claims::lifecycle::Condition;
use conductor_local::{
    BoxFuture, Files, Finding, Home, Kind, Lack, Ledger, Object, Partial, Report, Scene, Scrubbed, Stock, Trouble, Wake,
};
use conductor_machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::begun::Begun;
use crate::image::{self, FileSystem, ImageError, Wanted};
use crate::mounts::{self, MountError, UnmountError};
use crate::spec::{ImageSpec, amount};
use crate::{API_VERSION, file_name, lacks, node, scrub, shown};

/// How long until something that was in the way is tried again.
const SOON: Duration = Duration::from_secs(10);

/// The kind. See the module.
pub struct ImageVolumes {
    client: kube::Client,
    places: Arc<Places>,
    ledger: Arc<Ledger>,
    files: Files,
    busy: crate::busy::Busy,
    /// Whose is mounted where.
    mounted: Arc<Mutex<HashMap<PathBuf, String>>>,
}

/// Where images and mount points are.
struct Places {
    home: Home,
    images: PathBuf,
    mounts: PathBuf,
}

impl Places {
    fn image(&self, object: &Object, spec: &ImageSpec) -> Result<PathBuf, Trouble> {
        let directory = spec.directory()?.unwrap_or_else(|| self.images.clone());
        Ok(directory.join(format!("{}.img", file_name(object))))
    }

    fn point(&self, object: &Object) -> PathBuf {
        self.mounts.join(file_name(object))
    }
}

impl ImageVolumes {
    /// Below a provider's home.
    pub fn new(scene: &Scene) -> ImageVolumes {
        let at = |name: &str| scene.home.path().join(name);
        let places = Places { home: scene.home.clone(), images: at("images"), mounts: at("mounts") };
        let (client, ledger, files) = (scene.client.clone(), scene.ledger.clone(), scene.files.clone());
        let mounted: Arc<Mutex<HashMap<PathBuf, String>>> = Arc::default();
        let (ours, wake) = (mounted.clone(), scene.wake.clone());
        std::thread::spawn(move || watch_mounts(&ours, &wake));
        ImageVolumes { client, places: Arc::new(places), ledger, files, busy: Default::default(), mounted }
    }
}

/// Has a volume looked at as soon as somebody has unmounted it.
fn watch_mounts(ours: &Mutex<HashMap<PathBuf, String>>, wake: &Wake) {
    let changed = |there: &[mounts::Mount]| {
        let there: HashSet<&PathBuf> = there.iter().map(|mount| &mount.point).collect();
        let ours = ours.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ours.iter().filter(|(point, _)| !there.contains(*point)).for_each(|(_, uid)| wake(uid));
    };
    let Err(error) = mounts::watch(changed);
    tracing::warn!(%error, "what is unmounted is noticed late: the mounts cannot be watched");
}

/// One look at an object: all that the blocking part needs.
struct Job {
    places: Arc<Places>,
    ledger: Arc<Ledger>,
    object: Object,
    spec: ImageSpec,
}

/// What the blocking part found and did.
struct Done {
    size: u64,
    device: PathBuf,
    point: PathBuf,
    used: u64,
    image: PathBuf,
    /// Whether somebody else had unmounted it.
    again: bool,
    /// Why it could not be grown.
    resize: Option<String>,
    scrubbed: Option<Scrubbed>,
}

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

fn scrub_wanted(object: &Object, spec: &ImageSpec) -> Option<i64> {
    let number = spec.scrub;
    let done = object.status("scrubbed").as_i64().unwrap_or(0);
    let conditions = object.status("conditions").as_array().into_iter().flatten();
    let failed = conditions.into_iter().any(|c| c["type"] == "Scrubbed" && c["status"] == "False");
    (number > 0 && (number != done || failed)).then_some(number)
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

    /// The scrub that is asked for and was not done, or not successfully.
    fn scrub_wanted(&self) -> Option<i64> {
        scrub_wanted(&self.object, &self.spec)
    }

    fn run(self) -> Result<Done, Trouble> {
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
        let scrubbed = self.scrub_wanted().map(|number| Scrubbed { number, outcome: self.scrub(&path, &point) });
        if let Some(Scrubbed { outcome: Err(why), .. }) = &scrubbed {
            // not to be used, nor to be shown as usable: someone else's data may be in it
            let length = fs::metadata(&path).map(|meta| meta.len()).unwrap_or(0);
            return Ok(Done {
                size: length,
                device: PathBuf::new(),
                point,
                used: 0,
                image: path,
                again: false,
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
        let mounted = self.mount(&path, &point, file_system, options)?;
        let again = mounted && scrubbed.is_none() && is_ready(&self.object);
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
                Some(said) if self.object.was_ready() && self.scrub_wanted().is_none() => Err(lost(format!(
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

    /// Mounts it, unless it is mounted; whether it was not.
    fn mount(&self, path: &Path, point: &Path, kind: FileSystem, options: &[String]) -> Result<bool, Trouble> {
        if mounts::at(point).map_err(Trouble::io("read the mounts"))?.is_some() {
            return Ok(false);
        }
        mounts::mount_image(path, point, kind.name(), options).map(|()| true).map_err(|error| match error {
            MountError::NotEmpty(..) => Trouble::new("MountPointNotEmpty", error.to_string()),
            other => Trouble::new("MountFailed", other.to_string()),
        })
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
            return Ok(Some(format!(
                "it has {} and cannot shrink to {}: ask for what it has, or claim a smaller one",
                amount(known),
                amount(size)
            )));
        }
        if known == size {
            return Ok(None);
        }
        if let Err(refused) = self.promise(path, size) {
            return Ok(Some(refused.message));
        }
        match self.wanted(path, size)?.grow(point, options) {
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

    fn remove(self) -> Result<(), Trouble> {
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

/// Whether nothing is, or can be, where something was looked for.
fn is_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}

impl ImageVolumes {
    fn job(&self, object: &Object, spec: ImageSpec) -> Job {
        Job { places: self.places.clone(), ledger: self.ledger.clone(), object: object.clone(), spec }
    }

    async fn look(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: ImageSpec = object.spec()?;
        let missing = lacks::for_images(spec.file_system()?);
        if !missing.is_empty() && !object.was_ready() {
            return Err(Trouble::new("Unavailable", format!("this machine lacks {}", missing.join("; "))));
        }
        let job = self.job(object, spec.clone());
        let alone = self.busy.alone(object.uid()).await;
        let done = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            job.run()
        });
        let done = done.await.map_err(|e| Trouble::new("Internal", e.to_string()))??;
        let mut report = Report { scrubbed: done.scrubbed.clone(), ..Report::default() };
        if let Some(Scrubbed { outcome: Err(why), .. }) = &done.scrubbed {
            report.not_ready = Some(Trouble::new("ScrubFailed", why.clone()));
            report.again = Some(SOON);
            return Ok(report);
        }
        let path = done.point.display().to_string();
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner).insert(done.point.clone(), object.uid().to_owned());
        self.files.keep(object.uid(), &done.image, None);
        if done.again {
            let message = format!("{path} was unmounted by someone else and is mounted again: leave that to Conductor");
            shown::warn(&self.client, object, "MountedAgain", &message).await;
        }
        let source = shown::source(&path, &node::name());
        let capacity = amount(done.size);
        report.message = format!("mounted at {path}");
        report.capacity = Map::from_iter([("storage".to_owned(), json!(capacity))]);
        report.status = Map::from_iter([
            ("volume".to_owned(), source.clone()),
            (
                "image".to_owned(),
                json!({
                    "path": done.image.display().to_string(),
                    "device": done.device.display().to_string(),
                    "allocated": amount(done.used),
                }),
            ),
        ]);
        match done.resize {
            Some(why) => {
                report.conditions.push(Condition::new("Resized", false, "Waiting", why));
                report.again = Some(SOON);
            }
            None if !object.status("capacity").is_null() => {
                report.conditions.push(Condition::new("Resized", true, "Resized", "it has what is asked for"));
            }
            None => {}
        }
        shown::show(&self.client, object, &spec.shown, &source, &capacity).await?;
        Ok(report)
    }
}

impl Kind for ImageVolumes {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        "ImageVolume"
    }

    fn plural(&self) -> &'static str {
        "imagevolumes"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async {
            // one file system is enough for the kind; what a volume asks for is looked at with it
            let missing = [FileSystem::Ext4, FileSystem::Xfs].map(lacks::for_images);
            match missing.iter().any(Vec::is_empty) {
                true => Ok(()),
                // whoever lacks both may be after either
                false => Err(Lack::new("what images need", distinct(missing.concat()).join("; "))),
            }
        })
    }

    fn lacks(&self) -> Vec<Partial> {
        let mut all = Vec::new();
        for (value, file_system) in
            [(None, FileSystem::Ext4), (Some("ext4"), FileSystem::Ext4), (Some("xfs"), FileSystem::Xfs)]
        {
            let missing = lacks::for_images(file_system);
            if !missing.is_empty() {
                let what = format!("what images with {} need", file_system.name());
                all.push(Partial { field: "fileSystem", value, lack: Lack::new(what, missing.join("; ")) });
            }
        }
        all
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.look(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move {
            shown::ensure_unused(&self.client, object).await?;
            let job = self.job(object, object.spec()?);
            self.files.forget(object.uid());
            let alone = self.busy.alone(object.uid()).await;
            let removed = tokio::task::spawn_blocking(move || {
                let _alone = alone;
                job.remove()
            });
            removed.await.map_err(|e| Trouble::new("Internal", e.to_string()))??;
            self.busy.forget(object.uid());
            let uid = object.uid();
            self.mounted.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, other| other != uid);
            self.ledger.forget(object.uid());
            shown::hide(&self.client, object).await
        })
    }

    fn bounded(&self) -> Vec<(&'static str, String)> {
        let most = Stock::disk(&self.places.images).ok().and_then(|disk| disk.most());
        most.map(|most| ("size", most)).into_iter().collect()
    }

    fn promised(&self, object: &Object) -> Vec<(Stock, u64)> {
        let path = object.spec().and_then(|spec| self.places.image(object, &spec)).ok();
        let disk = path.and_then(|path| Stock::disk(path.parent()?).ok());
        disk.zip(capacity(object)).into_iter().collect()
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move { audit(&self.places, objects).map_err(Trouble::io("look at the images")) })
    }
}

fn distinct(mut all: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    all.retain(|each| seen.insert(each.clone()));
    all
}

/// How much a volume is said to have.
pub(crate) fn capacity(object: &Object) -> Option<u64> {
    let said = &object.status("capacity")["storage"];
    u64::try_from(Quantity::from_json(said).ok()?.as_i64()?).ok()
}

/// Every image, mount and loop device below our directories has its ImageVolume, and the other way round.
fn audit(places: &Places, objects: &[Object]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut find = |object: String, invariant: &str, message: String| {
        findings.push(Finding { object, invariant: invariant.to_owned(), message });
    };
    let mut images = Vec::new();
    for object in objects {
        if let Ok(spec) = object.spec::<ImageSpec>()
            && let Ok(path) = places.image(object, &spec)
        {
            images.push((object, path));
        }
    }
    let known = |path: &Path| {
        images.iter().any(|(object, image)| {
            image == path
                || path.file_name().is_some_and(|name| {
                    path.parent() == image.parent()
                        && name.to_string_lossy() == format!(".{}.img.new", file_name(object))
                })
        })
    };
    for entry in fs::read_dir(&places.images).into_iter().flatten() {
        let path = entry?.path();
        if !known(&path) {
            let message = "no ImageVolume has this image: remove it when its data is not needed".to_owned();
            find(path.display().to_string(), "image-has-volume", message);
        }
    }
    for mount in mounts::all()?.into_iter().filter(|m| m.point.starts_with(&places.mounts)) {
        if !objects.iter().any(|object| places.point(object) == mount.point) {
            let message = format!("no ImageVolume is mounted there: umount {}", mount.point.display());
            find(mount.point.display().to_string(), "mount-has-volume", message);
        }
    }
    let mounted = mounts::all()?;
    for device in mounts::loops()?.into_iter().filter(|l| l.file.starts_with(&places.images) || known(&l.file)) {
        let uses = mounted.iter().filter(|m| m.device == device.device).count();
        if uses == 0 {
            let message = format!("it shows {} and is not mounted: losetup -d it", device.file.display());
            find(device.device.display().to_string(), "loop-device-is-mounted", message);
        }
    }
    for device in mounts::loops()?.into_iter().filter(|l| is_stray(&places.images, l)) {
        let at = mounted.iter().filter(|m| m.device == device.device);
        let unmount: String = at.map(|m| format!("umount {}; ", m.point.display())).collect();
        let message = format!(
            "it shows {}, and the data directory of that was removed: {unmount}losetup -d {}",
            device.file.display(),
            device.device.display()
        );
        find(device.device.display().to_string(), "loop-device-has-data-directory", message);
    }
    for (object, path) in images.iter().filter(|(object, _)| is_ready(object) && !object.is_deleting()) {
        let name = format!("ImageVolume {}", object.name());
        // nothing is mounted while it is scrubbed
        let scrubbed = object.spec::<ImageSpec>().is_ok_and(|spec| scrub_wanted(object, &spec).is_some());
        if !path.exists() {
            find(name, "volume-has-image", format!("its image {} is gone: restore it", path.display()));
        } else if !scrubbed && mounts::at(&places.point(object))?.is_none() {
            find(name, "volume-is-mounted", "it says Ready and is not mounted".to_owned());
        }
    }
    Ok(findings)
}

/// Whether a loop device is what is left of another data directory.
fn is_stray(own: &Path, device: &mounts::Loop) -> bool {
    let images = device.file.parent().unwrap_or(&device.file);
    device.deleted
        && images != own
        && conductor_local::stray::is_gone(images)
        && conductor_local::stray::is_of(&device.file, "volumes")
}

pub(crate) fn is_ready(object: &Object) -> bool {
    let conditions = object.status("conditions").as_array();
    conditions.into_iter().flatten().any(|c: &Value| c["type"] == "Ready" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_need_not_be_mounted_while_it_is_scrubbed() {
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        fs::create_dir(&places.images).expect("is made");
        fs::write(places.images.join("a.img"), "").expect("is written");
        let check = |scrub: i64, scrubbed: i64, expected: &[&str]| {
            let object = Object(json!({
                "metadata": {"name": "a", "namespace": "conductor-system", "uid": "u"},
                "spec": {"size": "16Mi", "scrub": scrub},
                "status": {"scrubbed": scrubbed, "conditions": [{"type": "Ready", "status": "True"}]},
            }));
            let found = audit(&places, &[object]).expect("is looked at");
            let found: Vec<&str> = found.iter().map(|f| f.invariant.as_str()).collect();
            assert_eq!(found, expected, "scrub {scrub} after {scrubbed}");
        };
        check(0, 0, &["volume-is-mounted"]);
        check(1, 0, &[]);
        check(1, 1, &["volume-is-mounted"]);
    }

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
