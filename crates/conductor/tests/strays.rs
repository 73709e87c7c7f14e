//! A data directory that is removed while something of it runs: the next Conductor, here or elsewhere, says what is left.

mod common;

use std::fs;
use std::process::Command;

use common::database::{CLAIMS, behind, claim, server};
use common::world::{POSTGRES, World, has, may_mount, soon};
use conductor_volumes::mounts;
use serde_json::json;

#[test]
fn what_a_removed_data_directory_leaves_is_found_here_and_elsewhere() {
    if !has("leftovers of a removed directory", POSTGRES) || !may_mount("leftovers of a removed directory") {
        return;
    }
    let mut world = World::new();
    claim(&world, "db", json!({"class": "postgres"}));
    world.details(CLAIMS, "db");
    let volumes = "/api/v1/namespaces/default/persistentvolumeclaims";
    let files = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "files"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "silver", "resources": {"requests": {"storage": "8Mi"}},
        },
    });
    world.create(volumes, &files);
    world.until(&format!("{volumes}/files"), "bound", |c| c["status"]["phase"] == "Bound");
    let process = format!("process {}", server(&world, &behind(&world, "db").1).1.expect("runs"));
    let images = world.home("volumes").join("images");
    let shows = mounts::loops().expect("is read").into_iter().find(|l| l.file.starts_with(&images)).expect("is shown");
    let device = shows.device.display().to_string();
    world.kill_conductor();
    // what is mounted stays, and with it the way to it
    let _ = Command::new("rm").arg("-rf").arg(&world.data).output();
    let finds = |world: &World, own: bool, words: &[&str]| {
        soon("found", || {
            let (fine, said) = world.audit();
            (fine != own && words.iter().all(|word| said.contains(word))).then_some(())
        });
    };
    // what another left is said, and is no fault of this one
    let elsewhere = World::new();
    finds(&elsewhere, false, &[&process, "was removed: kill", &device, "umount"]);
    drop(elsewhere);
    // where it was, nothing starts before what is mounted there is gone
    let data = world.data.to_str().expect("is text").to_owned();
    let up = || {
        Command::new(env!("CARGO_BIN_EXE_conductor"))
            .args(["up", "--listen", "127.0.0.1:0", "--data-dir", &data])
            .output()
    };
    let refused = up().expect("runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("umount") && said.contains("rm -r"), "{said}");
    let point =
        mounts::all().expect("is read").into_iter().find(|m| m.point.starts_with(&world.data)).expect("is left");
    rustix::mount::unmount(&point.point, rustix::mount::UnmountFlags::empty()).expect("may");
    fs::remove_dir_all(&world.data).expect("may");
    fs::create_dir(&world.data).expect("may");
    world.start_conductor();
    finds(&world, true, &[&process, "no-leftover-process"]);
}
