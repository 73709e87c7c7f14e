//! What a machine lacks is no error: it is said where someone waits for it, with the command that gets it, and when it is there things go on.

mod common;

use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use common::database::{CLAIMS, INSTANCES, RESOURCES, behind, claim, class, shared_secret, shared_server};
use common::world::{HAPROXY, POSTGRES, World, condition, debian_postgres, has, may_mount, says, soon};
use conductor_local::lack::find_program;
use serde_json::{Value, json};

const VOLUMES: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const INGRESSES: &str = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
const MANAGERS: &str = "/apis/conductor.io/v1alpha1/managers";
const PROVIDERS: &str = "/apis/conductor.io/v1alpha1/providers";

/// "Installs" programs where the test's Conductor looks for them.
fn install(dir: &Path, programs: &[&str]) {
    for program in programs {
        let found = find_program(program, &debian_postgres()).unwrap_or_else(|| panic!("there is no {program}"));
        symlink(found, dir.join(program)).expect("may");
    }
}

/// What a provider says about a kind.
fn kind(world: &World, provider: &str, kind: &str) -> Value {
    let provider = world.get(&format!("{PROVIDERS}/{provider}")).unwrap_or_default();
    let kinds = provider["status"]["kinds"].as_array().cloned().unwrap_or_default();
    kinds.into_iter().find(|entry| entry["kind"] == kind).unwrap_or_default()
}

fn volume(name: &str, class: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
        },
    })
}

/// Events that say something about a claim.
fn told(world: &World, claim: &str, word: &str) {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={claim}");
    soon(&format!("said about {claim}: {word}"), || {
        world.list(&path).iter().any(|e| says(&e["message"], word)).then_some(())
    });
}

