//! Watches that never end: list, follow, and list again when the server has forgotten where we were.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http_body_util::BodyExt;
use serde_json::Value;

use super::{ANSWER, Api, Asked, Failure, Lean, METADATA, METADATA_LIST, WHOLE, escaped, typed};

/// Namespace and name of every object there is.
pub type Names = HashSet<(String, String)>;

/// Takes in what a watch shows. Called in order, never at the same time.
pub trait Sink: Send + Sync + 'static {
    /// An object as it is now.
    fn apply(&self, object: Value);
    /// An object that is gone, as it was.
    fn delete(&self, object: Value);
    /// All there is has been shown; what is not among the names is gone.
    fn synced(&self, names: &Names);
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Only in this namespace; empty: everywhere.
    pub namespace: String,
    /// Only with these labels; empty: any.
    pub selector: String,
    /// Only the metadata of its objects, which may be large.
    pub lean: bool,
}

#[derive(serde::Deserialize)]
struct Change {
    #[serde(rename = "type")]
    kind: String,
    object: Lean,
}

/// How long the server is asked to keep a watch open, and how long we wait for a sign of life.
const OPEN: u64 = 290;

impl Watch {
    /// Everything of a kind.
    pub fn all(api_version: &str, kind: &str) -> Watch {
        Watch {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: String::new(),
            selector: String::new(),
            lean: false,
        }
    }

    /// Only the metadata of objects.
    pub fn lean(mut self) -> Watch {
        self.lean = true;
        self
    }

    /// Only objects with a label.
    pub fn labelled(mut self, selector: &str) -> Watch {
        self.selector = selector.into();
        self
    }

    /// Only in one namespace.
    pub fn within(mut self, namespace: &str) -> Watch {
        self.namespace = namespace.into();
        self
    }

    /// Follows it for ever. Until the kind is served, waits for it.
    pub async fn run(self, api: Api, sink: Arc<dyn Sink>) {
        let mut failures = 0u32;
        loop {
            let Err(failure) = self.once(&api, sink.as_ref(), &mut failures).await;
            failures = (failures + 1).min(8);
            if failure.code == 403 && failures == 1 {
                let whose = if api.is_acting() { "provisioner" } else { "managers" };
                let add = format!("add a ClusterRole labelled conductor.io/aggregate-to-{whose}: \"true\" for it");
                tracing::warn!(kind = %self.kind, %failure, "not allowed to watch: {add}");
            }
            tracing::debug!(kind = %self.kind, %failure, "the watch broke; starting again");
            tokio::time::sleep(Duration::from_millis((25u64 << failures).min(5_000))).await;
        }
    }

    /// One list and the watch that follows, until the server has forgotten or something fails. What failed before is forgotten once a
    /// watch has come to its end in peace.
    async fn once(&self, api: &Api, sink: &dyn Sink, failures: &mut u32) -> Result<Infallible, Failure> {
        let served = api.served(&self.api_version, &self.kind).await?;
        let path = served.path(&self.api_version, &self.namespace, "", false);
        let mut names = Names::new();
        let mut token = String::new();
        let mut version;
        loop {
            let accept = if self.lean { METADATA_LIST } else { WHOLE };
            let page = api.page(&path, &self.selector, &token, accept).await?;
            version = page.metadata.version;
            for Lean(object) in page.items {
                let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
                names.insert((text("namespace"), text("name")));
                sink.apply(typed(object, &self.api_version, &self.kind));
            }
            token = page.metadata.next.unwrap_or_default();
            if token.is_empty() {
                break;
            }
        }
        sink.synced(&names);
        drop(names);
        loop {
            version = self.follow(api, &path, version, sink).await?;
            *failures = 0;
        }
    }

    /// Follows from a version; the version it came to when the server ended it in peace.
    async fn follow(&self, api: &Api, path: &str, mut version: String, sink: &dyn Sink) -> Result<String, Failure> {
        let mut query = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={OPEN}&resourceVersion={}",
            escaped(&version)
        );
        if !self.selector.is_empty() {
            query += &format!("&labelSelector={}", escaped(&self.selector));
        }
        let accept = if self.lean { METADATA } else { WHOLE };
        let opened = tokio::time::timeout(ANSWER, api.open(Asked::reading(&query, accept))).await;
        let mut body = opened.map_err(|_| Failure::unsent("the watch does not begin"))??.into_body();
        let mut buffer = BytesMut::new();
        loop {
            let patience = Duration::from_secs(OPEN + 30);
            let frame = match tokio::time::timeout(patience, body.frame()).await {
                Err(_) => return Err(Failure::unsent("the watch is silent")),
                Ok(None) => return Ok(version),
                Ok(Some(Err(error))) => {
                    tracing::debug!(kind = %self.kind, %error, "the watch was cut");
                    return Ok(version);
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut searched = buffer.len();
            buffer.extend_from_slice(&data);
            while let Some(end) = memchr::memchr(b'\n', &buffer[searched..]) {
                let line = buffer.split_to(searched + end + 1);
                searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let change: Change = serde_json::from_slice(&line).map_err(|e| Failure::unreadable(&e.to_string()))?;
                let Lean(object) = change.object;
                if let Some(at) = object["metadata"]["resourceVersion"].as_str()
                    && change.kind != "ERROR"
                {
                    version = at.to_owned();
                }
                match change.kind.as_str() {
                    "ADDED" | "MODIFIED" => sink.apply(typed(object, &self.api_version, &self.kind)),
                    "DELETED" => sink.delete(typed(object, &self.api_version, &self.kind)),
                    "ERROR" => {
                        let code = object["code"].as_u64().unwrap_or(500);
                        return Err(Failure::answered(code as u16, object.to_string().as_bytes()));
                    }
                    _ => {}
                }
            }
        }
    }
}
