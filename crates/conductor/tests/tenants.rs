//! What those who use a database can do to it and to others: real PostgreSQL and MariaDB, and tenants who mean no good.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use common::database::*;
use common::world::{MARIADB, POSTGRES, World, condition, has, ready, says, soon};
use serde_json::{Value, json};

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
    for shut in [
        format!("alter database {database} connection limit 0"),
        format!("revoke all on database {database} from {database}"),
        format!("alter database {database} set local_preload_libraries = 'nope'"),
        format!("set role none; alter role {} set local_preload_libraries = 'nope'", own["username"]),
    ] {
        sql(&own, &shut).expect("a database's owner may");
        // whoever is refused is heard of, and this may have been mended already
        world.poke(&path);
        sql_soon(&own, "select 1");
    }

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

#[test]
fn nobody_is_connected_whose_claim_is_gone() {
    if !has("hostile tenants", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server_with(&world, "PostgresInstance", json!({"max_prepared_transactions": "5"}));
    let template = json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}});
    let admin = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    sql(&admin, "create database everyones").expect("a superuser may");
    for policy in ["Recycle", "Delete"] {
        class(&world, &policy.to_lowercase(), policy, "PostgresDatabase", template.clone());
        claim(&world, "db", json!({"class": policy.to_lowercase()}));
        let own = world.details(CLAIMS, "db");
        let (path, _) = behind(&world, "db");
        // in a database that is not the claim's, with things of its own, one of them in a transaction that does not end
        let everyones = to_database(&own, "everyones");
        let mut open = [(); 2].map(|()| Session::open(&everyones).expect("everyone may"));
        assert_eq!(open[0].ask("create temp table x (a int); select 1").as_deref(), Some("1"));
        assert_eq!(open[1].ask("begin; create temp table y (b int); select 2").as_deref(), Some("2"));
        // and what no session has
        for (to, gid) in [(&own, "one"), (&everyones, "it''s two")] {
            let held = "do $$ begin perform lo_create(0); end $$";
            let prepare = format!("begin; {held}; prepare transaction '{gid}'; select 4");
            assert_eq!(Session::open(to).expect("works").ask(&prepare).as_deref(), Some("4"));
        }
        let prepared = "select count(*) from pg_prepared_xacts";
        assert_eq!(sql(&admin, prepared).as_deref(), Ok("2"));
        world.delete_now(&format!("{CLAIMS}/db"));
        match policy {
            "Recycle" => drop(world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1)),
            _ => world.gone(&path),
        }
        for mut session in open {
            assert_eq!(session.ask("select 3"), None, "{policy}");
        }
        assert_eq!(sql(&admin, prepared).as_deref(), Ok("0"), "{policy}");
    }
}

/// A transaction that is prepared, and so no session's.
fn prepare(to: &BTreeMap<String, String>, gid: &str, statements: &str) {
    let prepare = format!("begin; {statements}; prepare transaction '{gid}'; select 4");
    assert_eq!(Session::open(to).expect("works").ask(&prepare).as_deref(), Some("4"), "{statements}");
}

