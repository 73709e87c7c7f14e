//! What a request asks for: path and query, taken apart once, the way Kubernetes does.

use machinery::names;
use machinery::selector::FieldSelector;
use machinery::status::Status;
use std::borrow::Cow;

/// What a request wants to do, in the words authorization and audit use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it is about a resource (else about a path such as `/version`).
    pub is_resource: bool,
    /// The path as sent.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; a lower-case HTTP method otherwise.
    pub verb: Cow<'static, str>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The namespace; empty for cluster-scoped requests and requests over all namespaces.
    pub namespace: String,
    /// Whether the path leads through the namespace; that of a namespace itself does not.
    pub within: bool,
    /// The plural resource name.
    pub resource: String,
    /// The part of the object in question: `status`, `scale`, …
    pub subresource: String,
    /// Whether the path goes on behind that, as it does for what a proxy is to pass on.
    pub deeper: bool,
    /// The object's name.
    pub name: String,
    /// What a list, a watch or the deletion of a collection selects by fields, as sent.
    pub field_selector: String,
}

/// Why a path is not a resource path.
#[derive(Debug, PartialEq, Eq)]
pub enum PathError {
    /// A segment cannot be decoded or could be mistaken for another path.
    Malformed,
}

fn method_verb(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

fn lower_method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "",
    }
}

