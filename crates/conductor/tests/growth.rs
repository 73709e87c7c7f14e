//! Claims that outgrow what they have: said on the claim, and what is behind it grows when its owner asks for more.

mod common;

use std::fs;
use std::path::PathBuf;

use common::database::{CLAIMS, CLASSES, behind, claim, class, server, shared_server, sql};
use common::world::{MARIADB, MERGE, POSTGRES, World, condition, has, may_mount, says};
use conductor_volumes::mounts;
use serde_json::{Value, json};

fn ask(world: &World, path: &str, size: &str) -> (u16, Value) {
    world.request("PATCH", path, Some((MERGE, &json!({"spec": {"resources": {"requests": {"storage": size}}}}))))
}

/// A database that holds more than its claim asked for, until that asks for more.
fn outgrows(engine: &str, kind: &str, template: Value, limit: &str, mebibytes: u32) {
    let mut world = World::new();
    let mut template = template;
    template["storage"] = json!("${resource.spec.capacity.storage}");
    if template["serverSecretRef"].is_object() {
        shared_server(&world, if engine == "postgres" { "PostgresInstance" } else { "MariaDBInstance" });
    }
    class(&world, "small", "Delete", kind, template);
    claim(&world, "db", json!({"engine": engine, "class": "small", "resources": {"requests": {"storage": limit}}}));
    let details = world.details(CLAIMS, "db");
    let (path, implementation) = behind(&world, "db");
    let pid = || kind.ends_with("Instance").then(|| server(&world, &implementation).1);
    let before = pid();
    let own = format!("{CLAIMS}/db");
    world.until(&own, "within its capacity", |c| condition(c, "WithinCapacity")["status"] == "True");

    // neither engine refuses more: it is measured and said, to who can do something about it
    let rows = mebibytes * 1024;
    let many = match engine {
        "postgres" => format!("generate_series(1, {rows})"),
        _ => format!("seq_1_to_{rows}"),
    };
    sql(&details, &format!("create table t (words text); insert into t select repeat('x', 1000) from {many}"))
        .expect("may");
    let begun = std::time::Instant::now();
    let told = loop {
        world.poke(&path);
        let now = world.get(&own).expect("is there");
        if condition(&now, "WithinCapacity")["status"] == "False" {
            break now;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(90), "it is not said: {now}");
        std::thread::sleep(std::time::Duration::from_millis(500));
    };
    let why = &condition(&told, "WithinCapacity")["message"];
    assert!(says(why, "ask for more storage"), "{why}");
    assert_eq!((&told["status"]["phase"], &told["status"]["reason"]), (&json!("Bound"), &json!("TooLarge")));

    // its owner does, and Conductor is killed before it can follow
    assert_eq!(ask(&world, &own, "2Gi").0, 200);
    world.kill_conductor();
    world.start_conductor();
    let fits =
        |c: &Value| c["status"]["capacity"]["storage"] == "2Gi" && condition(c, "WithinCapacity")["status"] == "True";
    let grown = world.until(&own, "grown", fits);
    assert_eq!(grown["status"]["reason"], Value::Null, "{grown}");
    world.until(&own, "saying so", |c| condition(c, "Resizing")["reason"] == "Resized");
    assert_eq!(sql(&details, "select count(*) from t").as_deref(), Ok(rows.to_string().as_str()));
    let pid = || kind.ends_with("Instance").then(|| server(&world, &implementation).1);
    assert_eq!(pid(), before, "it was not interrupted");

    // nothing shrinks, and what may not grow does not
    let (code, refused) = ask(&world, &own, "1Gi");
    assert!(code == 422 && says(&refused["message"], "may not be lowered from 2Gi to 1Gi"), "{code} {refused}");
    world.patch(&format!("{CLASSES}/small"), json!({"spec": {"allowExpansion": false}}));
    let (code, refused) = ask(&world, &own, "3Gi");
    assert!(code == 422 && says(&refused["message"], "class small does not let"), "{code} {refused}");
    assert_eq!(sql(&details, "select count(*) from t").as_deref(), Ok(rows.to_string().as_str()));
}

fn in_a_shared_server(kind: &str) -> Value {
    json!({"serverSecretRef": {"name": common::database::shared_secret(kind)}})
}

