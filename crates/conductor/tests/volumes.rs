//! Real volumes behind claims: files with file systems in them, mounted, and directories.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::JSON;
use common::world::{World, condition, has, may_mount, ready, says, soon};
use conductor_volumes::mounts;
use rustix::io::Errno;
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const IMAGES: &str = "/apis/volume.local.conductor.io/v1alpha1/namespaces/conductor-system/imagevolumes";
const DIRECTORIES: &str = "/apis/volume.local.conductor.io/v1alpha1/namespaces/conductor-system/directoryvolumes";
/// What is written into every volume, and must be nowhere after a scrub.
const PATTERN: &[u8] = b"the customers' secret, which nobody else may see";

fn claim(world: &World, name: &str, class: &str, size: &str) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
        },
    });
    world.create(CLAIMS, &claim);
}

/// The PersistentVolume of a bound claim.
fn volume(world: &World, claim: &str) -> Value {
    let bound = world.until(&format!("{CLAIMS}/{claim}"), "bound", |c| c["status"]["phase"] == "Bound");
    let name = bound["spec"]["volumeName"].as_str().expect("is named");
    world.until(&format!("{VOLUMES}/{name}"), "bound", |v| v["status"]["phase"] == "Bound")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("has a name")
}

/// Where a volume's files are.
fn place(volume: &Value) -> PathBuf {
    PathBuf::from(volume["spec"]["local"]["path"].as_str().expect("is local"))
}

fn class(world: &World, name: &str, file_system: &str, method: &str) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {"conductor.io/reclaim-policy": "Recycle"}},
        "provisioner": "volume.conductor.io", "reclaimPolicy": "Retain", "allowVolumeExpansion": true,
        "parameters": {
            "template": "image-volume", "fileSystem": file_system, "preallocate": "false", "scrubMethod": method,
        },
    });
    world.create(CLASSES, &class);
}

/// Writes until there is no more room; how many bytes that took.
fn fill(file: &Path) -> u64 {
    let mut file = File::create(file).expect("is made");
    let block: Vec<u8> = PATTERN.iter().copied().cycle().take(1 << 20).collect();
    let mut written = 0;
    loop {
        match file.write(&block) {
            Ok(count) => written += count as u64,
            Err(error) => {
                assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
                return written;
            }
        }
        assert!(written < 4 << 30, "nothing limits it");
    }
}

/// How often the pattern is in a file.
fn traces(path: &Path) -> usize {
    let mut content = Vec::new();
    File::open(path).expect("is there").read_to_end(&mut content).expect("is read");
    let first = PATTERN[0];
    let starts = content.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.filter(|(at, _)| content[*at..].starts_with(PATTERN)).count()
}

