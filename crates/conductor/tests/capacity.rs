//! What the machine has not got is not promised: the claim waits and says what it asked for, what others have, and what there is.

mod common;

use common::database::{CLAIMS, claim, class};
use common::world::{MERGE, POSTGRES, World, condition, has, may_mount, says, soon};
use serde_json::{Value, json};

const VOLUMES: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn volume(world: &World, name: &str, class: &str, size: &str) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
        },
    });
    world.create(VOLUMES, &claim);
}

/// How much of the disk is this many percent, as it is asked for.
fn share(world: &World, percent: u64) -> String {
    let disk = rustix::fs::statvfs(&world.data).expect("is there");
    format!("{}Mi", ((disk.f_blocks * disk.f_frsize) >> 20) * percent / 100)
}

fn waits(world: &World, path: &str, words: &[&str]) {
    let told = |c: &Value| words.iter().all(|word| says(&c["status"]["message"], word));
    let waiting = world.until(path, "told why it waits", told);
    assert_ne!(waiting["status"]["phase"], "Bound", "{waiting}");
}

fn is_bound(claim: &Value) -> bool {
    claim["status"]["phase"] == "Bound"
}

#[test]
fn a_database_is_promised_what_the_machine_has_and_waits_for_more() {
    if !has("promises to databases", POSTGRES) {
        return;
    }
    let mut world = World::new();
    let of = |name: &str| format!("{CLAIMS}/{name}");
    let ask =
        |size: &str| json!({"class": "tight", "engine": "postgres", "resources": {"requests": {"storage": size}}});
    let template = json!({"storage": "${resource.spec.capacity.storage}", "overcommit": 1});
    class(&world, "tight", "Delete", "PostgresInstance", template);
    class(&world, "clever", "Delete", "PostgresInstance", json!({"memory": "4Pi"}));
    claim(&world, "huge", ask("900Ti"));
    waits(&world, &of("huge"), &["900Ti of storage", "the disk it would be on has", "ask for less"]);
    claim(&world, "clever", json!({"class": "clever", "engine": "postgres"}));
    waits(&world, &of("clever"), &["4Pi of memory", "this machine has"]);

    // what fits alone need not fit beside others
    let (most, some) = (share(&world, 60), share(&world, 10));
    claim(&world, "first", ask(&most));
    world.until(&of("first"), "bound", is_bound);
    claim(&world, "small", ask(&some));
    world.until(&of("small"), "bound", is_bound);
    claim(&world, "second", ask(&most));
    waits(&world, &of("second"), &["are promised to others", "overcommit is 1"]);
    // nor may one grow into what others have; it goes on with what it has
    let more = json!({"spec": {"resources": {"requests": {"storage": most}}}});
    assert_eq!(world.request("PATCH", &of("small"), Some((MERGE, &more))).0, 200);
    let grows = |c: &Value| says(&condition(c, "Resizing")["message"], "are promised to others");
    let small = world.until(&of("small"), "told why it does not grow", grows);
    assert!(is_bound(&small) && small["status"]["capacity"]["storage"] == some, "{small}");
    // what was promised is known to the next process
    world.kill_conductor();
    world.start_conductor();
    claim(&world, "third", ask(&most));
    waits(&world, &of("third"), &["are promised to others"]);
    for gone in ["first", "third"] {
        world.delete_now(&of(gone));
    }
    world.delete_now(&of("second"));
    world.until(&of("small"), "grown", |c| c["status"]["capacity"]["storage"] == *most);
    world.audit_is_clean();
}

#[test]
fn a_volume_is_promised_what_the_disk_has_and_waits_for_more() {
    let images = may_mount("promises to images");
    let world = World::new();
    let explains = |name: &str, words: &[&str]| {
        let claim = format!("pvc/{name}");
        soon(&format!("said about {name}"), || {
            let said = world.conductor(&["explain", &claim]);
            words.iter().all(|word| said.contains(word)).then_some(())
        });
        assert_eq!(world.get(&format!("{VOLUMES}/{name}")).expect("is there")["status"]["phase"], "Pending");
    };
    let classes: &[&str] = if images { &["silver", "bronze"] } else { &["bronze"] };
    for class in classes {
        let name = format!("huge-{class}");
        volume(&world, &name, class, "900Ti");
        explains(&name, &["900Ti of storage", "the disk it would be on has"]);
    }
    // what is proposed to a claim that nothing fits is what there is
    volume(&world, "much", "", "900Ti");
    explains("much", &["resources.requests.storage: 900Ti -> "]);
    let template = if images { "image-volume" } else { "directory-volume" };
    let tight = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "tight"},
        "provisioner": "volume.conductor.io", "reclaimPolicy": "Delete",
        "parameters": {
            "template": template, "fileSystem": "ext4", "preallocate": "false", "scrubMethod": "discard", "overcommit": "1",
        },
    });
    world.create("/apis/storage.k8s.io/v1/storageclasses", &tight);
    let manager = json!({
        "apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": {"name": "tight"},
        "spec": {"type": "persistentvolumes", "classes": [{"name": "tight"}]},
    });
    world.create("/apis/conductor.io/v1alpha1/managers", &manager);
    let most = share(&world, 60);
    volume(&world, "first", "tight", &most);
    world.until(&format!("{VOLUMES}/first"), "bound", is_bound);
    volume(&world, "second", "tight", &most);
    explains("second", &["are promised to others", "overcommit is 1"]);
    world.delete_now(&format!("{VOLUMES}/first"));
    world.until(&format!("{VOLUMES}/second"), "bound", is_bound);
}
