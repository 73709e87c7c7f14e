//! The logins of a database in a PostgreSQL server: which there are, and how they end so that what they made stays.

use super::Connect;
use crate::client::{Client, ENDS, Refused};
use crate::credentials::{is_claim_user, plain};

/// Ends logins of a database: nobody is connected with them any more, and what they own is the database's. What somebody's transaction
/// holds is left until it ends; the login is shut all the same. What they have prepared is rolled back `at_once`, or left to who is in doubt
/// about it.
pub(super) async fn end(connect: Connect<'_>, database: &str, logins: &[String], at_once: bool) -> Result<(), Refused> {
    match shut(&connect(None), logins).await {
        // what is prepared can hold the logins themselves
        Err(Refused::Locked(_)) if at_once => {
            roll_back(connect, logins).await?;
            shut(&connect(None), logins).await?;
        }
        shut => drop(shut?),
    }
    let doubted = match at_once {
        true => roll_back(connect, logins).await.map(|()| Vec::new())?,
        false => preparers(&connect(None), logins).await?,
    };
    // as little as can be is done in the database itself, whose owner is anyone
    let mut locked = Ok(());
    for login in logins {
        if doubted.contains(login) {
            locked = Err(Refused::Locked(format!(
                "what login {login} has prepared (pg_prepared_xacts has it: end it as a superuser with commit prepared or rollback prepared)"
            )));
            continue;
        }
        match inherit(connect, database, login).await {
            Err(Refused::Locked(_)) => locked = Err(Refused::Locked(format!("what login {login} has left"))),
            other => other?,
        }
    }
    locked
}

/// Shuts logins, and ends whoever is connected with them, in whatever database; the logins' own numbers, by which sessions are known that
/// outlive them.
pub(super) async fn shut(client: &Client, logins: &[String]) -> Result<Vec<String>, Refused> {
    if logins.is_empty() {
        return Ok(Vec::new());
    }
    // an administrator who is no superuser ends the sessions of those it is a member of
    let each = logins.iter().map(|login| format!("alter role {login} nologin;\ngrant {login} to current_user;\n"));
    let mut sql: String = each.collect();
    sql += &format!("select oid from pg_catalog.pg_roles where rolname in ({});\n", listed(logins));
    let mut numbers = client.run(&sql).await?;
    numbers.retain(|number| number.bytes().all(|b| b.is_ascii_digit()));
    end_sessions(client, &numbers).await?;
    Ok(numbers)
}

/// Ends the sessions of roles that cannot log in any more, and sees them gone: they would hold what they hold, and places of others, for
/// as long as they like, though their role is no more.
pub(super) async fn end_sessions(client: &Client, numbers: &[String]) -> Result<(), Refused> {
    if numbers.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "select pid, pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where usesysid in ({});\n",
        numbers.join(", ")
    );
    for _ in 0..ENDS.0 {
        if client.run(&sql).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(ENDS.1).await;
    }
    Err(Refused::Locked("a session that was ended".into()))
}

/// Which of these roles have prepared something: it is no session's, outlives them all, and holds what it holds.
async fn preparers(client: &Client, roles: &[String]) -> Result<Vec<String>, Refused> {
    if roles.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("select distinct owner from pg_catalog.pg_prepared_xacts where owner in ({});\n", listed(roles));
    client.run(&sql).await
}

/// Rolls back what roles have prepared, in whatever database.
pub(super) async fn roll_back(connect: Connect<'_>, roles: &[String]) -> Result<(), Refused> {
    if roles.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "select distinct owner, database from pg_catalog.pg_prepared_xacts where owner in ({});\n",
        listed(roles)
    );
    for row in connect(None).run(&sql).await? {
        let Some((role, place)) = row.split_once('\t').filter(|(role, _)| roles.iter().any(|own| own == role)) else {
            continue;
        };
        // who may roll it back: its role, or a superuser
        let sql = format!(
            "set role {role};\nselect 'rollback prepared ' || pg_catalog.quote_literal(gid) from pg_catalog.pg_prepared_xacts \
             where owner = '{role}' and database = pg_catalog.current_database() \\gexec\n"
        );
        connect(a_name(place)).run(&sql).await?;
    }
    Ok(())
}

