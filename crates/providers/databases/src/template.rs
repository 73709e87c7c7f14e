//! The prepared data directory that instances begin as copies of.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use conductor_local::{Account, Home, Trouble, home};

use crate::engine::{Engine, Server};
use crate::{credentials, layout};

/// One template is made at a time.
static PREPARING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The account that an engine's package brings: it makes templates, and servers run as it where none can have an id of its own.
pub fn account<E: Engine>() -> Option<Account> {
    Account::other_than_root(E::ACCOUNTS)
}

/// The prepared data directory of a version, made if need be: where we are root, once for the machine. It is in a directory that only
/// we can enter: a server's account must not be able to change what later servers begin with.
pub async fn template<E: Engine>(provider: &Home, server: &Server) -> Result<PathBuf, Trouble> {
    let account = account::<E>();
    let all = match account {
        Some(_) => PathBuf::from("/var/cache/conductor"),
        None => provider.path().join("templates"),
    };
    let sealed = all.join(format!("{}-{}.sealed", E::WORD, server.version));
    let dir = sealed.join("data");
    if dir.exists() {
        return Ok(dir);
    }
    let _alone = PREPARING.lock().await;
    if dir.exists() {
        return Ok(dir);
    }
    if account.is_none() {
        provider.make("templates", None).map_err(Trouble::io("make the templates' directory"))?;
    }
    fs::create_dir_all(&all)
        .and_then(|()| home::tighten(&all, 0o711))
        .map_err(Trouble::io("make the templates' directory"))?;
    let work = all.join(format!("new-{}-{}", E::WORD, credentials::random(16)?));
    fs::DirBuilder::new().mode(0o700).create(&work).map_err(Trouble::io("make the template's directory"))?;
    home::own(&work, account.as_ref()).map_err(Trouble::io("give the template's directory to its account"))?;
    let made = E::initialize(server, &work.join("data"), account.as_ref()).await;
    let seal = || match account {
        Some(_) => std::os::unix::fs::lchown(&work, Some(0), Some(0)),
        None => Ok(()),
    };
    let sealing = made.and_then(|()| seal().map_err(Trouble::io("seal the template")));
    // another process may have been faster, with the same
    let placed = sealing.and_then(|()| match fs::rename(&work, &sealed) {
        Err(error) if !dir.exists() => Err(Trouble::io("put the template in place")(error)),
        _ => Ok(dir),
    });
    // and what versions before this one left open
    for left in [work, all.join(format!("{}-{}", E::WORD, server.version))] {
        layout::remove(&left).await.map_err(Trouble::io("clear the template's directory"))?;
    }
    placed
}
