//! Real databases behind claims: `conductor up`, real PostgreSQL and MariaDB, the engines' own clients with the claim's Secret.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::database::*;
use common::world::{MARIADB, POSTGRES, World, condition, has, kill, ready, says, soon};
use rustix::process::Signal;
use serde_json::{Value, json};

fn outlives(class: &str) {
    let mut world = World::new();
    claim(&world, "db", json!({"class": class}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table t (n int); insert into t values (42)").expect("may");
    assert_eq!(sql(&details, "select n from t").as_deref(), Ok("42"));
    let (path, implementation) = behind(&world, "db");
    let (dir, pid) = server(&world, &implementation);
    let pid = pid.expect("a server runs");
    // passwords are nowhere in a list of processes, and `conductor connect` is the client
    let ask = if class == "postgres" { "-XqAtc" } else { "-BNe" };
    assert_eq!(world.conductor(&["connect", "db", "--", ask, "select n from t"]).trim(), "42");
    assert!(
        world.conductor(&["logs", "relationaldatabaseclaim/db"]).contains("ready"),
        "the log says that it is ready"
    );

    world.kill_conductor();
    assert_eq!(sql(&details, "select n from t").as_deref(), Ok("42"), "Conductor is not needed to use it");
    world.start_conductor();
    world.poke(&path);
    assert_eq!(world.details(CLAIMS, "db"), details);
    assert_eq!(server(&world, &implementation).1, Some(pid), "it is the same process");

    kill(pid, Signal::KILL);
    let restarted = |c: &Value| ready(c) && condition(c, "Ready")["reason"] == "Restarted";
    let said = world.until(&format!("{CLAIMS}/db"), "saying that it was started again", restarted);
    assert_eq!(said["status"]["phase"], "Bound", "{said}");
    let mended = world.until(&path, "ready after a restart", |i| ready(i) && i["status"]["restarts"] == 1);
    assert_eq!(mended["status"]["port"], implementation["status"]["port"]);
    assert_eq!(sql_soon(&details, "select n from t"), "42");
    assert_ne!(server(&world, &implementation).1, Some(pid));
    world.audit_is_clean();

    world.delete(&format!("{CLAIMS}/db"));
    world.gone(&path);
    assert!(!dir.exists() && server(&world, &implementation).1.is_none(), "nothing is left");
    world.audit_is_clean();
}

#[test]
fn a_postgres_claim_is_a_real_database_that_outlives_conductor_and_its_own_crash() {
    if has("PostgreSQL", POSTGRES) {
        outlives("postgres");
    }
}

#[test]
fn a_mariadb_claim_is_a_real_database_that_outlives_conductor_and_its_own_crash() {
    if has("MariaDB", MARIADB) {
        outlives("mariadb");
    }
}

#[test]
fn drift_is_corrected_lost_data_is_said_and_credentials_rotate() {
    if !has("drift", POSTGRES) {
        return;
    }
    // what is told is enough: nothing is looked at because some time went by
    let world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    claim(&world, "db", json!({"class": "postgres", "resources": {"requests": {"storage": "2Gi"}}}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table t (n int); insert into t values (7)").expect("may");
    let (path, implementation) = behind(&world, "db");
    let (dir, pid) = server(&world, &implementation);

    // someone edits the configuration, and drops the role
    let file = dir.join("postgresql.conf");
    let before = fs::read_to_string(&file).expect("is there");
    fs::write(&file, format!("{before}fsync = off\n")).expect("may");
    soon("corrected", || fs::read_to_string(&file).is_ok_and(|now| now == before).then_some(()));
    let socket = socket(&world, &implementation).display().to_string();
    let port = implementation["status"]["port"].to_string();
    let drop = format!("drop owned by {0}; drop role {0}", details["username"]);
    let admin = ["-XqAt", "-h", &socket, "-p", &port, "-U", "conductor", "-d", "app", "-c", &drop];
    assert!(Command::new("psql").args(admin).status().expect("runs").success());
    assert_eq!(sql_soon(&details, "select n from t"), "7");
    assert_eq!(server(&world, &implementation).1, pid, "drift needs no restart");

    // a rotation: both work until its time is over, then only the new one; what the old one made stays
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 2}}));
    world.until(&path, "rotated", |i| i["status"]["rotated"] == 1);
    assert_eq!(
        sql(&details, "select n from t").as_deref(),
        Ok("7"),
        "the old login works until the Secret is replaced"
    );
    let begun = Instant::now();
    let new = loop {
        let new = world.details(CLAIMS, "db");
        if new["password"] != details["password"] {
            break new;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the claim's Secret is replaced");
    };
    assert_eq!(sql(&new, "select n from t").as_deref(), Ok("7"));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert!(sql(&details, "select 1").is_err(), "the old login is refused");
    assert_eq!(sql(&new, "insert into t values (8); select count(*) from t").as_deref(), Ok("2"));

    // more memory is a new start with the same data
    world.patch(&path, json!({"spec": {"memory": "128Mi"}}));
    world.until(&path, "ready again", |i| ready(i) && i["status"]["observedGeneration"] == i["metadata"]["generation"]);
    assert_eq!(sql_soon(&new, "show shared_buffers"), "32MB");
    assert_eq!(sql_soon(&new, "select count(*) from t"), "2");

    // the data is gone: said, and not made anew; back again: healed
    fs::rename(dir.join("data"), dir.join("away")).expect("may");
    let lost = world.until(&path, "lost", |i| condition(i, "Ready")["reason"] == "Lost");
    assert!(condition(&lost, "Ready")["message"].as_str().is_some_and(|m| m.contains("backup")), "{lost}");
    world.poke(&path);
    world.until(&resource_of(&implementation), "saying so", |r| r["status"]["phase"] == "Failed");
    let claim = world.until(&format!("{CLAIMS}/db"), "lost", |c| c["status"]["phase"] == "Lost");
    assert!(claim["status"]["message"].as_str().is_some_and(|m| m.contains("backup")), "{claim}");
    assert!(!dir.join("data").exists(), "data is never made anew under a live claim");
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("data-there"), "{said}");
    fs::rename(dir.join("away"), dir.join("data")).expect("may");
    world.until(&path, "healed", ready);
    world.until(&format!("{CLAIMS}/db"), "healed", |c| c["status"]["phase"] == "Bound" && ready(c));
    assert_eq!(sql_soon(&new, "select count(*) from t"), "2");

    // a leftover is found
    fs::create_dir(world.home("databases").join("postgres/stray")).expect("may");
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("no-leftover-directory"), "{said}");
}

