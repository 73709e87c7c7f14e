//! What those who use a database can do to it and to others: real PostgreSQL and MariaDB, and tenants who mean no good.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::database::*;
use common::world::{MARIADB, POSTGRES, World, condition, has, ready, soon};
use serde_json::json;

/// The mode of a file or directory.
fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o7777
}

#[test]
fn what_a_superuser_does_in_its_data_leads_to_nothing_of_the_machines() {
    if !has("hostile superusers", POSTGRES) {
        return;
    }
    let world = World::new();
    class(&world, "mighty", "Delete", "PostgresInstance", json!({"superuser": true}));
    claim(&world, "db", json!({"class": "mighty", "engine": "postgres"}));
    let details = world.details(CLAIMS, "db");
    let (path, implementation) = behind(&world, "db");
    let (dir, _) = server(&world, &implementation);
    let victim = world.data.join("victim");
    fs::write(&victim, "kept").expect("may");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).expect("may");
    // a superuser of PostgreSQL runs programs as the server's account, in its data directory
    let run = |program: &str| sql(&details, &format!("copy (select 1) to program '{program}'"));
    for file in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
        run(&format!("ln -s {0} {file}.new; rm -f {file}; ln -s {0} {file}", victim.display())).expect("may");
    }
    // what is written then is written elsewhere
    let changed = json!({"spec": {"memory": "128Mi", "settings": {"work_mem": "3MB"}}});
    world.patch(&path, changed);
    world.until(&path, "ready again", |i| ready(i) && i["status"]["observedGeneration"] == i["metadata"]["generation"]);
    assert_eq!(sql_soon(&details, "show work_mem"), "3MB");
    assert_eq!(fs::read_to_string(&victim).expect("is there"), "kept");
    let meta = fs::metadata(&victim).expect("is there");
    assert_eq!((meta.uid(), mode(&victim)), (rustix::process::geteuid().as_raw(), 0o600));

    // and where it is not its own, it can neither write nor look
    if rustix::process::geteuid().is_root() {
        for file in ["postgresql.conf", "pg_hba.conf", "instance.json", "process.json", "log"] {
            run(&format!("echo x >> {}", dir.join(file).display())).expect_err("is ours");
        }
        for file in ["instance.json", "process.json", "log"] {
            run(&format!("cat {}", dir.join(file).display())).expect_err("is ours");
        }
        run("ls /var/cache/conductor/*.sealed").expect_err("later servers begin with that");
        run(&format!("ls {}", dir.display())).expect_err("is ours");
    }
    // the server of another claim is another's, with the same account or not: its files, its socket, its process
    claim(&world, "other", json!({"class": "mighty", "engine": "postgres"}));
    world.details(CLAIMS, "other");
    let (_, other) = behind(&world, "other");
    let (there, pid) = server(&world, &other);
    let door = socket(&world, &other);
    if conductor_local::account::has_own_ids() {
        let owner = |path: &Path| fs::symlink_metadata(path).expect("is there").uid();
        assert_ne!(owner(&dir.join("data")), owner(&there.join("data")));
        assert_eq!(owner(Path::new(&format!("/proc/{}", pid.expect("runs")))), owner(&there.join("data")));
        run(&format!("cat {}", there.join("data/PG_VERSION").display())).expect_err("is another's");
        run(&format!("ls {}", there.join("data").display())).expect_err("is another's");
        run(&format!("ls {}", door.display())).expect_err("is another's");
        run(&format!("psql -h {} -p {} -U conductor -d app -c \"select 1\"", door.display(), other["status"]["port"]))
            .expect_err("is another's");
        run(&format!("kill {}", pid.expect("runs"))).expect_err("is another's");
    }
    let home = world.home("databases");
    for (file, expected) in [("instance.json", 0o600), ("process.json", 0o600), ("log", 0o600)] {
        assert_eq!(mode(&dir.join(file)), expected, "{file}");
    }
    assert_eq!((mode(&home), mode(&home.join("postgres")), mode(&dir) & 0o707), (0o711, 0o711, 0o700));
    assert!(world.conductor(&["logs", "relationaldatabaseclaim/db"]).contains("ready"));
}