#[test]
fn nothing_that_is_prepared_keeps_a_postgres_database_from_going() {
    if !has("hostile tenants", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server_with(&world, "PostgresInstance", json!({"max_prepared_transactions": "9"}));
    let template = json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}});
    let admin = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    sql(&admin, "create database everyones").expect("a superuser may");
    for policy in ["Recycle", "Delete"] {
        class(&world, &policy.to_lowercase(), policy, "PostgresDatabase", template.clone());
    }
    claim(&world, "other", json!({"class": "delete"}));
    let other = world.details(CLAIMS, "other");
    let held = "do $$ begin perform lo_create(0); end $$";
    for (policy, shut) in [("Recycle", true), ("Delete", true), ("Delete", false)] {
        claim(&world, "db", json!({"class": policy.to_lowercase()}));
        let own = world.details(CLAIMS, "db");
        let (path, _) = behind(&world, "db");
        let database = &own["database"];
        // by its owner, and by somebody whom that let in
        sql(&own, &format!("grant connect on database {database} to {}", other["database"])).expect("an owner may");
        prepare(&own, "mine", held);
        prepare(&to_database(&other, database), "theirs", held);
        prepare(&to_database(&other, "everyones"), "elsewhere", held);
        if shut {
            sql(&to_database(&own, "everyones"), &format!("alter database {database} allow_connections false"))
                .expect("an owner may");
        } else {
            // what is to be changed first is held as well
            prepare(&own, "login", &format!("set local role none; alter role {} password 'mine'", own["username"]));
            prepare(&own, "database", &format!("alter database {database} connection limit 7"));
        }
        world.delete_now(&format!("{CLAIMS}/db"));
        match policy {
            "Recycle" => drop(world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1)),
            _ => world.gone(&path),
        }
        let prepared = "select string_agg(gid, ' ') from pg_prepared_xacts";
        assert_eq!(sql(&admin, prepared).as_deref(), Ok("elsewhere"), "{policy}: what is the other's stays");
        sql(&to_database(&admin, "everyones"), "rollback prepared 'elsewhere'").expect("a superuser may");
    }
}

#[test]
fn a_rotation_leaves_what_an_application_has_prepared() {
    if !has("prepared transactions", POSTGRES) {
        return;
    }
    let world = World::new();
    let template =
        json!({"superuser": true, "rotationGraceSeconds": 0, "settings": {"max_prepared_transactions": "5"}});
    class(&world, "mighty", "Delete", "PostgresInstance", template);
    claim(&world, "db", json!({"class": "mighty", "engine": "postgres"}));
    let first = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    sql(&first, "create table t (a int)").expect("may");
    prepare(&first, "doubtful", "insert into t values (7)");
    world.patch(&path, json!({"spec": {"rotate": 1}}));
    let said = world.until(&path, "saying what it waits for", |i| condition(i, "Cleared")["reason"] == "Locked");
    let message = condition(&said, "Cleared")["message"].clone();
    assert!(says(&message, &first["username"]) && says(&message, "commit prepared"), "{message}");
    assert!(ready(&said) && sql(&first, "select 1").is_err(), "the old login is shut all the same");
    let second = world.details(CLAIMS, "db");
    sql(&second, "commit prepared 'doubtful'").expect("it is there still");
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert_eq!(sql(&second, "select a from t").as_deref(), Ok("7"));

    // whose time is over at once has no say any more
    prepare(&second, "late", "insert into t values (8)");
    let at_once = json!({"metadata": {"annotations": {"conductor.io/rotate-at-once": "2"}}, "spec": {"rotate": 2}});
    world.patch(&path, at_once);
    world.until(&path, "retired", |i| i["status"]["retired"] == 2);
    let third = world.details(CLAIMS, "db");
    assert_eq!(sql(&third, "select count(*) from pg_prepared_xacts").as_deref(), Ok("0"));
}