/// A server that hangs is said, and that it answers again.
fn hangs(class: &str) {
    let world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "1")]);
    claim(&world, "db", json!({"class": class}));
    let details = world.details(CLAIMS, "db");
    let (path, implementation) = behind(&world, "db");
    let pid = server(&world, &implementation).1.expect("a server runs");
    // what was tried is trusted
    std::thread::sleep(Duration::from_secs(3));
    kill(pid, Signal::STOP);
    let said = world.until(&path, "unreachable", |i| condition(i, "Ready")["reason"] == "Unreachable");
    world.until(&format!("{CLAIMS}/db"), "told", |c| condition(c, "Ready")["status"] == "False");
    kill(pid, Signal::CONT);
    world.until(&format!("{CLAIMS}/db"), "healed", ready);
    assert_eq!(sql(&details, "select 1").as_deref(), Ok("1"), "{said}");
    assert_eq!(server(&world, &implementation).1, Some(pid), "nobody ended it");
}

#[test]
fn a_postgres_server_that_hangs_is_not_ready() {
    if has("PostgreSQL", POSTGRES) {
        hangs("postgres");
    }
}

#[test]
fn a_mariadb_server_that_hangs_is_not_ready() {
    if has("MariaDB", MARIADB) {
        hangs("mariadb");
    }
}

