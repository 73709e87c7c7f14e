//! A data directory that is removed while something of it runs: the next Conductor, here or elsewhere, says what is left. One that is
//! copied or moved: what it has elsewhere is one's at a time.

mod common;

use std::fs;
use std::process::Command;

use common::database::{CLAIMS, behind, claim, server, sql, sql_soon};
use common::world::{POSTGRES, World, condition, has, may_mount, ready, says, soon};
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

#[test]
fn a_copy_of_a_data_directory_touches_nothing_of_the_original() {
    let test = "a copied data directory";
    if !has(test, POSTGRES) || !may_mount(test) {
        return;
    }
    let mut world = World::private();
    claim(&world, "db", json!({"class": "postgres"}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table kept as select 1 as one").expect("may");
    let home = world.home("databases");
    assert!(home.starts_with("/var/lib/conductor"), "{}", home.display());

    let mut copy = world.copy();
    let (path, _) = behind(&copy, "db");
    let why = format!("belongs to the data directory {}", world.data.display());
    let said = copy.until(&path, "not touched", |object| !ready(object));
    let condition = condition(&said, "Ready");
    assert!(condition["reason"] == "Unavailable" && says(&condition["message"], &why), "{condition}");
    assert!(copy.log().contains("provider databases does nothing") && copy.log().contains(&why), "{}", copy.log());
    let provider = "/apis/conductor.io/v1alpha1/providers/databases";
    copy.until(provider, "unavailable", |p| says(&p["status"]["lacks"], &why));
    soon("said of the classes", || copy.conductor(&["classes"]).contains(&why).then_some(()));
    let (fine, said) = copy.audit();
    assert!(!fine && said.contains(&why) && said.contains("home-is-own"), "{said}");
    copy.delete(&format!("{CLAIMS}/db"));
    copy.until(&path, "kept", |object| {
        says(&common::world::condition(object, "Ready")["message"], "cannot be removed")
    });
    assert_eq!(sql(&details, "select one from kept").as_deref(), Ok("1"));
    copy.kill_conductor();

    // what was moved is where it is now, for itself and for others
    world.kill_conductor();
    let moved = world.data.with_file_name("moved");
    fs::rename(&world.data, &moved).expect("may");
    world.data = moved;
    world.start_conductor();
    let of = || fs::read_link(home.with_file_name("of")).expect("is there");
    soon("known where it is", || (of() == world.data.join("providers")).then_some(()));
    world.audit_is_clean();
    world.until(&format!("{CLAIMS}/db"), "ready", ready);
    assert_eq!(sql_soon(&details, "select one from kept"), "1");
    let elsewhere = World::new();
    let (_, found) = elsewhere.audit();
    assert!(!found.contains(home.to_str().expect("is text")), "{found}");
}