/// One volume's life with two claims.
fn lives(file_system: &str, method: &str, mebibytes: u64) {
    let mut world = World::new();
    class(&world, "pool", file_system, method);
    claim(&world, "files", "pool", &format!("{mebibytes}Mi"));
    let first = volume(&world, "files");
    let at = place(&first);
    let image = world.until(&format!("{IMAGES}/{}", name(&first)), "ready", ready);
    let file = PathBuf::from(image["status"]["image"]["path"].as_str().expect("says where"));

    // a hard limit, whatever the disk under it holds
    let held = fill(&at.join("all"));
    assert!(held <= mebibytes << 20, "{held}");
    assert!(held > (mebibytes << 20) / 2, "{held}");
    assert!(traces(&file) > 0 || file_system == "xfs", "the pattern is in the image");

    // Conductor is not needed to use it, and finds it again
    world.kill_conductor();
    fs::remove_file(at.join("all")).expect("may");
    fs::write(at.join("kept"), PATTERN).expect("may");
    let device = mounts::at(&at).expect("is read").expect("is mounted").device;
    world.start_conductor();
    world.poke(&format!("{IMAGES}/{}", name(&first)));

    // it grows with its claim, and keeps what is in it
    let more = format!("{}Mi", mebibytes * 2);
    world.patch(&format!("{CLAIMS}/files"), json!({"spec": {"resources": {"requests": {"storage": more}}}}));
    world.until(&format!("{CLAIMS}/files"), "grown", |c| c["status"]["capacity"]["storage"] == *more);
    assert_eq!(fs::read(at.join("kept")).expect("is there"), PATTERN);
    assert!(fill(&at.join("all")) > mebibytes << 20, "there is more room");
    if file_system == "xfs" {
        assert_eq!(mounts::at(&at).expect("is read").expect("is mounted").device, device, "it grew while in use");
    }

    // released: scrubbed and verified, and only then for others
    world.delete_now(&format!("{CLAIMS}/files"));
    let volumes = format!("{VOLUMES}/{}", name(&first));
    world.until(&volumes, "available", |v| v["status"]["phase"] == "Available");
    let scrubbed = world.get(&format!("{IMAGES}/{}", name(&first))).expect("is there");
    assert_eq!(condition(&scrubbed, "Scrubbed")["status"], "True", "{scrubbed}");
    assert_eq!(scrubbed["metadata"]["uid"], image["metadata"]["uid"], "it is the same volume");
    assert_eq!(traces(&file), 0, "nothing of it is left in the image");
    claim(&world, "other", "pool", &more);
    let second = volume(&world, "other");
    assert_eq!(name(&second), name(&first), "it is used again");
    let found: Vec<_> = fs::read_dir(&at).expect("is there").flatten().map(|e| e.file_name()).collect();
    assert!(found.iter().all(|name| name == "lost+found"), "{found:?}");
    fs::write(at.join("new"), "mine").expect("may");
    world.audit_is_clean();
}

#[test]
fn an_ext4_volume_is_limited_grows_and_is_discarded_before_the_next_claim() {
    if may_mount("ext4, discard") {
        lives("ext4", "discard", 24);
    }
}

#[test]
fn an_ext4_volume_is_overwritten_with_zeros() {
    if may_mount("ext4, zero") {
        lives("ext4", "zero", 24);
    }
}

#[test]
fn an_xfs_volume_grows_in_use_and_is_shredded() {
    if may_mount("xfs, shred") {
        lives("xfs", "shred", 300);
    }
}

#[test]
fn a_volume_that_is_in_use_is_not_scrubbed_and_says_who_uses_it() {
    if !may_mount("a volume in use") {
        return;
    }
    let world = World::new();
    class(&world, "pool", "ext4", "discard");
    claim(&world, "files", "pool", "8Mi");
    let volume = volume(&world, "files");
    let (at, path) = (place(&volume), format!("{IMAGES}/{}", name(&volume)));
    fs::write(at.join("kept"), PATTERN).expect("may");
    let open = File::open(at.join("kept")).expect("is there");
    world.delete_now(&format!("{CLAIMS}/files"));
    let failed = world.until(&path, "not scrubbed", |i| condition(i, "Scrubbed")["status"] == "False");
    let why = &condition(&failed, "Scrubbed")["message"];
    assert!(says(why, "in use") && says(why, &std::process::id().to_string()), "{why}");
    let shown = world.get(&format!("{VOLUMES}/{}", name(&volume))).expect("is there");
    assert_ne!(shown["status"]["phase"], "Available", "{shown}");
    assert_eq!(fs::read(at.join("kept")).expect("is there"), PATTERN);
    // as soon as it is let go of, it is scrubbed
    drop(open);
    world.poke(&path);
    world.until(&format!("{VOLUMES}/{}", name(&volume)), "available", |v| v["status"]["phase"] == "Available");
    assert!(!at.join("kept").exists());
}