impl RequestInfo {
    /// Takes a request apart. Seed-era paths (`/api/v1/ns/{ns}/…`) give the same attributes as the canonical ones.
    pub fn parse(method: &http::Method, path: &str, query: &Query) -> Result<RequestInfo, PathError> {
        let mut info = RequestInfo { path: path.to_owned(), verb: lower_method(method).into(), ..Default::default() };
        let mut segments = Vec::with_capacity(8);
        for raw in path.trim_matches('/').split('/') {
            if raw.is_empty() {
                if segments.is_empty() && path.trim_matches('/').is_empty() {
                    return Ok(info);
                }
                return Err(PathError::Malformed);
            }
            let decoded = percent_decode(raw).ok_or(PathError::Malformed)?;
            if decoded == "." || decoded == ".." || decoded.contains('/') || decoded.contains('\0') {
                return Err(PathError::Malformed);
            }
            segments.push(decoded);
        }
        let mut parts: &[Cow<'_, str>] = &segments;
        match parts.first().map(|s| s.as_ref()) {
            Some("api") if parts.len() >= 3 => {
                info.version = parts[1].to_string();
                parts = &parts[2..];
            }
            Some("apis") if parts.len() >= 4 => {
                info.group = parts[1].to_string();
                info.version = parts[2].to_string();
                parts = &parts[3..];
            }
            _ => return Ok(info),
        }
        info.is_resource = true;
        info.verb = method_verb(method).into();
        let mut watch_path = false;
        if parts[0] == "watch" {
            watch_path = true;
            parts = &parts[1..];
            if parts.is_empty() {
                info.is_resource = false;
                info.verb = lower_method(method).into();
                return Ok(info);
            }
        }
        let alias = parts[0] == "ns" && info.group.is_empty() && parts.len() > 2;
        if parts[0] == "namespaces" || alias {
            if parts.len() > 1 {
                let of_namespace = parts.len() > 2 && (parts[2] == "status" || parts[2] == "finalize");
                info.namespace = parts[1].to_string();
                if parts.len() > 2 && (!of_namespace || alias) {
                    info.within = true;
                    parts = &parts[2..];
                }
            }
        }
        info.resource = parts[0].to_string();
        if let Some(name) = parts.get(1) {
            info.name = name.to_string();
        }
        if let Some(part) = parts.get(2) {
            info.subresource = part.to_string();
            info.deeper = parts.len() > 3;
        }
        if info.verb == "get" && (watch_path || (info.name.is_empty() && query.flag("watch"))) {
            info.verb = "watch".into();
        } else if info.name.is_empty() {
            match &*info.verb {
                "get" => info.verb = "list".into(),
                "delete" => info.verb = "deletecollection".into(),
                _ => {}
            }
        }
        if matches!(&*info.verb, "list" | "watch" | "deletecollection") {
            info.field_selector = query.get("fieldSelector").unwrap_or_default().to_owned();
        }
        if matches!(&*info.verb, "list" | "watch") && info.name.is_empty() {
            // A selector on the name is authorized like a request for that name.
            let selector = query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
            let name = selector.as_ref().and_then(|selector| selector.exact("metadata.name"));
            if let Some(name) = name.filter(|name| names::path_segment_name(name).is_empty()) {
                info.name = name.to_owned();
            }
        }
        Ok(info)
    }

    /// `get pods "web-0" in namespace "default"`, for logs and messages.
    pub fn describe(&self) -> String {
        if !self.is_resource {
            return format!("{} path {:?}", self.verb, self.path);
        }
        let mut what = machinery::status::qualified(&self.group, &self.resource);
        if !self.subresource.is_empty() {
            what.push('/');
            what.push_str(&self.subresource);
        }
        format!("{} {what} {:?} in namespace {:?}", self.verb, self.name, self.namespace)
    }

    /// The group and version as objects write it: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Decodes `%41`; `None` if the result is not UTF-8 or an escape is broken.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let hex = bytes.get(at + 1..at + 3)?;
            // Asked of each: a sign would be taken for a part of the number.
            let digit = |of: u8| char::from(of).to_digit(16);
            out.push((digit(hex[0])? * 16 + digit(hex[1])?) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// The query of a request, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a raw query string.
    pub fn parse(raw: &str) -> Query {
        Query(form_urlencoded::parse(raw.as_bytes()).map(|(k, v)| (k.into_owned(), v.into_owned())).collect())
    }

    /// The first non-empty value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean parameter: whatever is present counts as true, also nothing, but for `0` and `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.all(name).next().is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A whole number; a bad one is a 400.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

/// What list and watch requests select and how they want it.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Labels to match.
    pub label_selector: String,
    /// Fields to match.
    pub field_selector: String,
    /// At most this many items.
    pub limit: usize,
    /// Where the last page ended.
    pub continue_token: String,
    /// The revision asked for, as sent.
    pub resource_version: String,
    /// `Exact` or `NotOlderThan`.
    pub version_match: String,
    /// End a watch after this many seconds.
    pub timeout_seconds: Option<u64>,
    /// Send bookmarks in a watch.
    pub bookmarks: bool,
    /// Begin a watch with what exists.
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads them from a query.
    pub fn from_query(query: &Query) -> Result<ListOptions, Status> {
        let text = |name| query.get(name).unwrap_or_default().to_owned();
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout = query.number("timeoutSeconds")?;
        Ok(ListOptions {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: usize::try_from(limit.max(0)).unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            timeout_seconds: timeout.and_then(|t| u64::try_from(t).ok()).filter(|t| *t > 0),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
        })
    }

    /// The numeric resource version: `None` when not given; 0 means "any".
    pub fn revision(&self) -> Result<Option<u64>, Status> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        self.resource_version.parse().map(Some).map_err(|_| {
            let text = &self.resource_version;
            Status::new(
                400,
                "BadRequest",
                format!("invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, target: &str) -> RequestInfo {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query)).unwrap()
    }

    fn check(method: &str, target: &str, expected: &str) {
        let i = parse(method, target);
        let shown = format!(
            "{} {}/{} ns={} {} {} sub={}",
            i.verb, i.group, i.version, i.namespace, i.resource, i.name, i.subresource
        );
        assert_eq!(shown, expected, "{method} {target}");
    }

    #[test]
    fn paths_become_attributes() {
        check("GET", "/api/v1/namespaces", "list /v1 ns= namespaces  sub=");
        check("GET", "/api/v1/namespaces/a", "get /v1 ns=a namespaces a sub=");
        check("PUT", "/api/v1/namespaces/a/finalize", "update /v1 ns=a namespaces a sub=finalize");
        check("PATCH", "/api/v1/namespaces/a/status", "patch /v1 ns=a namespaces a sub=status");
        check("GET", "/api/v1/namespaces/a/pods", "list /v1 ns=a pods  sub=");
        check("GET", "/api/v1/namespaces/a/pods?watch=1", "watch /v1 ns=a pods  sub=");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 ns=a pods p sub=");
        check("GET", "/api/v1/watch/ns/a/persistentvolumeclaims", "watch /v1 ns=a persistentvolumeclaims  sub=");
        check("POST", "/api/v1/ns/a/persistentvolumeclaims/", "create /v1 ns=a persistentvolumeclaims  sub=");
        check("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps/v1 ns=a deployments  sub=");
        check("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", "get apps/v1 ns=a deployments d sub=scale");
        check("GET", "/api/v1/namespaces/a/services/s:80/proxy/b/c", "get /v1 ns=a services s:80 sub=proxy");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list /v1 ns= pods x sub=");
        check("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn,metadata.name%3D%3Dx", "list /v1 ns= pods x sub=");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dx", "list /v1 ns= pods  sub=");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list /v1 ns= pods  sub=");
        check("DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "deletecollection /v1 ns= pods  sub=");
        assert!(!parse("GET", "/version").is_resource);
        assert!(!parse("GET", "/api/v1").is_resource);
        assert!(!parse("GET", "/apis/apps/v1").is_resource);
    }

    #[test]
    fn path_tricks_are_refused() {
        for path in [
            "/api/v1/../secrets",
            "/api/v1/%2e%2e/x",
            "/api//v1/pods",
            "/api/v1/namespaces/a%2fb/pods",
            "/api/v1/%zz/x",
        ] {
            let parsed = RequestInfo::parse(&http::Method::GET, path, &Query::default());
            assert_eq!(parsed, Err(PathError::Malformed), "{path}");
        }
    }
}
