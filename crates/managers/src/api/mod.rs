//! The Kubernetes API as the managers see it: requests, discovery, watches. Nothing here knows who answers.

mod discovery;
mod failure;
mod lean;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, header};
use kube::client::Body;
use serde_json::Value;

use conductor_claims::lifecycle::{SYSTEM_NAMESPACE, Target};
use conductor_claims::types::{self, ResourceType, TYPE};

pub use discovery::{Discovery, Served};
pub use failure::Failure;
pub(crate) use lean::Lean;
pub use watch::{Names, Sink, Watch};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a definition may take until it is served.
const DEFINED: Duration = Duration::from_secs(10);

/// What an answer may look like: whole, or only its metadata where the server can leave out the rest.
pub(crate) const WHOLE: &str = "application/json";
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Under which name our fields are owned.
pub const FIELD_MANAGER: &str = "conductor";

/// A connection to an API server; cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    discovery: Arc<Discovery>,
    /// Whose rights count, if not the client's own.
    acting: Option<http::HeaderValue>,
}

/// What is asked of the server.
pub(crate) struct Asked<'a> {
    method: Method,
    path: &'a str,
    /// What the body is.
    kind: &'a str,
    accept: &'static str,
    body: Vec<u8>,
}

impl<'a> Asked<'a> {
    pub(crate) fn reading(path: &'a str, accept: &'static str) -> Asked<'a> {
        Asked { method: Method::GET, path, kind: JSON, accept, body: Vec::new() }
    }
}

/// Text as it may stand in a query.
pub(crate) fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

/// A part of a path, whatever somebody has written there: it begins no query and leads nowhere else.
pub(crate) fn segment(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_~:".contains(&b) || (b == b'.' && text != "." && text != "..");
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Whether an object can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_graphic() && !b"/%?#\\".contains(&b);
    !text.is_empty() && text.len() <= 253 && text != "." && text != ".." && text.bytes().all(fits)
}

impl Api {
    /// Over any client.
    pub fn new(client: kube::Client) -> Api {
        Api { client, discovery: Arc::default(), acting: None }
    }

    /// The same with the rights of a service account of the system's, for whoever may act as it.
    pub fn acting_as(&self, account: &str) -> Api {
        let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{account}");
        Api { acting: http::HeaderValue::try_from(user).ok(), ..self.clone() }
    }