#[test]
fn what_conductor_sets_holds_against_a_superuser_of_the_server() {
    if !has("PostgreSQL", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let path = format!("{INSTANCES}/postgresinstances/shared");
    let details = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    let memory = sql(&details, "show shared_buffers").expect("is answered");
    for set in ["port = 1", "listen_addresses = '192.0.2.1'", "shared_buffers = '64MB'", "max_connections = 7"] {
        sql(&details, &format!("alter system set {set}")).expect("may");
    }
    let implementation = world.get(&path).expect("is there");
    let (dir, pid) = server(&world, &implementation);
    kill(pid.expect("a server runs"), Signal::KILL);
    world.until(&path, "started again", |i| ready(i) && i["status"]["restarts"] == 1);
    assert_eq!(sql_soon(&details, "show shared_buffers"), memory);
    assert_eq!(sql_soon(&details, "show max_connections"), "100");

    // what is the server's own business can keep it from starting: it is said where that is written
    sql(&details, "alter system set shared_preload_libraries = 'nowhere'").expect("may");
    kill(server(&world, &implementation).1.expect("a server runs"), Signal::KILL);
    let file = dir.join("data/postgresql.auto.conf");
    let said = |i: &Value| {
        let why = &condition(i, "Ready")["message"];
        says(why, "shared_preload_libraries") && says(why, &file.display().to_string())
    };
    world.until(&path, "told why it does not start", said);
    fs::write(&file, "").expect("may");
    world.until(&path, "started", ready);
}

type Details = std::collections::BTreeMap<String, String>;

/// What someone drops inside a server is lost: said, not made anew and empty, and healed when it is back.
fn vanishes_inside(class: &str, away: impl Fn(&World, &Value, &Details), back: impl Fn(&World, &Value, &Details)) {
    let world = World::new();
    claim(&world, "db", json!({"class": class}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table t (n int); insert into t values (7)").expect("may");
    let (path, implementation) = behind(&world, "db");
    away(&world, &implementation, &details);
    world.poke(&path);
    let lost = world.until(&path, "lost", |i| condition(i, "Ready")["reason"] == "Lost");
    assert!(condition(&lost, "Ready")["message"].as_str().is_some_and(|m| m.contains("backup")), "{lost}");
    let claim = world.until(&format!("{CLAIMS}/db"), "lost", |c| c["status"]["phase"] == "Lost");
    assert!(claim["status"]["message"].as_str().is_some_and(|m| m.contains("app is gone")), "{claim}");
    world.poke(&path);
    assert!(sql(&details, "select 1").is_err(), "no empty one is in its place");
    back(&world, &implementation, &details);
    world.poke(&path);
    world.until(&path, "healed", ready);
    world.until(&format!("{CLAIMS}/db"), "healed", |c| c["status"]["phase"] == "Bound" && ready(c));
    assert_eq!(sql_soon(&details, "select 1"), "1");
}

#[test]
fn what_a_claim_uses_is_not_taken_away_under_it() {
    if !has("PostgreSQL", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let own = json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}});
    class(&world, "tenant", "Delete", "PostgresDatabase", own);
    for name in ["postgres", "tenant"] {
        claim(&world, name, json!({"class": name}));
        let details = world.details(CLAIMS, name);
        sql(&details, "create table t (n int); insert into t values (7)").expect("may");
        let (path, implementation) = behind(&world, name);
        world.delete(&path);
        let refused = |i: &Value| ready(i) && says(&condition(i, "Removable")["message"], &format!("default/{name}"));
        world.until(&path, "refused while it is used", refused);
        assert_eq!(sql(&details, "select n from t").as_deref(), Ok("7"), "{implementation}");
    }
    // it is looked after for as long as it is there
    let (path, implementation) = behind(&world, "postgres");
    kill(server(&world, &implementation).1.expect("a server runs"), Signal::KILL);
    world.until(&path, "started again", |i| ready(i) && i["status"]["restarts"] == 1);
    assert_eq!(sql_soon(&world.details(CLAIMS, "postgres"), "select n from t"), "7");
    let shared = format!("{INSTANCES}/postgresinstances/shared");
    world.delete(&shared);
    let refused = |i: &Value| says(&condition(i, "Removable")["message"], "1 PostgresDatabase are in it");
    world.until(&shared, "refused while others are in it", refused);
    for name in ["tenant", "postgres"] {
        world.delete(&format!("{CLAIMS}/{name}"));
        world.gone(&format!("{CLAIMS}/{name}"));
    }
    world.gone(&shared);
    soon("all of it gone", || world.list(&format!("{INSTANCES}/postgresinstances")).is_empty().then_some(()));
}

#[test]
fn a_postgres_database_that_vanished_inside_its_server_is_lost() {
    if !has("PostgreSQL", POSTGRES) {
        return;
    }
    let rename = |world: &World, implementation: &Value, from: &str, to: &str| {
        let socket = socket(world, implementation).display().to_string();
        let (port, rename) =
            (implementation["status"]["port"].to_string(), format!("alter database {from} rename to {to}"));
        let admin = ["-XqAt", "-h", &socket, "-p", &port, "-U", "conductor", "-d", "template1", "-c", &rename];
        soon("renamed", || Command::new("psql").args(admin).status().expect("runs").success().then_some(()));
    };
    vanishes_inside(
        "postgres",
        |world, implementation, _| rename(world, implementation, "app", "aside"),
        |world, implementation, details| {
            rename(world, implementation, "aside", "app");
            assert_eq!(sql_soon(details, "select n from t"), "7", "nothing of it is lost");
        },
    );
}

#[test]
fn a_mariadb_database_that_its_tenant_dropped_is_lost() {
    if !has("MariaDB", MARIADB) {
        return;
    }
    let run = |details: &Details, statement: &str| {
        let mut details = details.clone();
        details.insert("database".into(), "information_schema".into());
        sql(&details, statement).expect("may");
    };
    vanishes_inside(
        "mariadb",
        |_, _, details| run(details, "drop database app"),
        |_, _, details| run(details, "create database app"),
    );
}

/// The login in a claim's Secret works, whatever is being rotated: if not, the Secret has another by now.
fn login_works(world: &World) {
    let details = world.details(CLAIMS, "db");
    let mut answer = sql(&details, "select 1");
    // MariaDB does not tell who has which password: whoever is connected when the old one ends is ended once, and refused nothing
    if answer.as_ref().is_err_and(|why| why.contains("ERROR 2013")) {
        answer = sql(&details, "select 1");
    }
    if let Err(refused) = answer {
        assert_ne!(world.details(CLAIMS, "db"), details, "the claim's login is refused: {refused}");
    }
}

fn rotates(class: &str) {
    let mut world = World::new();
    claim(&world, "db", json!({"class": class}));
    let first = world.details(CLAIMS, "db");
    sql(&first, "create table t (n int); insert into t values (7)").expect("may");
    let (path, implementation) = behind(&world, "db");
    let secret = "/api/v1/namespaces/default/secrets/db-relationaldatabase";

    // the claim's Secret cannot be replaced: its login works for as long as that takes, over a crash and the next rotation
    world.patch(secret, json!({"immutable": true}));
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 0}}));
    world.until(&path, "rotated", |i| i["status"]["rotated"] == 1);
    let stuck = |c: &Value| condition(c, "ConnectionReady")["reason"] == "Immutable";
    world.until(&format!("{CLAIMS}/db"), "saying so", stuck);
    world.kill_conductor();
    assert_eq!(sql(&first, "select n from t").as_deref(), Ok("7"));
    world.start_conductor();
    world.patch(&path, json!({"spec": {"rotate": 2}}));
    let seen = |i: &Value| i["status"]["observedGeneration"] == i["metadata"]["generation"];
    let waiting = world.until(&path, "looked at", seen);
    assert_eq!((&waiting["status"]["rotated"], &waiting["status"]["retired"]), (&json!(1), &Value::Null));
    assert_eq!(condition(&waiting, "Rotated")["reason"], "Replacing", "{waiting}");
    assert_eq!(sql(&first, "select n from t").as_deref(), Ok("7"));
    let name = implementation["status"]["connectionSecretRef"]["name"].as_str().expect("is named");
    let second = world.secret("conductor-system", name);
    assert_eq!(sql(&second, "select n from t").as_deref(), Ok("7"), "the new login works, too");

    // out of the way: made anew, and only then the old ones end
    world.delete(secret);
    world.until(&path, "retired", |i| i["status"]["retired"] == 2);
    let mut last = world.details(CLAIMS, "db");
    assert_eq!(sql(&last, "select n from t").as_deref(), Ok("7"));
    for old in [&first, &second] {
        assert!(sql(old, "select 1").is_err(), "an old login is refused");
    }

    // killed at any moment of a rotation
    for (round, wait) in (3..).zip([0, 5, 20, 60, 150]) {
        world.patch(&path, json!({"spec": {"rotate": round}}));
        std::thread::sleep(Duration::from_millis(wait));
        world.kill_conductor();
        world.start_conductor();
        let begun = Instant::now();
        while world.get(&path).expect("is there")["status"]["retired"] != round {
            login_works(&world);
            assert!(begun.elapsed() < Duration::from_secs(90), "rotation {round} is never over");
        }
        let new = world.details(CLAIMS, "db");
        assert_eq!(sql(&new, "select n from t").as_deref(), Ok("7"));
        assert!(sql(&last, "select 1").is_err(), "the login from before rotation {round} is refused");
        last = new;
    }
}

