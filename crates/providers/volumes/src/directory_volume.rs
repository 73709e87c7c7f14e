//! DirectoryVolume: a directory of this machine. One that an administrator declares is never made nor removed; without a path, one of
//! our own is. Nothing limits its size; what it holds is measured.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conductor_claims::lifecycle::Condition;
use conductor_local::inside;
use conductor_local::{
    BoxFuture, Files, Finding, Home, Kind, Lack, Ledger, Object, Report, Scene, Scrubbed, Stock, Trouble,
};
use serde_json::{Map, json};

use crate::image_volume::{capacity, is_ready};
use crate::spec::{DirectorySpec, amount};
use crate::{API_VERSION, file_name, node, overlap, scrub, shown};

/// How long until a directory that is not there is looked for again.
const ABSENT: Duration = Duration::from_secs(2);

/// The kind. See the module.
pub struct DirectoryVolumes {
    client: kube::Client,
    provider: Home,
    home: PathBuf,
    ledger: Arc<Ledger>,
    files: Files,
    busy: crate::busy::Busy,
}

impl DirectoryVolumes {
    /// Below a provider's home.
    pub fn new(scene: &Scene) -> DirectoryVolumes {
        let home = scene.home.path().join("directories");
        let (client, provider, ledger) = (scene.client.clone(), scene.home.clone(), scene.ledger.clone());
        DirectoryVolumes { client, provider, home, ledger, files: scene.files.clone(), busy: Default::default() }
    }
}

/// Sees to it that the directory is there; makes only one of our own, and that only once. Whether it is new.
fn ensure(path: &Path, declared: bool, was_ready: bool) -> Result<bool, Trouble> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(false),
        Ok(_) => Err(Trouble::new("NotADirectory", format!("{} is no directory: correct spec.path", path.display()))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::io("look at the directory")(error)),
        Err(_) if was_ready => Err(Trouble::new(
            "Lost",
            format!("the directory {} is gone, and with it the data: restore it, or delete the claim", path.display()),
        )),
        Err(_) if declared => Err(Trouble::new(
            "Missing",
            format!("there is no directory {}: make it, or correct spec.path", path.display()),
        )),
        Err(_) => {
            // its mode is set with its owner
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(Trouble::io("make the directory"))?;
            Ok(true)
        }
    }
}

/// Whether its directory is one of our own. For what is refused and was never of use nothing was made.
fn is_own(object: &Object) -> Result<bool, Trouble> {
    match object.spec::<DirectorySpec>().and_then(|spec| spec.path()) {
        Err(_) if !object.was_ready() => Ok(false),
        declared => Ok(declared?.is_none()),
    }
}

impl DirectoryVolumes {
    async fn look(&self, object: &Object) -> Result<Report, Trouble> {
        let spec: DirectorySpec = object.spec()?;
        let size = spec.size()?;
        let declared = spec.path()?;
        let path = declared.clone().unwrap_or_else(|| self.home.join(file_name(object)));
        let (owner, mode) = spec.shown.permissions()?;
        let method = spec.method()?;
        let wanted = object.scrub_due();
        if declared.is_none() {
            self.provider.make("directories", None).map_err(Trouble::io("make a directory"))?;
        }
        let shared = match &declared {
            Some(declared) => {
                let others = overlap::others(&self.client, object, declared).await?;
                overlap::refuse(object, declared, &self.provider.kept(), &others)?;
                others.iter().find(|other| other.was_ready()).map(file_name)
            }
            None => None,
        };
        // what is declared is for whoever declares it to know
        let (size, refused) = match declared.is_none().then(|| self.promise(object, &spec, size)) {
            Some(Err(refused)) => match capacity(object).filter(|_| object.was_ready()) {
                Some(had) => (had, Some(refused)),
                None => return Err(refused),
            },
            _ => (size, None),
        };
        let (was_ready, is_declared) = (object.was_ready(), declared.is_some());
        let (alone, at) = (self.busy.alone(object.uid()).await, path.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            let new = ensure(&at, is_declared, was_ready)?;
            let scrubbed = wanted.map(|number| {
                let outcome = match &shared {
                    Some(other) => Err(format!(
                        "its directory is in part that of DirectoryVolume {other}, whose data it would take"
                    )),
                    None => scrub::directory(&at, method).map_err(|e| e.to_string()),
                };
                Scrubbed { number, outcome: outcome.map(|()| format!("{}: read back as empty", method.name())) }
            });
            if !is_declared {
                crate::permissions(&at, owner, mode.or(new.then_some(0o770)))
                    .map_err(Trouble::io("set the owner of the volume"))?;
            }
            // a declared directory can be a whole disk: whoever declares it looks after its size
            let used = (!is_declared).then(|| inside::size_of(&at));
            Ok::<_, Trouble>((scrubbed, used))
        });
        let done = done.await.map_err(|e| Trouble::new("Internal", e.to_string()))?;
        let (scrubbed, used) = match done {
            Err(absent) if absent.reason == "Missing" || absent.reason == "Lost" => {
                // whoever makes or restores it need not wait for long
                return Ok(Report::not_ready(&absent.reason, absent.message).again(ABSENT));
            }
            done => done?,
        };
        let mut report = Report { scrubbed: scrubbed.clone(), ..Report::default() };
        if let Some(Scrubbed { outcome: Err(why), .. }) = scrubbed {
            report.not_ready = Some(Trouble::new("ScrubFailed", why));
            report.again = Some(Duration::from_secs(10));
            return Ok(report);
        }
        self.files.keep(object.uid(), &path, None);
        let capacity = amount(size);
        let source = shown::source(&path.display().to_string(), &node::name());
        report.message = format!("the directory {}; nothing enforces its size", path.display());
        report.capacity = Map::from_iter([("storage".to_owned(), json!(capacity))]);
        report.status = Map::from_iter([("volume".to_owned(), source.clone())]);
        if let Some(used) = used {
            // coarse, or the status would change with every file
            let percent = (u128::from(used) * 100 / u128::from(size.max(1))).min(10_000) as u64 / 5 * 5;
            report.status.insert("usedPercent".to_owned(), json!(percent));
            if used > size {
                let message =
                    format!("holds more than the {capacity} it was made for: remove something, or claim more");
                report.conditions.push(Condition::new("WithinCapacity", false, "TooFull", message));
            } else {
                report.conditions.push(Condition::new("WithinCapacity", true, "Measured", "holds no more than it may"));
            }
        }
        match refused {
            Some(why) => {
                report.conditions.push(Condition::new("Resized", false, "Waiting", why.message));
                report.again = Some(Duration::from_secs(10));
            }
            None if !object.status("capacity").is_null() => {
                report.conditions.push(Condition::new("Resized", true, "Resized", "it has what is asked for"));
            }
            None => {}
        }
        shown::show(&self.client, object, &spec.shown, &source, &capacity).await?;
        Ok(report)
    }

    /// Has so much of the disk promised.
    fn promise(&self, object: &Object, spec: &DirectorySpec, size: u64) -> Result<(), Trouble> {
        let disk = Stock::disk(&self.home).map_err(Trouble::io("look at the disk"))?;
        self.ledger.promise(object.uid(), &disk, size, spec.shown.overcommit)
    }
}