/// Reads the beginning of what a command says and goes: the command ends well, and says nothing about it.
fn left_unread(world: &World, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(arguments).env("KUBECONFIG", world.data.join("kubeconfig"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let read = child.stdout.take().expect("is piped").read(&mut [0; 8]).expect("can be read");
    let ended = soon("ended", || child.try_wait().expect("is ours"));
    let mut said = String::new();
    child.stderr.take().expect("is piped").read_to_string(&mut said).expect("can be read");
    assert!(read > 0 && ended.success() && said.is_empty(), "{arguments:?}: {ended} {said}");
}

#[test]
fn what_is_missing_is_said_with_the_command_that_gets_it_and_is_found_when_it_comes() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let programs = directory.path();
    std::fs::set_permissions(programs, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("may");
    let world = World::with(&[("CONDUCTOR_PATH", programs.to_str().expect("is text"))]);
    let claim = |path: &str, api_version: &str, kind: &str, name: &str, class: &str| {
        let claim =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"class": class}});
        world.create(path, &claim);
    };
    for (class, package) in [("postgres", "postgresql"), ("mariadb", "mariadb-server")] {
        claim(CLAIMS, "storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", class, class);
        let command = format!("apt-get install {package}");
        let waiting = world.until(&format!("{CLAIMS}/{class}"), "told", |c| says(&c["status"]["message"], &command));
        assert_eq!(waiting["status"]["phase"], "Pending", "{waiting}");
    }
    claim(INGRESSES, "network.conductor.io/v1alpha1", "IngressClaim", "front", "silver");
    world.until(&format!("{INGRESSES}/front"), "told", |c| says(&c["status"]["message"], "apt-get install haproxy"));
    world.create(VOLUMES, &volume("files", "silver", "8Mi"));
    told(&world, "files", "apt-get install");
    for (provider, name, package) in [
        ("databases", "PostgresInstance", "postgresql"),
        ("balancers", "HAProxyBalancer", "haproxy"),
        ("volumes", "ImageVolume", "apt-get install"),
    ] {
        let lacking = || Some(kind(&world, provider, name)).filter(|k| k["available"] == false);
        let entry = soon("known", lacking);
        assert!(says(&entry["message"], package), "{entry}");
    }
    for (manager, class, command) in [
        ("relationaldatabases", "postgres", "apt-get install postgresql"),
        ("local-balancers", "silver", "apt-get install haproxy"),
        ("image-volumes", "silver", "apt-get install"),
    ] {
        let lacking = |m: &Value| {
            let classes = m["status"]["classes"].as_array().cloned().unwrap_or_default();
            classes.iter().any(|c| c["name"] == class && c["available"] == false && says(&c["message"], command))
        };
        world.until(&format!("{MANAGERS}/{manager}"), "saying what its class lacks", lacking);
    }
    left_unread(&world, &["install"]);
    // whoever asks is told the same, and not that all is well
    let explained = world.conductor(&["explain", "pvc/files"]);
    let first = explained.lines().nth(1).unwrap_or_default();
    assert!(first.contains("apt-get install") && !explained.contains("can make it"), "{explained}");
    let explained = world.conductor(&["explain", "rdbc/postgres"]);
    assert!(explained.lines().nth(1).unwrap_or_default().contains("apt-get install postgresql"), "{explained}");
    // and no way out is one that leads nowhere
    claim(CLAIMS, "storage.conductor.io/v1alpha1", "RelationalDatabaseClaim", "typo", "postgresql");
    world.until(&format!("{CLAIMS}/typo"), "waiting", |c| c["status"]["phase"] == "Pending");
    let explained = world.conductor(&["explain", "rdbc/typo"]);
    assert!(!explained.contains("would bind it (to class"), "{explained}");
    world.delete_now(&format!("{CLAIMS}/typo"));
    let classes = world.conductor(&["classes"]);
    let row = |claim: &str, class: &str| {
        let is = |line: &&str| line.split_whitespace().take(2).eq([claim, class]);
        classes.lines().find(is).unwrap_or_else(|| panic!("no {class}: {classes}"))
    };
    let silver = row("PersistentVolumeClaim", "silver");
    assert!(silver.contains("lacks: ") && silver.contains("apt-get install"), "{classes}");
    assert!(row("RelationalDatabaseClaim", "postgres").contains("apt-get install postgresql"), "{classes}");
    assert!(row("PersistentVolumeClaim", "bronze").contains("yes"), "{classes}");
    // what really becomes of a volume, not what kubectl shows
    assert!(row("PersistentVolumeClaim", "gold").contains("Recycle"), "{classes}");
    let claims = tempfile::tempdir().expect("makes a directory");
    let claim = volume("planned", "silver", "8Mi").to_string();
    for (file, text) in [("b.json", claim.as_str()), ("a.yml", "{kind: First}"), ("README.md", "# no YAML: [")] {
        std::fs::write(claims.path().join(file), text).expect("may");
    }
    let (fine, planned) = world.run(&["plan", "-f", claims.path().to_str().expect("is text")]);
    assert!(planned.starts_with("First "), "{planned}");
    assert!(!fine && planned.contains("waits: ") && planned.contains("apt-get install"), "{planned}");

    // what needs nothing is there all the same
    world.create(VOLUMES, &volume("plain", "bronze", "8Mi"));
    world.until(&format!("{VOLUMES}/plain"), "bound", |c| c["status"]["phase"] == "Bound");

    // it comes: whoever waited is served, without a restart
    if has("PostgreSQL comes", POSTGRES) {
        install(programs, &["postgres", "initdb", "psql", "setsid"]);
        world.until(&format!("{CLAIMS}/postgres"), "bound", |c| c["status"]["phase"] == "Bound");
        let waiting = world.get(&format!("{CLAIMS}/mariadb")).expect("is there");
        assert_eq!(waiting["status"]["phase"], "Pending", "{waiting}");
        // who reads no further ends what writes, be there more to come or not
        left_unread(&world, &["logs", "rdbc/postgres", "--follow"]);
        let (key, data) = (programs.join("jane"), world.data.to_str().expect("is text"));
        let key = key.to_str().expect("is text");
        let add = |name: &str| {
            world.run(&["user", "add", name, "--role", "user", "-n", "default", "-o", key, "--data-dir", data])
        };
        let (fine, said) = add("jane doe");
        assert!(!fine && said.contains("\"jane doe\" cannot be a person's name"), "{said}");
        let (fine, said) = add("jane");
        assert!(fine, "{said}");
        let (fine, said) = world.run(&["logs", "rdbc/postgres", "--kubeconfig", key]);
        assert!(!fine && said.contains("is not yours to see, and so its log is not"), "{said}");
    }
    if has("HAProxy comes", HAPROXY) {
        install(programs, &["haproxy"]);
        world.until(&format!("{INGRESSES}/front"), "bound", |c| c["status"]["phase"] == "Bound");
    }
    if may_mount("file systems come") {
        install(programs, &["mount", "losetup", "mkfs.ext4", "resize2fs", "e2fsck"]);
        world.until(&format!("{VOLUMES}/files"), "bound", |c| c["status"]["phase"] == "Bound");
        // one file system is there and another is not: known before anyone asks for it
        let row = |class: &str| {
            let classes = world.conductor(&["classes"]);
            let is = |line: &&str| line.split_whitespace().take(2).eq(["PersistentVolumeClaim", class]);
            classes.lines().find(is).map(str::to_owned).unwrap_or_default()
        };
        soon("known", || row("gold").contains("apt-get install xfsprogs").then_some(()));
        assert!(!row("silver").contains("lacks"), "{}", row("silver"));
        world.create(VOLUMES, &volume("large", "gold", "300Mi"));
        told(&world, "large", "apt-get install xfsprogs");
        install(programs, &["mkfs.xfs", "xfs_growfs"]);
        world.until(&format!("{VOLUMES}/large"), "bound", |c| c["status"]["phase"] == "Bound");
    }
    world.audit_is_clean();
}