#[test]
fn postgres_logins_work_until_the_claims_secret_has_the_next() {
    if has("rotation on PostgreSQL", POSTGRES) {
        rotates("postgres");
    }
}

#[test]
fn mariadb_logins_work_until_the_claims_secret_has_the_next() {
    if has("rotation on MariaDB", MARIADB) {
        rotates("mariadb");
    }
}

/// Applies an example's file.
fn apply_file(world: &World, file: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    let text = fs::read_to_string(&path).expect("is there");
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).expect("is YAML");
        let path = match object["kind"].as_str().expect("has a kind") {
            "RelationalDatabaseClass" => CLASSES.to_owned(),
            "RelationalDatabaseClaim" => CLAIMS.to_owned(),
            kind => format!("{INSTANCES}/{}s", kind.to_ascii_lowercase()),
        };
        world.create(&path, &object);
    }
}

#[test]
fn the_same_application_directory_runs_over_two_sets_of_classes() {
    if !has("portability", POSTGRES) {
        return;
    }
    for (classes, kind) in [("own-servers", "PostgresInstance"), ("shared-server", "PostgresDatabase")] {
        let world = World::new();
        apply_file(&world, &format!("classes/{classes}.yaml"));
        apply_file(&world, "shop/claim.yaml");
        application(&world.details(CLAIMS, "shop-db"));
        assert_eq!(behind(&world, "shop-db").1["kind"], kind);
    }
}