#[test]
fn a_postgres_instance_outgrows_its_claim_and_grows_with_it() {
    if has("growth of a PostgresInstance", POSTGRES) {
        outgrows("postgres", "PostgresInstance", json!({}), "96Mi", 90);
    }
}

#[test]
fn a_postgres_database_outgrows_its_claim_and_grows_with_it() {
    if has("growth of a PostgresDatabase", POSTGRES) {
        outgrows("postgres", "PostgresDatabase", in_a_shared_server("PostgresInstance"), "20Mi", 24);
    }
}

#[test]
fn a_mariadb_instance_outgrows_its_claim_and_grows_with_it() {
    if has("growth of a MariaDBInstance", MARIADB) {
        outgrows("mysql", "MariaDBInstance", json!({}), "160Mi", 80);
    }
}

#[test]
fn a_mariadb_database_outgrows_its_claim_and_grows_with_it() {
    if has("growth of a MariaDBDatabase", MARIADB) {
        outgrows("mysql", "MariaDBDatabase", in_a_shared_server("MariaDBInstance"), "20Mi", 24);
    }
}

#[test]
fn an_image_behind_a_type_of_ones_own_grows_with_its_claim() {
    if !may_mount("growth of an ImageVolume") {
        return;
    }
    let world = World::new();
    let kinds = "/apis/storage.conductor.io/v1alpha1";
    let disk = json!({
        "apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType", "metadata": {"name": "disks.storage.conductor.io"},
        "spec": {
            "group": "storage.conductor.io", "version": "v1alpha1",
            "names": {"resource": "Disk", "claim": "DiskClaim", "class": "DiskClass"}, "capacities": {"storage": {}},
        },
    });
    world.create("/apis/conductor.io/v1alpha1/resourcetypes", &disk);
    // made of the claim's own words, and of the resource's: both follow
    let made = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "DiskClass", "metadata": {"name": "ext4"},
        "spec": {
            "allowExpansion": true,
            "template": {
                "apiVersion": "volume.local.conductor.io/v1alpha1", "kind": "ImageVolume",
                "spec": {"size": "${claim.spec.resources.requests.storage}", "fileSystem": "ext4"},
            },
        },
    });
    world.create(&format!("{kinds}/diskclasses"), &made);
    let claims = format!("{kinds}/namespaces/default/diskclaims");
    let wanted = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "DiskClaim", "metadata": {"name": "data"},
        "spec": {"class": "ext4", "resources": {"requests": {"storage": "24Mi"}}},
    });
    world.create(&claims, &wanted);
    let own = format!("{claims}/data");
    let bound = world.until(&own, "bound", |c| c["status"]["phase"] == "Bound");
    let resource = format!("{kinds}/disks/{}", bound["spec"]["resourceName"].as_str().expect("is named"));
    let images = "/apis/volume.local.conductor.io/v1alpha1/namespaces/conductor-system/imagevolumes";
    let image = world.get(&resource).expect("is there")["status"]["implementationRef"].clone();
    let image = world.get(&format!("{images}/{}", image.as_str().expect("is named"))).expect("is there");
    let at = PathBuf::from(image["status"]["volume"]["local"]["path"].as_str().expect("is local"));
    let size = || rustix::fs::statvfs(&at).map(|s| s.f_blocks * s.f_frsize).expect("is mounted");
    fs::write(at.join("kept"), "mine").expect("may");
    let before = size();
    assert_eq!(ask(&world, &own, "64Mi").0, 200);
    world.until(&own, "grown", |c| c["status"]["capacity"]["storage"] == "64Mi");
    assert!(before < 24 << 20 && size() > 40 << 20, "from {before} to {}", size());
    assert_eq!(fs::read_to_string(at.join("kept")).expect("is there"), "mine");
    let (code, refused) = ask(&world, &own, "8Mi");
    assert!(code == 422 && says(&refused["message"], "may not be lowered"), "{code} {refused}");
    assert!(world.list("/api/v1/persistentvolumes").is_empty(), "it is a Disk, and no PersistentVolume");
    world.delete_now(&own);
    world.gone(&resource);
    assert!(mounts::at(&at).expect("is read").is_none(), "nothing is left");
}
