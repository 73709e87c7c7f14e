//! A database that several claims share: real PostgreSQL and MariaDB, each claim with a login of its own.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use common::database::*;
use common::world::{MARIADB, POSTGRES, World, condition, has, ready, soon};
use serde_json::json;

/// A client that is connected for ten minutes.
fn connected(details: &std::collections::BTreeMap<String, String>) -> Child {
    let mut command;
    if details["type"] == "postgresql" {
        command = Command::new("psql");
        command.args(["-Xq", "-c", "select pg_sleep(600)", &details["uri"]]);
    } else {
        command = Command::new("mariadb");
        let login =
            [format!("-h{}", details["host"]), format!("-P{}", details["port"]), format!("-u{}", details["username"])];
        command.args(["--no-defaults", "--protocol=tcp", "-e", "select sleep(600)"]).args(login);
        command.env("MYSQL_PWD", &details["password"]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the client runs")
}

/// A database of 3Gi for up to four claims.
fn shared_database(world: &World, kind: &str, spec: serde_json::Value) {
    world.create(
        RESOURCES,
        &json!({
            "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabase", "metadata": {"name": "multi"},
            "spec": {
                "class": "multi", "engine": "sql", "maxClaims": 4, "reclaimPolicy": "Recycle", "capacity": {"storage": "3Gi"},
                "template": {"apiVersion": "database.local.conductor.io/v1alpha1", "kind": kind, "spec": spec},
            },
        }),
    );
}

fn each_has_its_own(kind: &str, spec: serde_json::Value) {
    // what is told is enough: nothing is looked at because some time went by
    let mut world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    let own_server = spec["serverSecretRef"].is_null();
    if !own_server {
        shared_server(&world, kind.replace("Database", "Instance").as_str());
    }
    shared_database(&world, kind, spec);
    for (name, size) in [("a", "1Gi"), ("b", "2Gi")] {
        let asked = json!({"requests": {"storage": size}});
        claim(&world, name, json!({"class": "multi", "resources": asked}));
    }
    let (a, b) = (world.details(CLAIMS, "a"), world.details(CLAIMS, "b"));
    assert!(a["username"] != b["username"] && a["password"] != b["password"] && a["database"] == b["database"]);
    for (name, size) in [("a", "1Gi"), ("b", "2Gi")] {
        let claim = world.get(&format!("{CLAIMS}/{name}")).expect("is there");
        assert_eq!(claim["status"]["capacity"], json!({"storage": size}), "what is its own");
    }

    // they work on the same things, whoever made them
    sql(&a, "create table t (n int)").expect("may");
    sql(&a, "create view v as select n + 1 as m from t").expect("may");
    sql(&b, "alter table t add column words varchar(20)").expect("may");
    sql(&b, "insert into t values (1, 'b')").expect("may");
    assert_eq!(sql(&a, "select words from t").as_deref(), Ok("b"));
    assert_eq!(sql(&b, "select m from v").as_deref(), Ok("2"));

    // who leaves is out, with all that it had open; the other notices nothing
    let (path, implementation) = behind(&world, "b");
    let (mut of_a, mut of_b) = (connected(&a), connected(&b));
    let sessions = match a["type"].as_str() {
        "postgresql" => "select count(*) from pg_stat_activity where query like 'select pg_sleep%'",
        _ => "select count(*) from information_schema.processlist where info like 'select sleep%'",
    };
    // who sees the sessions of both: the server's administrator where it is registered
    if !own_server {
        let server = world.secret("conductor-system", &shared_secret(&kind.replace("Database", "Instance")));
        soon("both are connected", || (sql(&server, sessions).as_deref() == Ok("2")).then_some(()));
    }
    world.delete(&format!("{CLAIMS}/a"));
    world.gone(&format!("{CLAIMS}/a"));
    soon("what it had open ends", || of_a.try_wait().expect("is ours"));
    soon("its login is refused", || sql(&a, "select 1").err());
    assert_eq!(of_b.try_wait().expect("is ours"), None, "the other's goes on");
    assert_eq!(world.details(CLAIMS, "b"), b);
    assert_eq!(sql(&b, "select m from v").as_deref(), Ok("2"), "what it made is there for the other");
    sql(&b, "drop view v; drop table t; create table t (n int); insert into t values (7)").expect("may");
    let _ = (of_b.kill(), of_b.wait());
    let after =
        world.until(&path, "saying so", |i| i["status"]["connections"].as_array().is_some_and(|c| c.len() == 1));
    assert_eq!(after["status"]["rotated"], implementation["status"]["rotated"], "nothing is replaced for the other");

    // a rotation is one of all logins, and of whoever is connected
    let mut open = Session::open(&b).expect("works");
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 0}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    let next = world.details(CLAIMS, "b");
    assert_ne!(next["password"], b["password"]);
    assert_eq!(sql(&next, "select n from t").as_deref(), Ok("7"));
    soon("the old one is refused", || sql(&b, "select 1").err());
    assert_eq!(open.ask("select n from t"), None, "what was open is ended");

    // a new claim has another, over a crash
    claim(&world, "c", json!({"class": "multi"}));
    world.kill_conductor();
    world.start_conductor();
    let c = world.details(CLAIMS, "c");
    assert!(c["username"] != next["username"] && c["username"] != a["username"]);
    assert_eq!(sql_soon(&c, "select n from t"), "7");

    // the Secret that it is kept in: what somebody else makes of it is taken, or made anew
    let name = after["status"]["connections"][0]["secretRef"]["name"].as_str().expect("is named");
    let secret = format!("/api/v1/namespaces/conductor-system/secrets/{name}");
    world.patch(&secret, json!({"stringData": {"password": "another"}}));
    let works = || {
        let own = world.details(CLAIMS, "b");
        let whole = own["uri"].contains(&format!(":{}@", own["password"]));
        Some(own).filter(|own| whole && sql(own, "select n from t").as_deref() == Ok("7"))
    };
    soon("a login that works", works);
    let uid = world.get(&secret).expect("is there")["metadata"]["uid"].clone();
    world.delete(&secret);
    soon("made anew", || world.get(&secret).filter(|secret| secret["metadata"]["uid"] != uid));
    let made = soon("a login that works", works);
    world.audit_is_clean();

    // somebody drops a login in the server: whoever misses it has it again
    if !own_server {
        let server = world.secret("conductor-system", &shared_secret(&kind.replace("Database", "Instance")));
        let user = &made["username"];
        let drop = match a["type"].as_str() {
            "postgresql" => format!("drop role {user}"),
            _ => format!("drop user '{user}'@'%'"),
        };
        sql(&server, &drop).expect("may");
        assert_eq!(sql_soon(&made, "select n from t"), "7");
    }

    // the last one out: nobody's login is left, and nothing of theirs
    for name in ["b", "c"] {
        world.delete(&format!("{CLAIMS}/{name}"));
    }
    world.until(&format!("{RESOURCES}/multi"), "free again", |r| r["status"]["phase"] == "Available");
    let none = |i: &serde_json::Value| i["status"]["connections"] == json!([]);
    world.until(&path, "having no logins", none);
    for old in [&made, &c] {
        assert!(sql(old, "select 1").is_err(), "an old login is refused");
    }
    world.delete(&format!("{RESOURCES}/multi"));
    world.gone(&path);
    match kind {
        "PostgresDatabase" => assert_eq!(left_in_postgres(&world), "0"),
        "MariaDBDatabase" => assert_eq!(left_in_mariadb(&world), "0"),
        _ => {}
    }
    world.audit_is_clean();
}

#[test]
fn claims_of_one_postgres_server_have_logins_of_their_own() {
    if has("PostgreSQL", POSTGRES) {
        each_has_its_own("PostgresInstance", json!({}));
    }
}

#[test]
fn claims_of_one_mariadb_server_have_logins_of_their_own() {
    if has("MariaDB", MARIADB) {
        each_has_its_own("MariaDBInstance", json!({}));
    }
}

#[test]
fn claims_of_one_postgres_database_have_logins_of_their_own() {
    if has("PostgreSQL", POSTGRES) {
        each_has_its_own("PostgresDatabase", json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}}));
    }
}