#[test]
fn no_tenant_makes_itself_a_superuser_when_its_login_is_rotated() {
    if !has("hostile tenants", POSTGRES) {
        return;
    }
    let world = World::new();
    claim(&world, "db", json!({"class": "postgres"}));
    let details = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    let trap = "create schema evil;\
        create function evil.pg_terminate_backend(int) returns boolean language plpgsql as $$ declare r record; begin \
          for r in select rolname from pg_catalog.pg_roles where rolname like 'app%' loop \
            execute format('alter role %I superuser', r.rolname); end loop; return true; end $$;\
        create view evil.pg_stat_activity as select 1 as pid, rolname as usename from pg_catalog.pg_roles;\
        create function evil.count() returns bigint language sql as 'select 0::bigint';\
        alter database app set search_path = evil, pg_catalog";
    sql(&details, trap).expect("a database's owner may");
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 1}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    let new =
        soon("a new login", || Some(world.details(CLAIMS, "db")).filter(|new| new["username"] != details["username"]));
    let mighty = "select coalesce(string_agg(rolname, ' '), 'none') from pg_catalog.pg_roles where rolsuper and rolname <> 'conductor'";
    assert_eq!(sql(&new, mighty).as_deref(), Ok("none"));
    assert!(sql(&details, "select 1").is_err(), "the old login is gone all the same");
}

/// The same login, to another database.
fn to_database(details: &BTreeMap<String, String>, database: &str) -> BTreeMap<String, String> {
    let (server, _) = details["uri"].rsplit_once('/').expect("names a database");
    let mut other = details.clone();
    other.extend([("uri".to_owned(), format!("{server}/{database}")), ("database".to_owned(), database.to_owned())]);
    other
}

#[test]
fn nothing_a_tenant_does_keeps_its_postgres_database_from_being_scrubbed() {
    if !has("hostile tenants", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}});
    class(&world, "standard", "Recycle", "PostgresDatabase", template);
    for name in ["db", "other"] {
        claim(&world, name, json!({"class": "standard"}));
    }
    let (own, other) = (world.details(CLAIMS, "db"), world.details(CLAIMS, "other"));
    let (path, implementation) = behind(&world, "db");
    let database = &own["database"];

    // who shuts it for itself finds it open again
    sql(&own, &format!("alter database {database} connection limit 0")).expect("a database's owner may");
    soon("shut", || sql(&own, "select 1").is_err().then_some(()));
    world.poke(&path);
    sql_soon(&own, "select 1");

    // another gives it rights on what is the other's; it keeps something in a database that everyone may use, and calls its own a template
    let given = format!(
        "create table t (); grant select on t to {database}; grant connect on database {} to {database}",
        other["database"]
    );
    sql(&other, &given).expect("a database's owner may");
    let everyones = to_database(&own, "template1");
    let keep = "select lo_from_bytea(0, 'data'); alter default privileges grant select on tables to public";
    assert!(sql(&everyones, keep).is_err(), "in a server of ours there is none");
    let admin = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    sql(&admin, "grant connect on database template1 to public").expect("a superuser may");
    sql(&everyones, keep).expect("in a server of somebody's there may be");
    sql(&own, &format!("alter database {database} is_template true")).expect("a database's owner may");

    world.delete_now(&format!("{CLAIMS}/db"));
    let scrubbed = world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1);
    assert_eq!(condition(&scrubbed, "Scrubbed")["status"], "True", "{scrubbed}");
    let kept = "select count(*) from pg_catalog.pg_largeobject_metadata";
    assert_eq!(sql(&to_database(&admin, "template1"), kept).as_deref(), Ok("0"), "nothing of it is left elsewhere");
    assert_eq!(sql(&other, "select count(*) from t").as_deref(), Ok("0"), "what is the other's stays");

    world.until(&resource_of(&implementation), "free", |r| r["status"]["phase"] == "Available");
    world.delete_now(&format!("{CLAIMS}/other"));
}

