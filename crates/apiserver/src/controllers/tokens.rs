//! Secrets of type `kubernetes.io/service-account-token`: each holds a token of the account it names, and goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Entry, EventKind};

use super::follow::{Follow, News};
use crate::auth::accounts::{ACCOUNTS, SECRETS, TOKEN_TYPE};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const RETRY: Duration = Duration::from_secs(1);

/// Follows Secrets and accounts for as long as the server runs.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-controller-manager");
    let mut follow = Follow::tables(server.store(), &[SECRETS, ACCOUNTS]);
    let mut state = State::default();
    loop {
        follow.read_woken(&mut |table, news| state.take_in(table, news));
        for key in std::mem::take(&mut state.due) {
            if again(settle(&server, &local, &key).await) {
                state.due.insert(key);
            }
        }
        for (account, secret) in std::mem::take(&mut state.gone) {
            if again(unlist(&server, &local, &account, &secret).await) {
                state.gone.insert((account, secret));
            }
        }
        if !state.due.is_empty() || !state.gone.is_empty() {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        follow.changed().await;
    }
}

/// What is known between two looks.
#[derive(Default)]
struct State {
    /// The Secrets that hold tokens, and the name of the account of each.
    accounts: BTreeMap<Arc<str>, String>,
    /// Secrets that should be looked at.
    due: BTreeSet<Arc<str>>,
    /// Accounts and names of Secrets that they may list and that are gone.
    gone: BTreeSet<(String, String)>,
}

impl State {
    fn take_in(&mut self, table: &Arc<str>, news: News) {
        match (&**table, news) {
            (SECRETS, News::All { entries, .. }) => {
                self.accounts.clear();
                entries.iter().for_each(|entry| self.take_in_secret(entry));
            }
            (SECRETS, News::Events(events)) => {
                for event in events {
                    if event.kind == EventKind::Put {
                        self.take_in_secret(&event.entry);
                    } else if let Some(account) = self.accounts.remove(event.key()) {
                        let (namespace, name) = event.key().split_once('/').unwrap_or_default();
                        self.gone.insert((format!("{namespace}/{account}"), name.to_owned()));
                    }
                }
            }
            (_, News::All { .. }) => self.due.extend(self.accounts.keys().cloned()),
            (_, News::Events(events)) => {
                for event in events.iter().filter(|event| event.kind == EventKind::Delete) {
                    let (namespace, name) = event.key().split_once('/').unwrap_or_default();
                    let prefix: Arc<str> = format!("{namespace}/").into();
                    let own = self.accounts.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&*prefix));
                    self.due.extend(own.filter(|(_, account)| *account == name).map(|(key, _)| key.clone()));
                }
            }
        }
    }

    fn take_in_secret(&mut self, entry: &Entry) {
        #[derive(Deserialize)]
        struct Secret {
            #[serde(default)]
            r#type: String,
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            annotations: Option<BTreeMap<String, String>>,
        }
        let Ok(secret) = serde_json::from_slice::<Secret>(&entry.value) else { return };
        if secret.r#type == TOKEN_TYPE {
            let account = secret.metadata.annotations.and_then(|mut own| own.remove(NAME)).unwrap_or_default();
            self.accounts.insert(entry.key.clone(), account);
            self.due.insert(entry.key.clone());
        }
    }
}

/// Whether something should be tried again; what somebody refuses is looked at when it changes.
fn again(result: Result<(), Status>) -> bool {
    let Err(status) = result else { return false };
    tracing::debug!(%status, "the Secret of a service account's token is not as it should be");
    status.code >= 500 || status.code == 429
}

fn path(key: &str, plural: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    format!("/api/v1/namespaces/{namespace}/{plural}/{name}")
}

fn read(server: &Server, table: &str, key: &str) -> Result<Option<Value>, Status> {
    server.store().get(table, key).map(|entry| parse_stored(&entry)).transpose()
}

/// Gives a Secret what it lacks, or removes it if its account is not there.
async fn settle(server: &Server, local: &Local, key: &str) -> Result<(), Status> {
    let Some(mut secret) = read(server, SECRETS, key)? else { return Ok(()) };
    if secret["type"] != TOKEN_TYPE || !secret["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let (namespace, own) = key.split_once('/').unwrap_or_default();
    let annotation = |key: &str| secret["metadata"]["annotations"][key].as_str().unwrap_or_default();
    let (name, uid) = (annotation(NAME).to_owned(), annotation(UID));
    let account = read(server, ACCOUNTS, &format!("{namespace}/{name}"))?;
    let account = account.and_then(|account| account["metadata"]["uid"].as_str().map(str::to_owned));
    let Some(account) = account.filter(|account| uid.is_empty() || uid == account) else {
        let options = json!({"preconditions": {"uid": secret["metadata"]["uid"]}});
        return local.delete(&path(key, "secrets"), &options).await.map(drop);
    };
    let ca = STANDARD.encode(server.pki().ca());
    let held = |key: &str| secret["data"][key].as_str().unwrap_or_default();
    let (lacks_ca, lacks_namespace, lacks_token) =
        (held("ca.crt") != ca, held("namespace").is_empty(), held("token").is_empty());
    if !(lacks_ca || lacks_namespace || lacks_token) {
        return Ok(());
    }
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    if lacks_ca {
        secret["data"]["ca.crt"] = ca.into();
    }
    if lacks_namespace {
        secret["data"]["namespace"] = STANDARD.encode(namespace).into();
    }
    if lacks_token {
        let token = server.0.tokens.sign_for_secret((namespace, &name, &account), own);
        let token = token.ok_or_else(|| Status::internal("a token could not be signed"))?;
        secret["data"]["token"] = STANDARD.encode(token).into();
    }
    secret["metadata"]["annotations"][UID] = account.into();
    local.update(&path(key, "secrets"), &secret).await.map(drop)
}

/// Takes a Secret that is gone off its account's list.
async fn unlist(server: &Server, local: &Local, account: &str, secret: &str) -> Result<(), Status> {
    let Some(mut object) = read(server, ACCOUNTS, account)? else { return Ok(()) };
    let Some(listed) = object["secrets"].as_array_mut() else { return Ok(()) };
    let before = listed.len();
    listed.retain(|own| own["name"] != secret);
    if listed.len() == before {
        return Ok(());
    }
    match local.update(&path(account, "serviceaccounts"), &object).await {
        Err(status) if status.code == 409 => Err(Status::internal(status)),
        result => result.map(drop),
    }
}