    pub(crate) fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// Sends a request and reads the answer as JSON, without `managedFields`.
    pub async fn call(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value, Failure> {
        let bytes = self.call_bytes(method, path, kind, body).await?;
        let Lean(answer) = serde_json::from_slice(&bytes).map_err(|e| Failure::unreadable(&e.to_string()))?;
        Ok(answer)
    }

    /// The same for who needs only the metadata of the answer.
    pub(crate) async fn change(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value, Failure> {
        let bytes = self.answer(Asked { method, path, kind, accept: METADATA, body }).await?;
        let Lean(answer) = serde_json::from_slice(&bytes).map_err(|e| Failure::unreadable(&e.to_string()))?;
        Ok(answer)
    }

    /// Sends a request and gives the answer as it is.
    pub async fn call_bytes(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Bytes, Failure> {
        self.answer(Asked { method, path, kind, accept: WHOLE, body }).await
    }

    async fn answer(&self, asked: Asked<'_>) -> Result<Bytes, Failure> {
        let whole = async {
            let response = self.open(asked).await?;
            response.into_body().collect_bytes().await.map_err(|e| Failure::unreadable(&e.to_string()))
        };
        let answered = tokio::time::timeout(ANSWER, whole).await;
        answered.unwrap_or_else(|_| Err(Failure::unsent(&format!("nothing came within {} s", ANSWER.as_secs()))))
    }

    /// Sends a request; the answer is a success whose body is still to be read.
    pub(crate) async fn open(
        &self,
        Asked { method, path, kind, accept, body }: Asked<'_>,
    ) -> Result<http::Response<Body>, Failure> {
        let mut request = Request::builder().method(method);
        if let Some(user) = &self.acting {
            request = request.header("impersonate-user", user);
        }
        let request = request
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, kind)
            .header(header::USER_AGENT, FIELD_MANAGER)
            .body(Body::from(body))
            .map_err(|e| Failure::unreadable(&e.to_string()))?;
        let response = self.client.send(request).await.map_err(|e| Failure::unsent(&e.to_string()))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap_or_default();
        Err(Failure::answered(code, &body))
    }

    /// Reads a path; `None` if it is not there.
    pub async fn read(&self, path: &str) -> Result<Option<Value>, Failure> {
        match self.call(Method::GET, path, JSON, Vec::new()).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.code == 404 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The path of an object or, without a name, of a collection.
    pub async fn path(&self, target: &Target) -> Result<String, Failure> {
        let served = self.served(&target.api_version, &target.kind).await?;
        Ok(served.path(&target.api_version, &target.namespace, &target.name, target.status))
    }

    /// Reads an object; `None` if it, or its kind, is not there, or nothing can have that name.
    pub async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        if !is_name(name) || (!namespace.is_empty() && !is_name(namespace)) {
            return Ok(None);
        }
        let served = match self.served(api_version, kind).await {
            Ok(served) => served,
            Err(failure) if failure.code == 404 => return Ok(None),
            Err(failure) => return Err(failure),
        };
        self.read(&served.path(api_version, namespace, name, false)).await
    }

    /// The same with everything about it, `managedFields` included.
    pub(crate) async fn get_whole(&self, target: &Target) -> Result<Option<Value>, Failure> {
        let path = self.path(target).await?;
        match self.call_bytes(Method::GET, &path, JSON, Vec::new()).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| Failure::unreadable(&e.to_string())),
            Err(failure) if failure.code == 404 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Every object of a kind, in pages; with `apiVersion` and `kind`.
    pub async fn list(&self, api_version: &str, kind: &str, selector: &str) -> Result<Vec<Value>, Failure> {
        self.list_in(api_version, kind, "", selector).await
    }

    /// All resources, claims and classes of a type. Those of a kind that somebody else has defined are none of its.
    pub async fn objects_of(&self, kind: &ResourceType) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        for own in [&kind.names.resource, &kind.names.claim, &kind.names.class] {
            let name = format!("{}.{}", types::Names::plural(own), kind.group);
            let definition = self.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", &name).await?;
            let whose = definition.unwrap_or_default()["metadata"]["annotations"][TYPE].take();
            if whose.as_str() != Some(&kind.name()) {
                continue;
            }
            match self.list(&kind.api_version(), own, "").await {
                Ok(own) => all.extend(own),
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(all)
    }

    /// Every object of a kind in a namespace, in pages; with `apiVersion` and `kind`.
    pub async fn list_in(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Value>, Failure> {
        let path = self.served(api_version, kind).await?.path(api_version, namespace, "", false);
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.page(&path, selector, &token, WHOLE).await?;
            all.extend(page.items.into_iter().map(|Lean(object)| typed(object, api_version, kind)));
            token = page.metadata.next.unwrap_or_default();
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// How a kind is served; 404 if it is not.
    pub async fn served(&self, api_version: &str, kind: &str) -> Result<Arc<Served>, Failure> {
        self.discovery.served(self, api_version, kind).await
    }

    /// Forgets which kinds a group has, for who knows that they have just changed.
    pub(crate) fn look_again(&self, api_version: &str) {
        self.discovery.forget(api_version);
    }

    /// The same for every version of a group.
    pub(crate) fn look_again_at_group(&self, group: &str) {
        self.discovery.forget_group(group);
    }

    /// Waits until what was just defined can be asked for.
    pub(crate) async fn until_served(&self, api_version: &str, kind: &str) -> Result<(), Failure> {
        let patience = Instant::now() + DEFINED;
        while let Err(failure) = self.served(api_version, kind).await {
            if failure.code != 404 || Instant::now() > patience {
                return Err(failure);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.look_again(api_version);
        }
        Ok(())
    }

    /// The kind a user means by a word: kind, plural, singular or short name, with or without group.
    pub async fn kind_of(&self, word: &str) -> Result<Option<(String, Arc<Served>)>, Failure> {
        self.discovery.kind_of(self, word).await
    }

    /// Creates or changes an object by server-side apply.
    pub async fn apply(&self, object: &Value) -> Result<Value, Failure> {
        self.apply_with(object, true).await
    }

    /// The same; without `force`, what somebody else has changed is a conflict.
    pub(crate) async fn apply_with(&self, object: &Value, force: bool) -> Result<Value, Failure> {
        let path = self.path(&Target::of(object)).await?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force={force}");
        self.call(Method::PATCH, &path, APPLY, object.to_string().into_bytes()).await
    }

    async fn page(&self, path: &str, selector: &str, token: &str, accept: &'static str) -> Result<Page, Failure> {
        let mut path = format!("{path}?limit=500");
        if !selector.is_empty() {
            path += &format!("&labelSelector={}", escaped(selector));
        }
        if !token.is_empty() {
            path += &format!("&continue={}", escaped(token));
        }
        let bytes = self.answer(Asked::reading(&path, accept)).await?;
        serde_json::from_slice(&bytes).map_err(|e| Failure::unreadable(&e.to_string()))
    }
}

/// Items of a list do not say what they are.
pub(crate) fn typed(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| api_version.into());
        map.entry("kind").or_insert_with(|| kind.into());
    }
    object
}

#[derive(serde::Deserialize)]
pub(crate) struct Page {
    pub(crate) metadata: PageMeta,
    #[serde(default)]
    pub(crate) items: Vec<Lean>,
}

#[derive(serde::Deserialize)]
pub(crate) struct PageMeta {
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
    #[serde(rename = "resourceVersion", default)]
    pub(crate) version: String,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