#[test]
fn what_someone_unmounts_is_mounted_again_and_what_someone_deletes_is_lost_and_never_replaced() {
    if !may_mount("lost images") {
        return;
    }
    let mut world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    claim(&world, "files", "silver", "8Mi");
    let volume = volume(&world, "files");
    let (at, path) = (place(&volume), format!("{IMAGES}/{}", name(&volume)));
    fs::write(at.join("kept"), PATTERN).expect("may");
    let image = world.get(&path).expect("is there");
    let file = PathBuf::from(image["status"]["image"]["path"].as_str().expect("says where"));

    // drift, and noticed: nothing is looked at because some time went by
    let unmount = || rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).expect("may");
    unmount();
    soon("mounted again", || at.join("kept").exists().then_some(()));
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=files";
    let told = || world.list(events).iter().any(|e| e["reason"] == "MountedAgain").then_some(());
    soon("an Event", told);
    // nobody but root writes where it is not
    world.kill_conductor();
    unmount();
    assert_eq!(fs::metadata(&at).expect("is there").permissions().mode() & 0o777, 0);
    world.start_conductor();
    soon("mounted again", || at.join("kept").exists().then_some(()));
    world.until(&path, "ready", ready);

    // the file goes while it is mounted: what is in it can still be copied away, and it is said where
    let away = file.with_extension("away");
    fs::rename(&file, &away).expect("may");
    fs::copy(&away, file.with_extension("backup")).expect("may");
    fs::remove_file(&away).expect("may");
    let lost = world.until(&path, "lost", |i| condition(i, "Ready")["reason"] == "Lost");
    assert!(says(&condition(&lost, "Ready")["message"], &at.display().to_string()), "{lost}");
    assert_eq!(fs::read(at.join("kept")).expect("is there"), PATTERN);
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("image"), "{said}");
    let claimed = world.until(&format!("{CLAIMS}/files"), "lost", |c| c["status"]["phase"] == "Lost");
    assert!(says(&condition(&claimed, "Bound")["message"], "restore"), "{claimed}");
    let told =
        || world.list(events).iter().any(|e| e["type"] == "Warning" && says(&e["message"], "restore")).then_some(());
    soon("an Event", told);

    // then it is unmounted, as by a restart of the machine: still no empty one in its place
    mounts::unmount(&at).expect("may");
    world.poke(&path);
    world.until(&path, "lost", |i| says(&condition(i, "Ready")["message"], "backup"));
    assert!(!file.exists() && !at.exists(), "nothing is made in its place");

    // a backup under its name heals it
    fs::rename(file.with_extension("backup"), &file).expect("may");
    world.until(&path, "healed", ready);
    world.until(&format!("{CLAIMS}/files"), "healed", |c| c["status"]["phase"] == "Bound");
    assert_eq!(fs::read(at.join("kept")).expect("is there"), PATTERN);

    // one that is cut short is not made long again with zeros in it
    let whole = fs::read(&file).expect("is there");
    let cut = |length: usize| {
        fs::OpenOptions::new().write(true).open(&file).and_then(|f| f.set_len(length as u64)).expect("may")
    };
    mounts::unmount(&at).expect("may");
    cut(whole.len() / 2);
    world.poke(&path);
    world.until(&path, "lost", |i| says(&condition(i, "Ready")["message"], "cut short"));
    assert_eq!(fs::metadata(&file).expect("is there").len(), whole.len() as u64 / 2);
    fs::write(&file, &whole).expect("may");
    world.poke(&path);
    world.until(&path, "healed", ready);

    // who deletes it under its claim is told to wait, and it is looked after for as long as it stays
    world.delete(&path);
    world.until(&path, "held", |i| ready(i) && condition(i, "Removable")["status"] == "False");
    unmount();
    soon("mounted again", || at.join("kept").exists().then_some(()));
    world.delete_now(&format!("{CLAIMS}/files"));
    world.gone(&path);
    assert!(!file.exists() && !at.exists(), "nothing is left");
    world.audit_is_clean();
}