fn portable(engine: &str, instance: &str, database: &str) {
    let world = World::new();
    shared_server(&world, instance);
    let asked = json!({"engine": engine, "class": "standard", "resources": {"requests": {"storage": "1Gi"}}});
    let sets = [
        (instance, json!({"storage": "${resource.spec.capacity.storage}"})),
        (
            database,
            json!({"serverSecretRef": {"name": shared_secret(instance)}, "storage": "${resource.spec.capacity.storage}"}),
        ),
    ];
    for (kind, template) in sets {
        class(&world, "standard", "Recycle", kind, template);
        claim(&world, "db", asked.clone());
        let first = world.details(CLAIMS, "db");
        application(&first);
        let (path, implementation) = behind(&world, "db");
        assert_eq!(implementation["kind"], kind);
        assert!(condition(&implementation, "WithinCapacity")["status"] == "True", "{implementation}");

        // released and recycled: the next claim finds nothing of it, and the old login is refused
        world.delete_now(&format!("{CLAIMS}/db"));
        let scrubbed = world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1);
        assert_eq!(condition(&scrubbed, "Scrubbed")["status"], "True", "{scrubbed}");
        world.until(&resource_of(&implementation), "free", |r| r["status"]["phase"] == "Available");
        claim(&world, "db", asked.clone());
        let second = world.details(CLAIMS, "db");
        assert_eq!(behind(&world, "db").0, path, "it is used again");
        assert_ne!(first["password"], second["password"]);
        assert!(sql(&first, "select 1").is_err(), "the old login is refused");
        application(&second);
        // another's database in the same server is closed to it
        if kind == database {
            claim(&world, "other", asked.clone());
            let mut other = world.details(CLAIMS, "other");
            application(&other);
            let (server, _) = other["uri"].rsplit_once('/').expect("names a database");
            let swap = format!("{server}/{}", second["database"]);
            other.insert("uri".into(), swap);
            other.insert("database".into(), second["database"].clone());
            assert!(sql(&other, "select words from greeting").is_err(), "claims are kept apart");
            if engine == "postgres" {
                // as a server leaves it that is killed while it drops it
                let half = "update pg_database set datconnlimit = -2 where datname = ";
                let admin = world.secret("conductor-system", &shared_secret(instance));
                let own = behind(&world, "other").1["metadata"]["uid"].as_str().expect("has one").replace('-', "");
                sql(&admin, &format!("{half}'c_{own}'")).expect("may");
            }
            world.delete_now(&format!("{CLAIMS}/other"));
        }
        world.delete_now(&format!("{CLAIMS}/db"));
        // the administrator clears the class away, with what it kept for reuse
        world.delete(&format!("{CLASSES}/standard"));
        for resource in world.list(RESOURCES) {
            let name = resource["metadata"]["name"].as_str().expect("has a name");
            world.until(&format!("{RESOURCES}/{name}"), "free", |r| r["status"]["phase"] == "Available");
            world.patch(&format!("{RESOURCES}/{name}"), json!({"spec": {"reclaimPolicy": "Delete"}}));
            world.delete_now(&format!("{RESOURCES}/{name}"));
        }
        world.gone(&path);
    }
    let left = if engine == "postgres" { left_in_postgres(&world) } else { left_in_mariadb(&world) };
    assert_eq!(left, "0", "no database and no role is left");
    world.audit_is_clean();
}

