//! ImageVolume: a file with a file system in it, mounted; its size is a hard limit.

mod audit;
mod job;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conductor_claims::lifecycle::Condition;
use conductor_local::{
    BoxFuture, Files, Finding, Home, Kind, Lack, Ledger, Object, Partial, Report, Scene, Scrubbed, Stock, Trouble, Wake,
};
use conductor_machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use self::audit::audit;
use self::job::Job;
use crate::image::FileSystem;
use crate::spec::{ImageSpec, amount};
use crate::{API_VERSION, file_name, lacks, mounts, node, shown};

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
        if let Some(why) = done.again {
            let message = format!("{path} is mounted again: {why}");
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

pub(crate) fn is_ready(object: &Object) -> bool {
    let conditions = object.status("conditions").as_array();
    conditions.into_iter().flatten().any(|c: &Value| c["type"] == "Ready" && c["status"] == "True")
}
