//! The prepared data directory that instances begin as copies of, and the copy that the next one finds ready.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use conductor_local::{Account, Home, Trouble, home};

use crate::engine::{Engine, Server};
use crate::{credentials, layout};

/// One template is made at a time.
static PREPARING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// One spare is made at a time.
static SPARING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How templates are made: another number, other templates.
const MADE: u32 = 2;

fn name<E: Engine>(server: &Server) -> String {
    format!("{}-{}-{MADE}", E::WORD, server.version)
}

/// Makes a data directory for an account: of the copy that was made ahead, or of the template.
pub async fn data<E: Engine>(
    provider: &Home,
    server: &Server,
    new: &Path,
    owner: Option<&Account>,
) -> Result<(), Trouble> {
    // whoever comes second finds none
    match fs::rename(provider.path().join("spares").join(name::<E>(server)), new) {
        Ok(()) => layout::give(new, owner).await.map_err(Trouble::io("give its data to its account")),
        Err(_) => copy::<E>(provider, server, new, owner).await,
    }
}

/// Makes a data directory of the template, and leaves the copy that was made ahead to who is waited for.
pub async fn copy<E: Engine>(
    provider: &Home,
    server: &Server,
    new: &Path,
    owner: Option<&Account>,
) -> Result<(), Trouble> {
    let template = template::<E>(provider, server).await?;
    layout::copy(&template, new, owner).await.map_err(Trouble::io("copy the template"))
}

/// Makes a copy ahead, if there is none: the next instance need not wait for a thousand files. Called when one was made, so that who never
/// wants any has none.
pub async fn make_spare<E: Engine>(provider: &Home, server: &Server) -> Result<(), Trouble> {
    let Ok(_alone) = SPARING.try_lock() else { return Ok(()) };
    let spares = provider.make_private("spares", None).map_err(Trouble::io("make the directory for spares"))?;
    let wanted = spares.join(name::<E>(server));
    // half a copy, or one of a version that is no more
    for entry in fs::read_dir(&spares).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("new-") || (name.starts_with(E::WORD) && entry.path() != wanted) {
            layout::remove(&entry.path()).await.map_err(Trouble::io("clear the spares"))?;
        }
    }
    if wanted.exists() {
        return Ok(());
    }
    let new = spares.join(format!("new-{}", E::WORD));
    copy::<E>(provider, server, &new, None).await?;
    fs::rename(&new, &wanted).map_err(Trouble::io("put the spare in place"))
}

/// The account that an engine's package brings: it makes templates, and servers run as it where none can have an id of its own.
pub fn account<E: Engine>() -> Option<Account> {
    Account::other_than_root(E::ACCOUNTS)
}

/// The prepared data directory of a version, made if need be: where we are root, once for the machine. It is in a directory that only
/// we can enter: a server's account must not be able to change what later servers begin with.
async fn template<E: Engine>(provider: &Home, server: &Server) -> Result<PathBuf, Trouble> {
    let account = account::<E>();
    let all = match account {
        Some(_) => PathBuf::from("/var/cache/conductor"),
        None => provider.path().join("templates"),
    };
    let sealed = all.join(format!("{}.sealed", name::<E>(server)));
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
    // and what versions before this one made
    let before = ["", ".sealed"].map(|end| all.join(format!("{}-{}{end}", E::WORD, server.version)));
    for left in before.into_iter().chain([work]) {
        layout::remove(&left).await.map_err(Trouble::io("clear the template's directory"))?;
    }
    placed
}

/// Sees to it that there is a template.
pub async fn prepare<E: Engine>(provider: &Home, server: &Server) -> Result<(), Trouble> {
    template::<E>(provider, server).await.map(drop)
}