#[test]
fn claims_of_one_mariadb_database_have_logins_of_their_own() {
    if has("MariaDB", MARIADB) {
        each_has_its_own("MariaDBDatabase", json!({"serverSecretRef": {"name": shared_secret("MariaDBInstance")}}));
    }
}

#[test]
fn an_open_transaction_of_one_claim_stands_in_nobodys_way() {
    if !has("PostgreSQL", POSTGRES) {
        return;
    }
    let world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    shared_database(&world, "PostgresInstance", json!({}));
    for name in ["a", "b"] {
        claim(&world, name, json!({"class": "multi"}));
    }
    let (a, b) = (world.details(CLAIMS, "a"), world.details(CLAIMS, "b"));
    let (path, _) = behind(&world, "b");
    // what is a login's own, and in use by another's transaction
    sql(&a, "set role none; create table held as select 1 as one; grant all on held to app").expect("may");
    let mut open = Command::new("psql");
    let mut open = open.args(["-XqAt", &b["uri"]]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let mut input = open.stdin.take().expect("is piped");
    input.write_all(b"begin;\nselect one from held;\n").expect("is read");
    let mut answer = String::new();
    BufReader::new(open.stdout.take().expect("is piped")).read_line(&mut answer).expect("answers");
    assert_eq!(answer.trim(), "1");

    world.delete_now(&format!("{CLAIMS}/a"));
    let said = world.until(&path, "saying what it waits for", |i| condition(i, "Cleared")["reason"] == "Locked");
    assert!(ready(&said), "{said:#}");
    assert!(condition(&said, "Cleared")["message"].as_str().is_some_and(|m| m.contains(&a["username"])), "{said:#}");
    assert!(sql(&a, "select 1").is_err(), "the login is ended all the same");
    assert_eq!(sql(&b, "select one from held").as_deref(), Ok("1"));
    claim(&world, "c", json!({"class": "multi"}));
    assert_eq!(sql_soon(&world.details(CLAIMS, "c"), "select one from held"), "1");
    assert!(ready(&world.get(&format!("{CLAIMS}/b")).expect("is there")));

    drop(input);
    open.wait().expect("ends");
    world.until(&path, "cleared", |i| condition(i, "Cleared")["status"] == "True");
    let left = format!("select count(*) from pg_roles where rolname = '{}'", a["username"]);
    assert_eq!(sql(&b, &left).as_deref(), Ok("0"));
    sql(&b, "drop table held").expect("is everyone's now");
}

/// The same for MariaDB, where not a transaction but a table that is locked or being made is in the way.
#[test]
fn a_locked_table_of_one_claim_stands_in_nobodys_way() {
    if !has("MariaDB", MARIADB) {
        return;
    }
    let world = World::with(&[("CONDUCTOR_LOOK_AGAIN_SECONDS", "3600")]);
    shared_database(&world, "MariaDBInstance", json!({}));
    for name in ["a", "b"] {
        claim(&world, name, json!({"class": "multi"}));
    }
    let (a, b) = (world.details(CLAIMS, "a"), world.details(CLAIMS, "b"));
    let (path, _) = behind(&world, "b");
    sql(&a, "create table held as select 1 as one").expect("may");
    let login = [format!("-h{}", b["host"]), format!("-P{}", b["port"]), format!("-u{}", b["username"])];
    let mut open = Command::new("mariadb");
    open.args(["--no-defaults", "--protocol=tcp", "-nBN"]).args(login).arg(&b["database"]);
    open.env("MYSQL_PWD", &b["password"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut open = open.spawn().expect("runs");
    let mut input = open.stdin.take().expect("is piped");
    input.write_all(b"lock tables held write;\nselect one from held;\n").expect("is read");
    let mut answer = String::new();
    BufReader::new(open.stdout.take().expect("is piped")).read_line(&mut answer).expect("answers");
    assert_eq!(answer.trim(), "1");
    claim(&world, "c", json!({"class": "multi"}));
    assert_eq!(sql_soon(&world.details(CLAIMS, "c"), "select 2"), "2");
    assert!(ready(&world.get(&path).expect("is there")));

    input.write_all(b"unlock tables;\ncreate table long_one as select sleep(600);\n").expect("is read");
    let running = "select id from information_schema.processlist where info like 'create table long_one%'";
    let id = soon("making a table", || sql(&b, running).ok().filter(|id| !id.is_empty()));
    world.delete_now(&format!("{CLAIMS}/a"));
    let said = world.until(&path, "saying what it waits for", |i| condition(i, "Cleared")["reason"] == "Locked");
    assert!(ready(&said), "{said:#}");
    assert!(condition(&said, "Cleared")["message"].as_str().is_some_and(|m| m.contains(&a["username"])), "{said:#}");
    assert!(sql(&a, "select 1").is_err(), "the login is ended all the same");
    claim(&world, "d", json!({"class": "multi"}));
    assert_eq!(sql_soon(&world.details(CLAIMS, "d"), "select one from held"), "1");
    sql(&b, &format!("kill {id}")).expect("is its own");
    world.until(&path, "cleared", |i| condition(i, "Cleared")["status"] == "True");
    let _ = (open.kill(), open.wait());
}

/// Somebody deletes the provider's Secret: those who use the database go on, and get the next login as by a rotation.
fn outlives_its_secret(class: &str) {
    let world = World::new();
    claim(&world, "db", json!({"class": class}));
    let old = world.details(CLAIMS, "db");
    let own = world.get(&format!("{CLAIMS}/db")).expect("is there")["status"]["binding"]["name"].clone();
    let own = || world.secret("default", own.as_str().expect("is named"));
    let (path, implementation) = behind(&world, "db");
    let name = implementation["status"]["connectionSecretRef"]["name"].as_str().expect("is named");
    let secret = format!("/api/v1/namespaces/conductor-system/secrets/{name}");

    // while it cannot be written, nothing changes
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let (policy, binding) =
        (format!("{policies}/validatingadmissionpolicies"), format!("{policies}/validatingadmissionpolicybindings"));
    world.create(
        &policy,
        &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "none"},
            "spec": {
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]},
                ]},
                "validations": [{"expression": "object.metadata.namespace != 'conductor-system'", "message": "none here"}],
            },
        }),
    );
    world.create(
        &binding,
        &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "none"}, "spec": {"policyName": "none", "validationActions": ["Deny"]},
        }),
    );
    let trial = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "trial"}});
    let all = "/api/v1/namespaces/conductor-system/secrets?dryRun=All";
    soon("forbidden", || (world.request("POST", all, Some((common::JSON, &trial))).0 != 201).then_some(()));
    world.delete(&secret);
    let said = world.until(&path, "saying so", |i| condition(i, "Ready")["reason"] == "SecretRefused");
    assert!(condition(&said, "Ready")["message"].as_str().is_some_and(|m| m.contains("none here")), "{said:#}");
    sql(&old, "select 1").expect("works as before");
    assert_eq!(own(), old);

    // then it is a rotation
    world.delete(&format!("{binding}/none"));
    world.delete(&format!("{policy}/none"));
    world.until(&path, "rotated", |i| i["status"]["rotated"] == 1);
    let new = soon("replaced", || Some(own()).filter(|new| new["password"] != old["password"]));
    sql(&new, "select 1").expect("works");
    sql(&old, "select 1").expect("works until its time is over");
    world.patch(&path, json!({"spec": {"rotationGraceSeconds": 0}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1 && ready(i));
    assert!(sql(&old, "select 1").is_err(), "its time is over");
    sql(&new, "select 1").expect("works");
}

#[test]
fn postgres_logins_outlive_the_providers_secret() {
    if has("PostgreSQL", POSTGRES) {
        outlives_its_secret("postgres");
    }
}

#[test]
fn mariadb_logins_outlive_the_providers_secret() {
    if has("MariaDB", MARIADB) {
        outlives_its_secret("mariadb");
    }
}
