//! Nothing is left of claims, whoever was killed when: claims of every kind are made and deleted at random while Conductor and what it
//! runs are killed; then the machine is looked at.
//!
//! `CONDUCTOR_CLAIMS=300` makes it longer, `CONDUCTOR_SEED=N` repeats a run.

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::Random;
use common::database::{class, left_in_postgres, shared_server};
use common::world::{HAPROXY, MARIADB, PATIENCE, POSTGRES, World, has, kill, may_mount, ready, soon};
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

/// The third part of this run's addresses, 127.80.N.x: another run on the same machine has others.
fn net() -> u32 {
    16 + std::process::id() % 200
}

/// Ports of 127.80.N.x that someone listens on.
fn listening() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/tcp").expect("is there");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // the address backwards, then the state
    let own = format!("{:02X}507F", net());
    let open = fields.filter(|f| f.get(3) == Some(&"0A") && f.get(1).is_some_and(|a| a.get(2..8) == Some(&own)));
    open.map(|f| f[1].to_owned()).collect()
}

/// Sees to it that nothing of a kind is left but what may be: now, or when what is being cleared away is gone. A leak stays for ever.
fn nothing_left<T: std::fmt::Debug>(what: &str, but: usize, look: impl Fn() -> Vec<T>) {
    let begun = Instant::now();
    loop {
        let left = look();
        if left.len() == but {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} is left: {left:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
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
    let net = net();
    let pools = [
        ("local", json!([format!("127.80.{net}.1-127.80.{net}.90")])),
        ("ports", json!([format!("127.80.{net}.200")])),
    ];
    for (pool, addresses) in pools {
        soon("a pool", || world.get(&format!("{POOLS}/{pool}")));
        world.patch(&format!("{POOLS}/{pool}"), json!({"spec": {"addresses": addresses, "holdFor": "1s"}}));
    }
    let shared = wishes.iter().any(|wish| wish.3 == "part");
    if shared {
        shared_server(&world, "PostgresInstance");
        class(&world, "own", "Delete", "PostgresInstance", json!({}));
        class(
            &world,
            "part",
            "Delete",
            "PostgresDatabase",
            json!({"serverSecretRef": {"name": "shared-postgresinstance"}}),
        );
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
        nothing_left(path, 0, || world.list(path));
    }
    if shared {
        world.until(&format!("{INSTANCES}/shared"), "ready", ready);
        assert_eq!(left_in_postgres(&world), "0", "no database and no role is left");
    }
    let one = usize::from(shared);
    nothing_left("an instance that is not shared", one, || world.list(INSTANCES));
    nothing_left("a process", one, || [world.processes("databases"), world.processes("balancers")].concat());
    let ours = "/api/v1/namespaces/conductor-system/secrets?labelSelector=app.kubernetes.io/managed-by=conductor";
    nothing_left("a Secret", one, || world.list(ours));
    let (databases, volumes, balancers) = (world.home("databases"), world.home("volumes"), world.home("balancers"));
    nothing_left("a data directory", one, || inside(&databases.join("postgres")));
    nothing_left("a socket", one, || inside(&databases.join("run/postgres")));
    for empty in [
        databases.join("mariadb"),
        databases.join("run/mariadb"),
        volumes.join("images"),
        volumes.join("mounts"),
        volumes.join("directories"),
        balancers.join("haproxy"),
    ] {
        nothing_left(&format!("something in {}", empty.display()), 0, || inside(&empty));
    }
    nothing_left("a mount", 0, || {
        mounts::all().expect("is read").into_iter().filter(|m| m.point.starts_with(&world.data)).collect()
    });
    nothing_left("a loop device", 0, || {
        mounts::loops().expect("is read").into_iter().filter(|l| l.file.starts_with(&world.data)).collect()
    });
    nothing_left("an open port", 0, listening);
    for pool in ["local", "ports"] {
        nothing_left("a held address", 0, || {
            let pool = world.get(&format!("{POOLS}/{pool}")).expect("is there");
            pool["status"]["held"].as_array().cloned().unwrap_or_default()
        });
    }
    world.audit_is_clean();
    println!("{made} claims made and deleted, {kills} processes killed");

    // and what is left over is found
    let strays = [databases.join("postgres/stray"), volumes.join("images/stray.img"), balancers.join("haproxy/stray")];
    for stray in &strays {
        fs::create_dir_all(stray).expect("may");
    }
    if shared {
        let details = world.secret("conductor-system", "shared-postgresinstance");
        let role = "create role c_00000000000000000000000000000000";
        let kept = fs::read_to_string(databases.join("installation")).unwrap_or_default();
        let mark = kept.lines().next().unwrap_or_default();
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
