//! Nothing is left of claims, whoever was killed when: claims of every kind are made and deleted at random while Conductor and what it
//! runs are killed; then the machine is looked at.
//!
//! `CONDUCTOR_CLAIMS=300` makes it longer, `CONDUCTOR_SEED=N` repeats a run.

mod common;

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use common::Random;
use common::database::{class, left_in_postgres, shared_server};
use common::world::{HAPROXY, MARIADB, POSTGRES, World, has, kill, may_mount, ready, soon};
use conductor_volumes::mounts;
use rustix::process::Signal;
use serde_json::json;

const DATABASES: &str = "/apis/storage.conductor.io/v1alpha1/namespaces/default/relationaldatabaseclaims";
const VOLUMES: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const INGRESSES: &str = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
const POOLS: &str = "/apis/network.local.conductor.io/v1alpha1/addresspools";
const INSTANCES: &str = "/apis/database.local.conductor.io/v1alpha1/namespaces/conductor-system/postgresinstances";
/// Everything that there is none of in the end.
const EMPTY: [&str; 14] = [
    DATABASES,
    VOLUMES,
    INGRESSES,
    "/apis/storage.conductor.io/v1alpha1/relationaldatabases",
    "/api/v1/persistentvolumes",
    "/apis/network.conductor.io/v1alpha1/loadbalancers",
    "/apis/database.local.conductor.io/v1alpha1/postgresdatabases",
    "/apis/database.local.conductor.io/v1alpha1/mariadbinstances",
    "/apis/volume.local.conductor.io/v1alpha1/imagevolumes",
    "/apis/volume.local.conductor.io/v1alpha1/directoryvolumes",
    "/apis/network.local.conductor.io/v1alpha1/haproxybalancers",
    "/apis/network.local.conductor.io/v1alpha1/portforwards",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/services?labelSelector=app.kubernetes.io/managed-by=conductor",
];

/// What can be claimed here: where, which kind, which class.
fn wishes() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let (storage, network) = ("storage.conductor.io/v1alpha1", "network.conductor.io/v1alpha1");
    let mut all =
        vec![(VOLUMES, "v1", "PersistentVolumeClaim", "bronze"), (INGRESSES, network, "IngressClaim", "bronze")];
    if has("leaks of PostgreSQL", POSTGRES) {
        all.push((DATABASES, storage, "RelationalDatabaseClaim", "own"));
        all.push((DATABASES, storage, "RelationalDatabaseClaim", "part"));
    }
    if has("leaks of MariaDB", MARIADB) {
        all.push((DATABASES, storage, "RelationalDatabaseClaim", "mariadb"));
    }
    if may_mount("leaks of images") {
        all.push((VOLUMES, "v1", "PersistentVolumeClaim", "silver"));
    }
    if has("leaks of HAProxy", HAPROXY) {
        all.push((INGRESSES, network, "IngressClaim", "silver"));
    }
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|n| n.parse().ok())
}

fn claim(world: &World, name: &str, wish: &(&str, &str, &str, &str)) {
    let (path, api_version, kind, class) = *wish;
    let spec = match kind {
        "PersistentVolumeClaim" => json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "4Mi"}},
        }),
        _ => json!({"class": class}),
    };
    world.create(path, &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}));
}

/// Names of what is in a directory.
fn inside(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ports of 127.80.5.x that someone listens on.
fn listening() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/tcp").expect("is there");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // the address backwards, then the state
    let open = fields.filter(|f| f.get(3) == Some(&"0A") && f.get(1).is_some_and(|a| a.get(2..8) == Some("05507F")));
    open.map(|f| f[1].to_owned()).collect()
}

