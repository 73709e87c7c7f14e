//! A data directory that is copied or moved, with databases in a server that somebody else runs: they are one directory's at a time.

mod common;

use std::fs;
use std::process::Command;

use common::database::*;
use common::world::{MARIADB, POSTGRES, World, condition, has, ready, soon};
use serde_json::{Value, json};

/// One that uses a server of another's.
fn guest(host: &World, instance: &str, database: &str) -> World {
    shared_server(host, instance);
    let details = host.secret("conductor-system", &shared_secret(instance));
    let world = World::new();
    let secret = json!({"metadata": {"name": "elsewhere"}, "stringData": details});
    world.create("/api/v1/namespaces/conductor-system/secrets", &secret);
    class(&world, "tenant", "Delete", database, json!({"serverSecretRef": {"name": "elsewhere"}}));
    world
}

fn message(object: &Value) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

/// Does what an object says is to be done to have its database here.
fn take_over(why: &str) {
    let (_, command) = why.split_once("echo").expect("says what to do");
    let command = command.split(';').next().unwrap_or_default();
    assert!(Command::new("sh").args(["-c", &format!("echo {command}")]).status().expect("runs").success(), "{why}");
}

fn a_copy_leaves_it_alone(instance: &str, database: &str, left: fn(&World) -> String) {
    let host = World::new();
    let mut world = guest(&host, instance, database);
    claim(&world, "db", json!({"class": "tenant"}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table kept as select 1 as one").expect("may");
    let kept = || assert_eq!(sql(&details, "select one from kept").as_deref(), Ok("1"));
    assert!(world.home("databases").starts_with(&world.data), "it is copied with all the rest");

    // what it says is the original's, whoever asks for what
    let mut copy = world.copy();
    let (path, _) = behind(&copy, "db");
    let foreign = |object: &Value| condition(object, "Ready")["reason"] == "Foreign";
    let said = message(&copy.until(&path, "left alone", foreign));
    assert!(said.contains(&format!("{}, of which this is a copy", world.data.display())), "{said}");
    let (fine, found) = copy.audit();
    assert!(!fine && found.contains("database-is-own"), "{found}");
    copy.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 0}}));
    copy.delete(&format!("{CLAIMS}/db"));
    let removal = |object: &Value| condition(object, "Ready")["reason"] == "RemovalFailed";
    let said = message(&copy.until(&path, "kept", removal));
    assert!(said.contains("is left alone") && said.contains("finalizers"), "{said}");
    kept();
    // what it makes is its own
    claim(&copy, "own", json!({"class": "tenant"}));
    let own = copy.details(CLAIMS, "own");
    sql_soon(&own, "select 1");
    let (of_own, _) = behind(&copy, "own");
    copy.delete_now(&format!("{CLAIMS}/own"));
    copy.gone(&of_own);
    world.audit_is_clean();
    copy.kill_conductor();

    // to another file system
    world.kill_conductor();
    let moved = world.data.with_file_name("moved");
    assert!(Command::new("cp").arg("-a").args([&world.data, &moved]).status().expect("runs").success());
    fs::remove_dir_all(&world.data).expect("may");
    world.data = moved;
    world.start_conductor();
    world.until(&format!("{CLAIMS}/db"), "ready", ready);
    world.poke(&path);
    world.audit_is_clean();
    kept();
    copy.start_conductor();
    soon("left alone", || message(&copy.get(&path)?).contains("another data directory").then_some(()));
    kept();

    // when an administrator says so
    world.kill_conductor();
    take_over(&message(&copy.get(&path).expect("is there")));
    copy.poke(&path);
    copy.gone(&path);
    assert_eq!(left(&host), "0");
    copy.audit_is_clean();
    world.start_conductor();
    world.until(&path, "lost", |object| condition(object, "Ready")["reason"] == "Lost");
}

#[test]
fn a_copy_leaves_databases_in_a_postgres_server_alone() {
    if has("copies with PostgreSQL", POSTGRES) {
        a_copy_leaves_it_alone("PostgresInstance", "PostgresDatabase", left_in_postgres);
    }
}

#[test]
fn a_copy_leaves_databases_in_a_mariadb_server_alone() {
    if has("copies with MariaDB", MARIADB) {
        a_copy_leaves_it_alone("MariaDBInstance", "MariaDBDatabase", left_in_mariadb);
    }
}

/// One from before directories had marks of their own, and a comment that is the tenant's: both are as ours as ever.
fn an_old_mark_is_renewed(instance: &str, database: &str, comment: fn(&str, &str) -> String) {
    let host = World::new();
    let mut world = guest(&host, instance, database);
    claim(&world, "db", json!({"class": "tenant"}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table kept as select 1 as one").expect("may");
    let (path, _) = behind(&world, "db");
    world.kill_conductor();
    let file = world.home("databases").join("installation");
    let mark = fs::read_to_string(&file).expect("is kept").lines().next().expect("has one").to_owned();
    fs::write(&file, &mark).expect("may");
    world.start_conductor();
    let renewed = || fs::read_to_string(&file).is_ok_and(|text| text.contains(&format!("former {mark}"))).then_some(());
    world.poke(&path);
    soon("renewed", renewed);
    world.until(&path, "ready", ready);
    world.audit_is_clean();

    sql(&details, &comment(&details["database"], "a shop")).expect("is its own");
    world.patch(&path, json!({"spec": {"maxConnections": 7}}));
    let seen = |i: &Value| i["status"]["observedGeneration"] == i["metadata"]["generation"];
    assert!(ready(&world.until(&path, "looked at", seen)));
    assert_eq!(sql(&details, "select one from kept").as_deref(), Ok("1"));
    world.delete_now(&format!("{CLAIMS}/db"));
    world.gone(&path);
    world.audit_is_clean();
}

#[test]
fn a_postgres_database_with_an_old_mark_or_a_comment_is_ours() {
    if has("marks in PostgreSQL", POSTGRES) {
        let comment = |database: &str, text: &str| format!("comment on database {database} is '{text}'");
        an_old_mark_is_renewed("PostgresInstance", "PostgresDatabase", comment);
    }
}

#[test]
fn a_mariadb_database_with_an_old_mark_or_a_comment_is_ours() {
    if has("marks in MariaDB", MARIADB) {
        let comment = |database: &str, text: &str| format!("alter database {database} comment '{text}'");
        an_old_mark_is_renewed("MariaDBInstance", "MariaDBDatabase", comment);
    }
}