/// Of a database that is kept, the login that its claim had ends with the claim, and the data stays.
fn kept_and_shut(engine: &str, kind: &str) {
    let world = World::new();
    class(&world, "keep", "Retain", kind, json!({}));
    claim(&world, "db", json!({"engine": engine, "class": "keep"}));
    let old = world.details(CLAIMS, "db");
    sql(&old, "create table t (a int)").expect("may");
    sql(&old, "insert into t values (7)").expect("may");
    let (path, implementation) = behind(&world, "db");
    let secret = implementation["status"]["connectionSecretRef"]["name"].as_str().expect("is named").to_owned();
    world.delete_now(&format!("{CLAIMS}/db"));
    world.until(&path, "shut", |i| i["status"]["retired"].as_i64() >= Some(1));
    assert!(sql(&old, "select 1").is_err(), "the login went with the claim");
    assert_eq!(sql_soon(&world.secret("conductor-system", &secret), "select a from t"), "7", "the data stays");
}

#[test]
fn what_is_kept_of_a_claim_is_shut_to_who_had_it() {
    if has("kept databases", POSTGRES) {
        kept_and_shut("postgres", "PostgresInstance");
    }
    if has("kept databases", MARIADB) {
        kept_and_shut("mysql", "MariaDBInstance");
    }
}

/// Whoever has as many connections as it may is told so, is well, and leaves the others theirs.
fn connections_are_shared(instance: &str, database: &str, (sleep, full): (&str, &str)) {
    let world = World::new();
    shared_server(&world, instance);
    let all = format!("{INSTANCES}/{}s", database.to_ascii_lowercase());
    let object = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": database, "metadata": {"name": "db"},
        "spec": {"serverSecretRef": {"name": shared_secret(instance)}, "maxConnections": 2},
    });
    world.create(&all, &object);
    let path = format!("{all}/db");
    let made = world.until(&path, "ready", ready);
    let own =
        world.secret("conductor-system", made["status"]["connectionSecretRef"]["name"].as_str().expect("is named"));
    let enough = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for _ in 0..2 {
        let (own, sleep, enough) = (own.clone(), sleep.to_owned(), enough.clone());
        // whoever looks whether it is full may have the place for a moment
        let hold = move || while sql(&own, &sleep).is_err() && !enough.load(std::sync::atomic::Ordering::Relaxed) {};
        std::thread::spawn(hold);
    }
    soon("full", || sql(&own, "select 1").err().filter(|why| why.contains(full)));
    world.poke(&path);
    std::thread::sleep(Duration::from_secs(1));
    assert!(ready(&world.get(&path).expect("is there")), "whoever uses all it may have is well");
    // more of them is only a matter of the spec
    world.patch(&path, json!({"spec": {"maxConnections": 5}}));
    sql_soon(&own, "select 1");
    enough.store(true, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn one_tenant_does_not_take_all_connections_of_a_shared_server() {
    if has("shared connections", POSTGRES) {
        let words = ("select pg_sleep(150)", "too many connections for role");
        connections_are_shared("PostgresInstance", "PostgresDatabase", words);
    }
    if has("shared connections", MARIADB) {
        let words = ("select sleep(150)", "max_user_connections");
        connections_are_shared("MariaDBInstance", "MariaDBDatabase", words);
    }
}

#[test]
fn a_mariadb_tenant_has_one_database_and_none_that_is_named_alike() {
    if !has("hostile tenants of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    shared_server(&world, "MariaDBInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("MariaDBInstance")}});
    class(&world, "standard", "Delete", "MariaDBDatabase", template);
    claim(&world, "db", json!({"class": "standard"}));
    let own = world.details(CLAIMS, "db");
    let alike = own["database"].replacen('_', "X", 1);
    let refused = sql(&own, &format!("create database {alike}")).expect_err("may not");
    assert!(refused.contains("denied"), "{refused}");
    sql(&own, "create table t (a int)").expect("in its own it may");
    world.delete_now(&format!("{CLAIMS}/db"));
}
