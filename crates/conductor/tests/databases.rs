//! Real databases behind claims: `conductor up`, real PostgreSQL and MariaDB, the engines' own clients with the claim's Secret.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
    let world = World::new();
    claim(&world, "db", json!({"class": "postgres", "resources": {"requests": {"storage": "2Gi"}}}));
    let details = world.details(CLAIMS, "db");
    sql(&details, "create table t (n int); insert into t values (7)").expect("may");
    let (path, implementation) = behind(&world, "db");
    let (dir, pid) = server(&world, &implementation);

    // someone drops the role and edits the configuration
    let socket = socket(&world, &implementation).display().to_string();
    let port = implementation["status"]["port"].to_string();
    let drop = format!("drop owned by {0}; drop role {0}", details["username"]);
    let admin = ["-XqAt", "-h", &socket, "-p", &port, "-U", "conductor", "-d", "app", "-c", &drop];
    assert!(Command::new("psql").args(admin).status().expect("runs").success());
    let file = dir.join("postgresql.conf");
    let before = fs::read_to_string(&file).expect("is there");
    fs::write(&file, format!("{before}fsync = off\n")).expect("may");
    assert!(sql(&details, "select 1").is_err());
    world.poke(&path);
    assert_eq!(sql_soon(&details, "select n from t"), "7");
    assert_eq!(fs::read_to_string(&file).expect("is there"), before);
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
    let (_, pid) = server(&world, &implementation);
    fs::rename(dir.join("data"), dir.join("away")).expect("may");
    kill(pid.expect("runs"), Signal::KILL);
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
    world.poke(&path);
    world.until(&path, "healed", ready);
    world.until(&format!("{CLAIMS}/db"), "healed", |c| c["status"]["phase"] == "Bound" && ready(c));
    assert_eq!(sql_soon(&new, "select count(*) from t"), "2");

    // a leftover is found
    fs::create_dir(world.home("databases").join("postgres/stray")).expect("may");
    let (fine, said) = world.audit();
    assert!(!fine && said.contains("no-leftover-directory"), "{said}");
}

/// The login in a claim's Secret works, whatever is being rotated: if not, the Secret has another by now.
fn login_works(world: &World) {
    let details = world.details(CLAIMS, "db");
    if let Err(refused) = sql(&details, "select 1") {
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
    class(&world, "keep", "Retain", kind, json!({"rotationGraceSeconds": 0}));
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
        refused_settings("PostgresInstance", ("work_mem", "3MB"), ("port", "5555"), "Conductor sets it itself");
        settings_that_only_a_start_shows("PostgresInstance", ("ssl", "on"), "server certificate");
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