#[test]
fn one_application_runs_on_own_and_on_shared_postgres_servers() {
    if has("portability on PostgreSQL", POSTGRES) {
        portable("postgres", "PostgresInstance", "PostgresDatabase");
    }
}

#[test]
fn one_application_runs_on_own_and_on_shared_mariadb_servers() {
    if has("portability on MariaDB", MARIADB) {
        portable("mysql", "MariaDBInstance", "MariaDBDatabase");
    }
}

#[test]
fn a_version_that_is_not_installed_is_waited_for_and_never_replaced_by_another() {
    if !has("versions", POSTGRES) {
        return;
    }
    let world = World::new();
    claim(&world, "old", json!({"class": "postgres", "version": ">= 9"}));
    claim(&world, "new", json!({"class": "postgres", "version": ">= 99"}));
    let details = world.details(CLAIMS, "old");
    let version = sql(&details, "show server_version_num").expect("may");
    assert!(version.parse::<u32>().expect("is a number") >= 90_000, "{version}");
    let waits = |c: &Value| says(&c["status"]["message"], "apt-get install postgresql-99");
    let new = world.until(&format!("{CLAIMS}/new"), "waiting for its version", waits);
    assert_eq!(new["status"]["phase"], "Pending", "{new}");
}

/// Two kinds may have objects of one name, and a Secret that is another's is left alone.
#[test]
fn each_server_has_a_secret_of_its_own() {
    if !has("Secrets of one name", POSTGRES) || !has("Secrets of one name", MARIADB) {
        return;
    }
    let world = World::new();
    for (kind, word) in [("PostgresInstance", "postgresql"), ("MariaDBInstance", "mysql")] {
        shared_server(&world, kind);
        let details = world.secret("conductor-system", &shared_secret(kind));
        assert_eq!(details["type"], word, "{kind}");
        sql_soon(&details, "select 1");
    }

    let secrets = "/api/v1/namespaces/conductor-system/secrets";
    let theirs = json!({"metadata": {"name": "taken-postgresinstance"}, "stringData": {"note": "mine"}});
    world.create(secrets, &theirs);
    let server = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": "PostgresInstance", "metadata": {"name": "taken"}, "spec": {},
    });
    world.create(&format!("{INSTANCES}/postgresinstances"), &server);
    let own = format!("{INSTANCES}/postgresinstances/taken");
    let refused = world.until(&own, "refused", |i| condition(i, "Ready")["reason"] == "SecretTaken");
    assert!(says(&condition(&refused, "Ready")["message"], "taken-postgresinstance is not Conductor's"), "{refused}");
    let kept = world.get(&format!("{secrets}/taken-postgresinstance")).expect("is there");
    assert_eq!(kept["data"], json!({"note": "bWluZQ=="}));
    world.delete(&format!("{secrets}/taken-postgresinstance"));
    world.until(&own, "ready", ready);
    sql_soon(&world.secret("conductor-system", "taken-postgresinstance"), "select 1");
}