impl Kind for DirectoryVolumes {
    fn api_version(&self) -> &'static str {
        API_VERSION
    }

    fn kind(&self) -> &'static str {
        "DirectoryVolume"
    }

    fn plural(&self) -> &'static str {
        "directoryvolumes"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async {
            if let Err(trouble) = node::register(&self.client, &crate::now()).await {
                tracing::debug!(%trouble, "this machine is not registered as a Node");
            }
            Ok(())
        })
    }

    fn reconcile<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(self.look(object))
    }

    fn remove<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move {
            shown::ensure_unused(&self.client, object).await?;
            self.files.forget(object.uid());
            if is_own(object)? {
                let (alone, path) = (self.busy.alone(object.uid()).await, self.home.join(file_name(object)));
                let removed = tokio::task::spawn_blocking(move || {
                    let _alone = alone;
                    inside::remove(&path)
                });
                let removed = removed.await.map_err(|e| Trouble::new("Internal", e.to_string()))?;
                removed.map_err(Trouble::io("remove the directory"))?;
            }
            self.busy.forget(object.uid());
            self.ledger.forget(object.uid());
            shown::hide(&self.client, object).await
        })
    }

    fn bounded(&self) -> Vec<(&'static str, String)> {
        let most = Stock::disk(&self.home).ok().and_then(|disk| disk.most());
        most.map(|most| ("size", most)).into_iter().collect()
    }

    fn promised(&self, object: &Object) -> Vec<(Stock, u64)> {
        let disk = Stock::disk(&self.home).ok().filter(|_| is_own(object).unwrap_or(false));
        disk.zip(capacity(object)).into_iter().collect()
    }

    fn audit<'a>(&'a self, objects: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async move {
            let mut findings = Vec::new();
            for entry in fs::read_dir(&self.home).into_iter().flatten().flatten() {
                let known = objects.iter().any(|object| entry.file_name().to_string_lossy() == file_name(object));
                if !known {
                    findings.push(Finding {
                        object: entry.path().display().to_string(),
                        invariant: "directory-has-volume".into(),
                        message: "no DirectoryVolume has this directory: remove it when its data is not needed".into(),
                    });
                }
            }
            for object in objects.iter().filter(|object| is_ready(object)) {
                let path = object.status("volume")["local"]["path"].as_str().unwrap_or_default();
                if !Path::new(path).is_dir() {
                    findings.push(Finding {
                        object: format!("DirectoryVolume {}", object.name()),
                        invariant: "volume-has-directory".into(),
                        message: format!("its directory {path} is gone: restore it"),
                    });
                }
            }
            Ok(findings)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_of_use_is_removed_whatever_its_path_is() {
        let check = |path: &str, ready: Option<&str>, expected: Option<bool>| {
            let object = Object(json!({"spec": {"size": "1Gi", "path": path}, "status": {"readySince": ready}}));
            assert_eq!(is_own(&object).ok(), expected, "{path} {ready:?}");
        };
        check("", None, Some(true));
        check("/srv/a", None, Some(false));
        check("/srv/../a", None, Some(false));
        check("/srv/../a", Some("2026-01-01T00:00:00Z"), None);
    }
}