#[test]
fn a_directory_that_an_administrator_declares_is_claimed_kept_and_emptied_only_when_told() {
    let world = World::new();
    let media = world.data.with_file_name("media");
    let declare = |name: &str, path: &Path, policy: &str| {
        let volume = json!({
            "apiVersion": "volume.local.conductor.io/v1alpha1", "kind": "DirectoryVolume", "metadata": {"name": name},
            "spec": {"path": path, "size": "1Gi", "storageClassName": name, "reclaimPolicy": policy},
        });
        world.create(DIRECTORIES, &volume);
    };
    // what says no place is refused before it is there
    for (list, kind, field) in [(DIRECTORIES, "DirectoryVolume", "path"), (IMAGES, "ImageVolume", "directory")] {
        for place in ["relative", "/", "//", "/srv/../etc", "/srv/."] {
            let volume = json!({
                "apiVersion": "volume.local.conductor.io/v1alpha1", "kind": kind, "metadata": {"name": "wrong"},
                "spec": {field: place, "size": "16Mi"},
            });
            let (code, said) =
                soon("known", || Some(world.request("POST", list, Some((JSON, &volume)))).filter(|a| a.0 != 404));
            assert!(code == 422 && says(&said["message"], "say an absolute path"), "{place}: {code} {said}");
        }
    }
    // what Conductor keeps, and what the machine stands on, is nobody's volume
    for (name, path) in
        [("own", world.data.as_path()), ("keys", &world.data.join("pki")), ("machine", Path::new("/etc"))]
    {
        declare(name, path, "Recycle");
        let path = format!("{DIRECTORIES}/{name}");
        let refused = world.until(&path, "refused", |d| !condition(d, "Ready").is_null());
        assert_eq!(condition(&refused, "Ready")["reason"], "Overlaps", "{refused}");
        world.delete_now(&path);
    }
    // what is not there is not made
    declare("kept", &media, "Retain");
    let path = format!("{DIRECTORIES}/kept");
    world.until(&path, "missing", |d| condition(d, "Ready")["reason"] == "Missing");
    assert!(!media.exists());
    fs::create_dir(&media).expect("may");
    fs::write(media.join("film"), "old").expect("may");
    claim(&world, "media", "kept", "1Gi");
    let volume_of = volume(&world, "media");
    assert_eq!(place(&volume_of), media);
    assert_eq!(fs::read_to_string(place(&volume_of).join("film")).expect("is there"), "old");

    // gone: said, and not made anew
    fs::rename(&media, media.with_extension("away")).expect("may");
    world.poke(&path);
    world.until(&path, "lost", |d| condition(d, "Ready")["reason"] == "Lost");
    assert!(!media.exists());
    fs::rename(media.with_extension("away"), &media).expect("may");
    world.poke(&path);
    world.until(&path, "healed", ready);

    // Retain keeps everything, and nobody else gets it
    world.delete_now(&format!("{CLAIMS}/media"));
    world.until(&format!("{VOLUMES}/kept"), "released", |v| v["status"]["phase"] == "Released");
    assert!(media.join("film").exists());

    // Recycle empties it, and nothing beside it
    let scratch = world.data.with_file_name("scratch");
    fs::create_dir_all(scratch.join("deep/deeper")).expect("may");
    fs::write(scratch.join("deep/deeper/file"), PATTERN).expect("may");
    std::os::unix::fs::symlink(&media, scratch.join("link")).expect("may");
    declare("scratch", &scratch, "Recycle");
    claim(&world, "scratch", "scratch", "1Gi");
    volume(&world, "scratch");
    world.delete_now(&format!("{CLAIMS}/scratch"));
    world.until(&format!("{VOLUMES}/scratch"), "available", |v| v["status"]["phase"] == "Available");
    assert_eq!(fs::read_dir(&scratch).expect("stays").count(), 0);
    assert!(media.join("film").exists(), "links are not followed");
    world.audit_is_clean();
}

#[test]
fn a_claim_that_names_no_class_gets_a_volume_at_once() {
    let world = World::new();
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "files"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
    });
    // the default class is there soon after the start
    soon("a default class", || (world.list(CLASSES).len() >= 3).then_some(()));
    world.create(CLAIMS, &claim);
    let at = place(&volume(&world, "files"));
    fs::write(at.join("file"), "data").expect("may");
    let said = world.conductor(&["connect", "pvc/files", "--", "-c", "cat file"]);
    assert_eq!(said, "data", "a shell in the volume");
    let node = world.list("/api/v1/nodes");
    assert_eq!(node.len(), 1, "this machine is a Node: {node:?}");
    world.delete_now(&format!("{CLAIMS}/files"));
    soon("removed", || (!at.exists()).then_some(()));
    world.audit_is_clean();
}