/// A rotation whose end takes more than one look ends nobody who has the new password.
#[test]
fn a_mariadb_session_with_the_new_password_is_not_ended() {
    if !has("sessions of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    class(&world, "own", "Delete", "MariaDBInstance", json!({"rotationGraceSeconds": 0}));
    claim(&world, "db", json!({"class": "own"}));
    let first = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    let mut old = Session::open(&first).expect("works");
    world.patch(&path, json!({"spec": {"rotate": 1}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert_eq!(old.ask("select 1"), None, "who has the old one is");
    let second = world.details(CLAIMS, "db");
    let mut new = Session::open(&second).expect("works");
    // as though somebody's rollback had taken longer
    world.patch(&format!("{path}/status"), json!({"status": {"retired": 0}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert_eq!(new.ask("select 1").as_deref(), Some("1"));
    // after something else was done to the user, nobody knows who is connected with what
    world.patch(&path, json!({"spec": {"rotate": 2}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 2);
    assert_eq!(new.ask("select 1"), None);
}

/// Who has the old password may take it off while it works: then the account has none, and the rotation ends that too.
#[test]
fn a_mariadb_account_without_a_password_does_not_outlive_a_rotation() {
    if !has("passwords of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    // the template says nothing of the time: what it said would be put back as drift
    class(&world, "own", "Delete", "MariaDBInstance", json!({}));
    claim(&world, "db", json!({"class": "own"}));
    let first = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    let mut old = Session::open(&first).expect("works");
    world.patch(&path, json!({"spec": {"rotate": 1, "rotationGraceSeconds": 3600}}));
    world.until(&path, "replaced", |i| i["status"]["replaced"] == 1);
    sql(&first, "set password = ''").expect("is its own");
    let open: BTreeMap<String, String> =
        first.clone().into_iter().chain([("password".to_owned(), String::new())]).collect();
    sql(&open, "select 1").expect("needs none now");
    world.patch(&path, json!({"spec": {"rotationGraceSeconds": 0}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert!(sql(&open, "select 1").is_err(), "needs one again");
    assert_eq!(old.ask("select 1"), None, "who was connected is ended");
    sql(&world.details(CLAIMS, "db"), "select 1").expect("works");
}

#[test]
fn a_database_is_not_taken_for_gone_where_its_secret_names_another_server() {
    if !has("two servers", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let second = json!({
        "apiVersion": "database.local.conductor.io/v1alpha1", "kind": "PostgresInstance",
        "metadata": {"name": "second"}, "spec": {"superuser": true},
    });
    world.create(&format!("{INSTANCES}/postgresinstances"), &second);
    world.until(&format!("{INSTANCES}/postgresinstances/second"), "ready", ready);
    let servers = [shared_secret("PostgresInstance"), "second-postgresinstance".to_owned()]
        .map(|name| world.secret("conductor-system", &name));
    let login = |server: &BTreeMap<String, String>| {
        let fields = ["host", "port", "username", "password", "database"].map(|key| (key, server[key].as_str()));
        json!({"stringData": BTreeMap::from(fields)})
    };
    let secrets = "/api/v1/namespaces/conductor-system/secrets";
    let mut secret = login(&servers[0]);
    secret["metadata"] = json!({"name": "server"});
    world.create(secrets, &secret);
    class(&world, "shared", "Delete", "PostgresDatabase", json!({"serverSecretRef": {"name": "server"}}));
    claim(&world, "db", json!({"class": "shared"}));
    let own = world.details(CLAIMS, "db");
    sql(&own, "create table t as select 7 as a").expect("may");
    let (path, _) = behind(&world, "db");

    world.patch(&format!("{secrets}/server"), login(&servers[1]));
    let addresses = servers.each_ref().map(|server| format!("{}:{}", server["host"], server["port"]));
    let both = |i: &Value| addresses.iter().all(|address| says(&condition(i, "Ready")["message"], address));
    world.poke(&path);
    world.until(&path, "said", |i| condition(i, "Ready")["reason"] == "Lost" && both(i));
    world.delete(&format!("{CLAIMS}/db"));
    world.until(&path, "refused", |i| condition(i, "Ready")["reason"] == "RemovalFailed" && both(i));
    assert_eq!(sql(&own, "select a from t").as_deref(), Ok("7"), "nothing is done about it");
    world.patch(&format!("{secrets}/server"), login(&servers[0]));
    world.gone(&path);
    assert_eq!(left_in_postgres(&world), "0");
}

#[test]
fn no_tenant_keeps_its_login_by_shutting_its_database() {
    if !has("hostile tenants", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("PostgresInstance")}, "rotationGraceSeconds": 0});
    class(&world, "keep", "Retain", "PostgresDatabase", template);
    let admin = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    sql(&admin, "create database everyones").expect("a superuser may");
    claim(&world, "db", json!({"class": "keep"}));
    let first = world.details(CLAIMS, "db");
    let (path, implementation) = behind(&world, "db");
    let secret = implementation["status"]["connectionSecretRef"]["name"].as_str().expect("is named").to_owned();
    let shut = format!("alter database {} set local_preload_libraries = 'nope'", first["database"]);
    sql(&first, "create table t as select 7 as a").expect("may");

    // a rotation, and the end of the claim
    sql(&first, &shut).expect("a database's owner may");
    world.patch(&path, json!({"spec": {"rotate": 1}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert!(sql(&to_database(&first, "everyones"), "select 1").is_err(), "the old login is ended");
    let second = world.details(CLAIMS, "db");
    assert_eq!(sql_soon(&second, "select a from t"), "7");
    sql(&second, &shut).expect("a database's owner may");
    let mut open = Session::open(&to_database(&second, "everyones")).expect("everyone may");
    world.delete_now(&format!("{CLAIMS}/db"));
    world.until(&path, "shut", |i| i["status"]["retired"].as_i64() > Some(1));
    assert!(sql(&to_database(&second, "everyones"), "select 1").is_err(), "the login went with the claim");
    assert_eq!(open.ask("select 1"), None, "and whoever was connected with it");
    assert_eq!(sql_soon(&world.secret("conductor-system", &secret), "select a from t"), "7", "the data stays");
}

#[test]
fn an_administrator_need_be_no_superuser() {
    if !has("a modest administrator", POSTGRES) {
        return;
    }
    let world = World::new();
    shared_server(&world, "PostgresInstance");
    let admin = world.secret("conductor-system", &shared_secret("PostgresInstance"));
    sql(&admin, "create role modest login createdb createrole password 'modest'").expect("a superuser may");
    sql(&admin, "create database everyones").expect("a superuser may");
    let login = json!({
        "host": admin["host"], "port": admin["port"], "username": "modest", "password": "modest", "database": "everyones",
    });
    world.create(
        "/api/v1/namespaces/conductor-system/secrets",
        &json!({"metadata": {"name": "modest"}, "stringData": login}),
    );
    let template = json!({"serverSecretRef": {"name": "modest"}, "rotationGraceSeconds": 0});
    class(&world, "standard", "Delete", "PostgresDatabase", template);
    claim(&world, "db", json!({"class": "standard"}));
    let first = world.details(CLAIMS, "db");
    sql(&first, "create table t as select 7 as a").expect("may");
    let (path, _) = behind(&world, "db");
    let mut open = Session::open(&to_database(&first, "everyones")).expect("everyone may");
    world.patch(&path, json!({"spec": {"rotate": 1}}));
    world.until(&path, "retired", |i| i["status"]["retired"] == 1);
    assert_eq!(open.ask("select 1"), None);
    let second = world.details(CLAIMS, "db");
    assert_eq!(sql_soon(&second, "select a from t"), "7");
    let mut open = Session::open(&to_database(&second, "everyones")).expect("everyone may");
    world.delete_now(&format!("{CLAIMS}/db"));
    world.gone(&path);
    assert_eq!(open.ask("select 1"), None);
    assert_eq!(left_in_postgres(&world), "0");
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
    let mut open = Session::open(&old).expect("works");
    world.delete_now(&format!("{CLAIMS}/db"));
    world.until(&path, "shut", |i| i["status"]["retired"].as_i64() >= Some(1));
    assert!(sql(&old, "select 1").is_err(), "the login went with the claim");
    assert_eq!(open.ask("select a from t"), None, "and whoever was connected with it");
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

/// What a tenant says of its database makes it no other's.
#[test]
fn a_mariadb_tenant_does_not_say_whose_its_database_is() {
    if !has("hostile tenants of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    shared_server(&world, "MariaDBInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("MariaDBInstance")}});
    class(&world, "standard", "Delete", "MariaDBDatabase", template);
    claim(&world, "db", json!({"class": "standard"}));
    let own = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    let (admin, database) = (world.secret("conductor-system", &shared_secret("MariaDBInstance")), &own["database"]);
    let markers = format!("select user from mysql.user where user like '{database} %'");
    let marker = sql(&admin, &markers).expect("an administrator may");
    // one from before there were markers gets its own
    sql(&admin, &format!("drop user '{marker}'@'localhost'")).expect("an administrator may");
    world.poke(&path);
    soon("marked", || (sql(&admin, &markers).as_deref() == Ok(marker.as_str())).then_some(()));
    let as_marker = [("username".to_owned(), marker.clone()), ("password".to_owned(), String::new())];
    let as_marker = own.clone().into_iter().chain(as_marker).collect();
    assert!(sql(&as_marker, "select 1").is_err(), "nobody is a marker");

    sql(&own, &format!("alter database {database} comment 'conductor Evil12345678 x'")).expect("it is its own");
    world.patch(&path, json!({"spec": {"maxConnections": 7}}));
    let seen = |i: &Value| i["status"]["observedGeneration"] == i["metadata"]["generation"];
    assert!(ready(&world.until(&path, "looked at", seen)));
    world.delete_now(&format!("{CLAIMS}/db"));
    world.gone(&path);
    assert!(sql(&own, "select 1").is_err(), "the login went with the claim");
    assert_eq!(left_in_mariadb(&world), "0");
    world.audit_is_clean();
}

#[test]
fn no_session_of_a_mariadb_tenant_outlives_a_scrub() {
    if !has("hostile tenants of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    shared_server(&world, "MariaDBInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("MariaDBInstance")}});
    class(&world, "standard", "Recycle", "MariaDBDatabase", template);
    claim(&world, "db", json!({"class": "standard"}));
    let own = world.details(CLAIMS, "db");
    let (path, implementation) = behind(&world, "db");
    let admin = world.secret("conductor-system", &shared_secret("MariaDBInstance"));
    // nobody's users change for now: there is time to log in between one statement of the scrub and the next
    let mut held = Session::open(&admin).expect("works");
    assert_eq!(held.ask("lock tables mysql.global_priv read; select 1").as_deref(), Some("1"));
    let mut first = Session::open(&own).expect("works");
    world.delete_now(&format!("{CLAIMS}/db"));
    let begun = Instant::now();
    while first.ask("select 1").is_some() && begun.elapsed() < Duration::from_secs(8) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut second = Session::open(&own);
    drop(held);
    let scrubbed = world.until(&path, "scrubbed", |i| i["status"]["scrubbed"] == 1);
    assert_eq!(condition(&scrubbed, "Scrubbed")["status"], "True", "{scrubbed}");
    world.until(&resource_of(&implementation), "free", |r| r["status"]["phase"] == "Available");
    claim(&world, "next", json!({"class": "standard"}));
    let next = world.details(CLAIMS, "next");
    assert_eq!(next["database"], own["database"], "it is used again");
    sql(&next, "create table t as select 'secret' as words").expect("may");
    for session in [Some(&mut first), second.as_mut()].into_iter().flatten() {
        assert_eq!(session.ask("select words from t"), None);
    }
}

#[test]
fn what_a_mariadb_tenant_has_prepared_is_said_to_stand_in_the_way() {
    if !has("hostile tenants of MariaDB", MARIADB) {
        return;
    }
    let world = World::new();
    shared_server(&world, "MariaDBInstance");
    let template = json!({"serverSecretRef": {"name": shared_secret("MariaDBInstance")}});
    class(&world, "standard", "Delete", "MariaDBDatabase", template);
    claim(&world, "db", json!({"class": "standard"}));
    let own = world.details(CLAIMS, "db");
    let (path, _) = behind(&world, "db");
    sql(&own, "create table t (a int); xa start 'a'; insert into t values (1); xa end 'a'; xa prepare 'a'")
        .expect("may");
    world.delete_now(&format!("{CLAIMS}/db"));
    world.until(&path, "said", |i| says(&condition(i, "Ready")["message"], "1 that xa recover lists"));
    assert!(sql(&own, "select 1").is_err(), "the login went with the claim");
    let admin = world.secret("conductor-system", &shared_secret("MariaDBInstance"));
    sql(&admin, "xa rollback 'a'").expect("an administrator may");
    world.gone(&path);
    assert_eq!(left_in_mariadb(&world), "0");
}