#[test]
fn what_was_never_made_in_a_server_goes_without_it() {
    if !has("PostgreSQL", POSTGRES) {
        return;
    }
    let world = World::new();
    let secrets = "/api/v1/namespaces/conductor-system/secrets";
    let register = |name: &str, login: Value| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": login});
        world.create(secrets, &secret);
        class(&world, name, "Delete", "PostgresDatabase", json!({"serverSecretRef": {"name": name}}));
    };
    // nobody listens there
    register("nowhere", json!({"host": "127.0.0.1", "port": "1", "username": "admin", "password": "x"}));
    claim(&world, "db", json!({"class": "nowhere"}));
    let databases = format!("{INSTANCES}/postgresdatabases");
    let unreachable = |d: &Value| condition(d, "Ready")["reason"] == "Unreachable" && d["status"]["server"].is_null();
    soon("said", || world.list(&databases).iter().any(unreachable).then_some(()));
    world.delete(&format!("{CLAIMS}/db"));
    world.gone(&format!("{CLAIMS}/db"));
    soon("gone", || world.list(&databases).is_empty().then_some(()));
    soon("gone", || world.list(RESOURCES).is_empty().then_some(()));

    // what was begun is not forgotten because its server is away, and whoever gives it up is told how
    shared_server(&world, "PostgresInstance");
    register("tenant", json!(world.secret("conductor-system", &shared_secret("PostgresInstance"))));
    claim(&world, "kept", json!({"class": "tenant"}));
    world.details(CLAIMS, "kept");
    let (path, made) = behind(&world, "kept");
    assert!(made["status"]["server"].as_str().is_some_and(|server| server.starts_with("127.0.0.1:")), "{made}");
    world.patch(&format!("{secrets}/tenant"), json!({"stringData": {"port": "1"}}));
    world.delete(&format!("{CLAIMS}/kept"));
    let told = |d: &Value| says(&condition(d, "Ready")["message"], "set its metadata.finalizers to []");
    world.until(&path, "said how", told);
    world.patch(&path, json!({"metadata": {"finalizers": []}}));
    world.gone(&path);
}