#[test]
fn nothing_is_left_of_claims_whoever_is_killed_meanwhile() {
    let wishes = wishes();
    let count = number("CONDUCTOR_CLAIMS").unwrap_or(16);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = number("CONDUCTOR_SEED").unwrap_or(clock.as_secs());
    println!("{count} claims, CONDUCTOR_SEED={seed}");
    let mut random = Random(seed);
    let mut world = World::new();
    let pools = [("local", json!(["127.80.5.1-127.80.5.90"])), ("ports", json!(["127.80.5.200"]))];
    for (pool, addresses) in pools {
        soon("a pool", || world.get(&format!("{POOLS}/{pool}")));
        world.patch(&format!("{POOLS}/{pool}"), json!({"spec": {"addresses": addresses, "holdFor": "1s"}}));
    }
    let shared = wishes.iter().any(|wish| wish.3 == "part");
    if shared {
        shared_server(&world, "PostgresInstance");
        class(&world, "own", "Delete", "PostgresInstance", json!({}));
        class(&world, "part", "Delete", "PostgresDatabase", json!({"serverSecretRef": {"name": "shared-connection"}}));
    }
    let mut alive: Vec<String> = Vec::new();
    let (mut made, mut kills) = (0, 0);
    while made < count || !alive.is_empty() {
        match random.below(12) {
            0..6 if made < count => {
                let wish = &wishes[random.below(wishes.len() as u64) as usize];
                let name = format!("claim-{made}");
                claim(&world, &name, wish);
                alive.push(format!("{}/{name}", wish.0));
                made += 1;
            }
            6..9 if !alive.is_empty() => {
                let path = alive.swap_remove(random.below(alive.len() as u64) as usize);
                // half of them are deleted on their way, half when they can be used
                if random.below(2) == 0 {
                    world.until(&path, "bound", |c| c["status"]["phase"] == "Bound");
                }
                world.delete(&path);
            }
            9 => {
                kills += 1;
                world.kill_conductor();
                world.start_conductor();
            }
            10 | 11 => {
                let all = [world.processes("databases"), world.processes("balancers")].concat();
                if let Some((_, pid)) = all.get(random.below(all.len().max(1) as u64) as usize) {
                    kills += 1;
                    kill(*pid, Signal::KILL);
                }
            }
            _ => {}
        }
    }
    for path in EMPTY {
        let left = || world.list(path).is_empty().then_some(());
        soon(&format!("empty: {path}"), left);
    }
    if shared {
        world.until(&format!("{INSTANCES}/shared"), "ready", ready);
        assert_eq!(left_in_postgres(&world), "0", "no database and no role is left");
    }
    let one = usize::from(shared);
    let own = world.list(INSTANCES).len();
    assert_eq!(own, one, "only the shared server is left");
    let processes = [world.processes("databases"), world.processes("balancers")].concat();
    assert_eq!(processes.len(), one, "no process is left: {processes:?}");
    let secrets =
        world.list("/api/v1/namespaces/conductor-system/secrets?labelSelector=app.kubernetes.io/managed-by=conductor");
    assert_eq!(secrets.len(), one, "no Secret is left: {secrets:?}");
    let (databases, volumes, balancers) = (world.home("databases"), world.home("volumes"), world.home("balancers"));
    assert_eq!(inside(&databases.join("postgres")).len(), one, "no data directory is left");
    assert_eq!(inside(&databases.join("run/postgres")).len(), one, "no socket is left");
    for empty in [
        databases.join("mariadb"),
        databases.join("run/mariadb"),
        volumes.join("images"),
        volumes.join("mounts"),
        volumes.join("directories"),
        balancers.join("haproxy"),
    ] {
        assert_eq!(inside(&empty), [""; 0], "nothing is left in {}", empty.display());
    }
    let mounted: Vec<_> =
        mounts::all().expect("is read").into_iter().filter(|m| m.point.starts_with(&world.data)).collect();
    assert!(mounted.is_empty(), "{mounted:?}");
    let loops: Vec<_> =
        mounts::loops().expect("is read").into_iter().filter(|l| l.file.starts_with(&world.data)).collect();
    assert!(loops.is_empty(), "{loops:?}");
    assert_eq!(listening(), [""; 0], "no port is open");
    for pool in ["local", "ports"] {
        let pool = world.get(&format!("{POOLS}/{pool}")).expect("is there");
        assert!(pool["status"]["held"].as_array().is_none_or(Vec::is_empty), "no address is held: {pool}");
    }
    world.audit_is_clean();
    println!("{made} claims made and deleted, {kills} processes killed");

    // and what is left over is found
    let strays = [databases.join("postgres/stray"), volumes.join("images/stray.img"), balancers.join("haproxy/stray")];
    for stray in &strays {
        fs::create_dir_all(stray).expect("may");
    }
    if shared {
        let details = world.secret("conductor-system", "shared-connection");
        let role = "create role c_00000000000000000000000000000000";
        let mark = fs::read_to_string(databases.join("installation")).unwrap_or_default();
        let mark = format!("comment on role c_00000000000000000000000000000000 is 'conductor {mark} stray'");
        if !mark.contains("conductor  ") {
            common::database::sql(&details, &format!("{role}; {mark}")).expect("may");
        }
    }
    let (fine, said) = world.audit();
    assert!(!fine, "{said}");
    for stray in &strays {
        assert!(said.contains(&stray.display().to_string()), "{said}");
    }
    // a shared server is remembered from its first database on, and some runs make none
    let part_was_used = databases.join("postgres-servers").exists();
    assert!(!part_was_used || said.contains("no-leftover-role"), "{said}");
}
