//! Volumes on this machine, group `volume.local.conductor.io`.
//!
//! An `ImageVolume` is a file with a file system in it, mounted through a loop device: its size is a hard limit. A `DirectoryVolume` is
//! a directory, one that an administrator declares or one of our own: it needs no privilege and has no limit. Both become
//! PersistentVolumes of this machine's Node, under the implementation contract.

mod begun;
mod busy;
mod directory_volume;
pub mod host;
pub mod image;
mod image_volume;
pub mod lacks;
pub mod mounts;
mod node;
mod overlap;
pub mod scrub;
mod shown;
mod spec;
mod users;

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

use conductor_local::{Kind, Object, Provider, SYSTEM_NAMESPACE, install};
use serde_json::{Value, json};

pub use directory_volume::DirectoryVolumes;
pub use image_volume::ImageVolumes;

/// The group and version of the kinds here.
pub const API_VERSION: &str = "volume.local.conductor.io/v1alpha1";

/// The provider of both kinds.
pub fn provider() -> Result<Provider, String> {
    let definitions = install::parse(include_str!("../kinds/definitions.yaml"))?;
    let mut examples = install::parse(include_str!("../kinds/examples.yaml"))?;
    // the class for claims that name none is the best that works here without anything being installed
    let default = if lacks::for_images(image::FileSystem::Ext4).is_empty() { "silver" } else { "bronze" };
    for class in examples.iter_mut().filter(|o| o["kind"] == "StorageClass" && o["metadata"]["name"] == default) {
        class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] = json!("true");
    }
    Ok(Provider {
        name: "volumes",
        definitions,
        rules: rules(),
        examples,
        kinds: Box::new(|scene| {
            let all: Vec<Arc<dyn Kind>> =
                vec![Arc::new(ImageVolumes::new(scene)), Arc::new(DirectoryVolumes::new(scene))];
            all
        }),
    })
}

/// What it needs beyond its own kinds: to show volumes, and this machine.
fn rules() -> Vec<Value> {
    vec![
        json!({"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "create", "patch", "delete"]}),
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "create"]}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}),
        json!({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}),
    ]
}

/// The name of what is a volume's own outside. No namespace or name has an underscore.
pub(crate) fn file_name(object: &Object) -> String {
    match object.namespace() {
        SYSTEM_NAMESPACE => object.name().to_owned(),
        other => format!("{other}_{}", object.name()),
    }
}

/// Sets owner and mode of a volume's root directory, as far as they are said and differ. One that nobody has said anything about, and that
/// is as it was made, is not for everyone to look into.
pub(crate) fn permissions(path: &Path, owner: Option<(u32, u32)>, mode: Option<u32>) -> io::Result<()> {
    let root = std::fs::File::from(conductor_local::inside::open_directory(path)?);
    let meta = root.metadata()?;
    let untouched = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o7777 == 0o755;
    if let Some((user, group)) = owner.filter(|owner| *owner != (meta.uid(), meta.gid())) {
        fchown(&root, Some(user), Some(group))?;
    }
    let mode = mode.or(untouched.then_some(0o770));
    if let Some(mode) = mode.filter(|mode| *mode != meta.mode() & 0o7777) {
        root.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Now, as objects write it.
pub(crate) fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    conductor_machinery::time::Time::new(since.as_secs() as i64, 0).map(|t| t.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_can_be_read() {
        let provider = provider().expect("is read");
        let count = |kind: &str| provider.examples.iter().filter(|o| o["kind"] == kind).count();
        assert_eq!(provider.definitions.len(), 2);
        assert_eq!((count("StorageClass"), count("VolumeTemplate"), count("Manager")), (3, 2, 2));
        let default =
            |o: &&Value| o["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
        assert_eq!(provider.examples.iter().filter(default).count(), 1);
    }

    #[test]
    fn a_volume_is_not_everyones_unless_that_is_said() {
        let dir = tempfile::tempdir().expect("is made");
        let root = dir.path().join("root");
        std::fs::create_dir(&root).expect("is made");
        let set = |mode: u32| std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).expect("may");
        let check = |before: u32, said: Option<u32>, after: u32| {
            set(before);
            permissions(&root, None, said).expect("may");
            assert_eq!(std::fs::metadata(&root).expect("is there").mode() & 0o7777, after, "{before:o} {said:?}");
        };
        check(0o755, None, 0o770);
        check(0o755, Some(0o755), 0o755);
        // whoever has it has made it so
        check(0o700, None, 0o700);
        check(0o750, None, 0o750);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&root, &link).expect("links");
        permissions(&link, Some((65_534, 65_534)), Some(0o777)).expect_err("is no directory itself");
        check(0o700, None, 0o700);
    }

    #[test]
    fn names_outside_are_as_unique_as_objects() {
        let name = |namespace: &str, name: &str| {
            file_name(&Object(json!({"metadata": {"namespace": namespace, "name": name}})))
        };
        assert_eq!(name("conductor-system", "a"), "a");
        assert_eq!(name("team", "a"), "team_a");
    }
}