/// Rolls back what anybody has prepared in a database that is to go, which it could not otherwise: its owner may have let others in.
pub(super) async fn roll_back_all(connect: Connect<'_>, database: &str) -> Result<(), Refused> {
    let any = format!("select 1 from pg_catalog.pg_prepared_xacts where database = '{database}' limit 1;\n");
    if connect(None).run(&any).await?.is_empty() {
        return Ok(());
    }
    // the server itself reads what it answers here: names of anyone's, quoted, which no client sees as its own commands
    let sql = "select 'set role ' || pg_catalog.quote_ident(owner), 'rollback prepared ' || pg_catalog.quote_literal(gid), 'reset role' \
               from pg_catalog.pg_prepared_xacts where database = pg_catalog.current_database() \\gexec\n";
    connect(Some(database)).run(sql).await.map(drop)
}

/// The name of a database; what reads as more than that is none to the client.
fn a_name(database: &str) -> Option<&str> {
    Some(database).filter(|name| !name.is_empty() && !name.contains(['=', ':', '/']))
}

fn listed(roles: &[String]) -> String {
    roles.iter().map(|role| format!("'{role}'")).collect::<Vec<_>>().join(", ")
}

/// Gives what a login has to the database, and drops it.
async fn inherit(connect: Connect<'_>, database: &str, login: &String) -> Result<(), Refused> {
    let sql = format!("reassign owned by {login} to {database};\ndrop owned by {login};\n");
    connect(Some(database)).run(&sql).await?;
    leave(connect, std::slice::from_ref(login)).await?;
    connect(None).run(&format!("drop role {login};\n")).await.map(drop)
}

/// Takes from roles what they have in databases that are not theirs: what they made in one that everyone may use, and what others have
/// given them. A role that has any cannot be dropped.
pub(super) async fn leave(connect: Connect<'_>, roles: &[String]) -> Result<(), Refused> {
    let listed = listed(roles);
    let sql = format!(
        "select distinct r.rolname, coalesce(d.datname, '') from pg_catalog.pg_shdepend s \
         join pg_catalog.pg_roles r on r.oid = s.refobjid left join pg_catalog.pg_database d on d.oid = s.dbid \
         where s.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass and r.rolname in ({listed}) \
         and (s.dbid <> 0 or (s.classid = 'pg_catalog.pg_database'::pg_catalog.regclass and s.deptype = 'a'));\n"
    );
    for row in connect(None).run(&sql).await? {
        let Some((role, place)) = row.split_once('\t').filter(|(role, _)| roles.iter().any(|own| own == role)) else {
            continue;
        };
        // where that is none, the role stays, and the server says why
        connect(a_name(place)).run(&format!("drop owned by {role};\n")).await?;
    }
    Ok(())
}

/// The logins of a database: roles that we could have made, whatever a server answers.
pub(super) async fn logins(client: &Client, database: &str) -> Result<Vec<String>, Refused> {
    let sql = format!(
        "select m.rolname from pg_catalog.pg_auth_members a join pg_catalog.pg_roles m on m.oid = a.member \
         join pg_catalog.pg_roles o on o.oid = a.roleid \
         where o.rolname = '{database}';\n"
    );
    let mut found = client.run(&sql).await?;
    found.retain(|name| is_login(name, database));
    Ok(found)
}

fn is_login(name: &str, database: &str) -> bool {
    plain(name) && user_of(name).is_some_and(|user| user == database || is_claim_user(user, database))
}

/// The user whose login this is: the database itself or one of its claims'.
pub(super) fn user_of(login: &str) -> Option<&str> {
    let (user, number) = login.rsplit_once('_')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_we_could_have_given_are_logins() {
        let check = |name: &str, expected: bool| assert_eq!(is_login(name, "app"), expected, "{name}");
        check("app_1", true);
        check("app_12", true);
        check("app_", false);
        check("app_1x", false);
        check("other_1", false);
        check("app_1; \\! id", false);
        check("app_1\n\\! id", false);
        check("app_0123456789abcdef_2", true);
        check("app_0123456789abcdef", false);
        check("app_0123456789abcde_2", false);
    }
}