/// A setting that the engine does not start with is named, and stops nothing that runs.
fn refused_settings(kind: &str, good: (&str, &str), bad: (&str, &str), word: &str) {
    let world = World::new();
    let own = with_settings(&world, kind, "a", json!({good.0: good.1}));
    let running = world.until(&own, "ready", ready);
    let before = server(&world, &running).1;
    world.patch(&own, json!({"spec": {"settings": {bad.0: bad.1}}}));
    let refused = world.until(&own, "refused", |i| condition(i, "SettingsApplied")["status"] == "False");
    assert!(says(&condition(&refused, "SettingsApplied")["message"], word), "{refused}");
    assert!(ready(&refused) && says(&condition(&refused, "Ready")["message"], word), "{refused}");
    assert_eq!(server(&world, &refused).1, before, "it goes on");
    let name = format!("a-{}", kind.to_ascii_lowercase());
    sql(&world.secret("conductor-system", &name), "select 1").expect("is answered");
    world.patch(&own, json!({"spec": {"settings": {bad.0: null}}}));
    world.until(&own, "corrected", |i| ready(i) && condition(i, "SettingsApplied")["status"] == "True");

    // one that never ran says so before it ever does
    let new = with_settings(&world, kind, "b", json!({bad.0: bad.1}));
    let refused = world.until(&new, "refused", |i| condition(i, "Ready")["reason"] == "InvalidSettings");
    assert!(says(&condition(&refused, "Ready")["message"], word), "{refused}");
    world.patch(&new, json!({"spec": {"settings": {bad.0: null}}}));
    world.until(&new, "ready", ready);
    world.audit_is_clean();
}

fn with_settings(world: &World, kind: &str, name: &str, settings: Value) -> String {
    let path = format!("{INSTANCES}/{}s", kind.to_ascii_lowercase());
    let server = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": {"settings": settings},
    });
    world.create(&path, &server);
    format!("{path}/{name}")
}

/// What no trial shows is said with the server's own words, once, and over when the setting is.
fn settings_that_only_a_start_shows(kind: &str, bad: (&str, &str), word: &str) {
    let world = World::new();
    let own = with_settings(&world, kind, "a", json!({bad.0: bad.1}));
    let ends = |i: &Value| {
        let why = &condition(i, "Ready")["message"];
        condition(i, "Ready")["reason"] == "Restarting" && says(why, word) && says(why, "correct spec.settings")
    };
    let first = world.until(&own, "told why it does not start", ends);
    let starts = || world.conductor(&["logs", &format!("{kind}/a"), "--lines", "5000"]).matches(word).count();
    let before = starts();
    soon("started again", || (starts() > before).then_some(()));
    let later = world.until(&own, "told so", ends);
    assert_eq!(condition(&later, "Ready")["message"], condition(&first, "Ready")["message"], "is said once");
    world.patch(&own, json!({"spec": {"settings": {bad.0: null}}}));
    world.until(&own, "ready", ready);
}

#[test]
fn a_setting_that_postgres_does_not_start_with_stops_nothing() {
    if has("refused settings of PostgreSQL", POSTGRES) {
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("work_memm", "1"), "work_memm");
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("shared_buffers", "900GB"), "shared memory");
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("shared_preload_libraries", "nowhere"), "nowhere");
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("port", "5555"), "Conductor sets it itself");
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("ssl", "on"), "server certificate");
        let group = ("unix_socket_group", "nobody-has-this");
        settings_that_only_a_start_shows("PostgresInstance", group, "Unix-domain sockets");
    }
}

#[test]
fn a_setting_that_mariadb_does_not_start_with_stops_nothing() {
    if has("refused settings of MariaDB", MARIADB) {
        let good = ("sort_buffer_size", "1M");
        refused_settings("MariaDBInstance", good, ("sort_buffer_sizes", "1"), "sort_buffer_sizes");
        refused_settings("MariaDBInstance", good, ("innodb_buffer_pool_size", "900G"), "innodb_buffer_pool_size");
        refused_settings("MariaDBInstance", good, ("bind-address", "192.0.2.1"), "Conductor sets it itself");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = taken.local_addr().expect("has one").port().to_string();
        settings_that_only_a_start_shows("MariaDBInstance", ("extra-port", &port), "Address already in use");
    }
}
