//! Whether images, mounts and loop devices are those of the ImageVolumes that there are.

use std::fs;
use std::io;
use std::path::Path;

use conductor_local::{Finding, Object};

use super::{Places, is_ready};
use crate::spec::ImageSpec;
use crate::{file_name, mounts};

/// Every image, mount and loop device below our directories has its ImageVolume, and the other way round.
pub(super) fn audit(places: &Places, objects: &[Object]) -> io::Result<Vec<Finding>> {
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
    for (object, _) in &images {
        let asked = object.spec::<ImageSpec>().ok();
        let asked = asked.as_ref().and_then(|spec| spec.mount_options().ok()).unwrap_or_default();
        if let Some(fault) = mounts::at(&places.point(object))?.and_then(|mount| mount.fault(asked)) {
            let message = format!("its file system had an error and is shut ({fault}): stop what uses it");
            find(format!("ImageVolume {}", object.name()), "volume-takes-writes", message);
        }
    }
    for (object, path) in images.iter().filter(|(object, _)| is_ready(object) && !object.is_deleting()) {
        let name = format!("ImageVolume {}", object.name());
        // nothing is mounted while it is scrubbed
        if !path.exists() {
            find(name, "volume-has-image", format!("its image {} is gone: restore it", path.display()));
        } else if object.scrub_due().is_none() && mounts::at(&places.point(object))?.is_none() {
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

#[cfg(test)]
mod tests {
    use conductor_claims::lifecycle::SCRUB_ASKED;
    use conductor_local::Home;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_need_not_be_mounted_while_it_is_scrubbed() {
        let root = tempfile::tempdir().expect("is made");
        let at = |name: &str| root.path().join(name);
        let places =
            Places { home: Home::at(root.path()).expect("is made"), images: at("images"), mounts: at("mounts") };
        fs::create_dir(&places.images).expect("is made");
        fs::write(places.images.join("a.img"), "").expect("is written");
        let check = |asked: &str, scrub: i64, scrubbed: i64, expected: &[&str]| {
            let object = Object(json!({
                "metadata": {"name": "a", "namespace": "conductor-system", "uid": "u", "annotations": {SCRUB_ASKED: asked}},
                "spec": {"size": "16Mi", "scrub": scrub},
                "status": {"scrubbed": scrubbed, "conditions": [{"type": "Ready", "status": "True"}]},
            }));
            let found = audit(&places, &[object]).expect("is looked at");
            let found: Vec<&str> = found.iter().map(|f| f.invariant.as_str()).collect();
            assert_eq!(found, expected, "scrub {scrub} after {scrubbed}, asked {asked}");
        };
        check("", 0, 0, &["volume-is-mounted"]);
        check("", 1, 0, &[]);
        check("1 u", 1, 0, &[]);
        check("1 u", 1, 1, &["volume-is-mounted"]);
        // a copy of what was asked
        check("1 before", 1, 0, &["volume-is-mounted"]);
    }
}