/// A file system that has shut itself is said to, by who uses it, and is mounted again when nobody does.
fn recovers(file_system: &str, mebibytes: u64) {
    let world = World::new();
    class(&world, "pool", file_system, "discard");
    claim(&world, "files", "pool", &format!("{mebibytes}Mi"));
    let volume = volume(&world, "files");
    let (at, path) = (place(&volume), format!("{IMAGES}/{}", name(&volume)));
    fs::write(at.join("kept"), PATTERN).expect("may");
    rustix::fs::sync();
    let open = File::open(at.join("kept")).expect("may");
    let shut = Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&at).status().expect("runs");
    assert!(shut.success() && fs::write(at.join("more"), PATTERN).is_err(), "it is shut");
    world.poke(&path);
    let said = world.until(&path, "said", |i| condition(i, "Ready")["reason"] == "FileSystemError");
    assert!(says(&condition(&said, "Ready")["message"], &format!("pid {}", std::process::id())), "{said}");
    let (fine, found) = world.audit();
    assert!(!fine && found.contains("volume-takes-writes"), "{found}");
    drop(open);
    world.until(&path, "ready", ready);
    assert_eq!(fs::read(at.join("kept")).expect("is there"), PATTERN);
    fs::write(at.join("more"), PATTERN).expect("may again");
    world.audit_is_clean();
}

#[test]
fn a_file_system_that_has_shut_itself_is_mounted_again() {
    if may_mount("file systems with errors") && has("file systems with errors", &[("xfs_io", "xfsprogs")]) {
        recovers("ext4", 24);
        recovers("xfs", 300);
    }
}

#[test]
fn a_class_says_in_which_directory_its_images_are() {
    if !may_mount("images elsewhere") {
        return;
    }
    let world = World::new();
    let disk = world.data.with_file_name("disk");
    fs::create_dir(&disk).expect("may");
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "elsewhere"},
        "provisioner": "volume.conductor.io", "reclaimPolicy": "Delete",
        "parameters": {
            "template": "image-volume", "fileSystem": "ext4", "preallocate": "false", "scrubMethod": "discard", "directory": disk,
        },
    });
    world.create(CLASSES, &class);
    claim(&world, "files", "elsewhere", "16Mi");
    let path = format!("{IMAGES}/{}", name(&volume(&world, "files")));
    let image = world.until(&path, "ready", ready);
    assert!(says(&image["status"]["image"]["path"], &disk.display().to_string()), "{image}");
    world.delete_now(&format!("{CLAIMS}/files"));
    world.gone(&path);
    assert_eq!(fs::read_dir(&disk).expect("is there").count(), 0);
}

/// Conductor is killed while a volume grows, and less is asked for by then.
#[test]
fn what_has_begun_to_grow_is_not_cut() {
    if !may_mount("interrupted growth") {
        return;
    }
    let mut world = World::new();
    let image = json!({
        "apiVersion": "volume.local.conductor.io/v1alpha1", "kind": "ImageVolume", "metadata": {"name": "grown"},
        "spec": {"size": "24Mi", "fileSystem": "ext4", "preallocate": true},
    });
    world.create(IMAGES, &image);
    let path = format!("{IMAGES}/grown");
    let made = world.until(&path, "ready", ready);
    let file = PathBuf::from(made["status"]["image"]["path"].as_str().expect("says where"));
    let at = PathBuf::from(made["status"]["volume"]["local"]["path"].as_str().expect("is local"));
    world.kill_conductor();
    File::options().write(true).open(&file).and_then(|file| file.set_len(64 << 20)).expect("may");
    world.start_conductor();
    world.poke(&path);
    let grown = |i: &Value| ready(i) && i["status"]["capacity"]["storage"] == "64Mi";
    world.until(&path, "grown to its end", grown);
    assert_eq!(fs::metadata(&file).expect("is there").len(), 64 << 20);
    assert!(fill(&at.join("all")) > 40 << 20, "what is said to be there is");
    let said = world.until(&path, "saying so", |i| says(&condition(i, "Resized")["message"], "cannot shrink"));
    assert!(ready(&said), "{said}");
}
