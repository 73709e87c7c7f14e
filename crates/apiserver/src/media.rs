//! Media types: what a client sends and what it wants back.

use http::HeaderMap;
use machinery::status::Status;

/// How bytes encode an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf envelope.
    Protobuf,
}

impl Encoding {
    /// The content type of whole answers.
    pub fn content_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What the answer should look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Object,
    /// A `Table` for people (`;as=Table`).
    Table,
    /// Metadata only (`;as=PartialObjectMetadata`).
    Metadata,
    /// Metadata of a list (`;as=PartialObjectMetadataList`).
    MetadataList,
    /// Aggregated discovery (`;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`).
    Discovery,
}

/// An agreed answer: how it is encoded and what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// How.
    pub encoding: Encoding,
    /// What.
    pub form: Form,
    /// Indented for people (`?pretty=1`).
    pub pretty: bool,
}

impl Accept {
    /// Whether the answer is in protobuf, which tables have not, and of custom resources only the metadata.
    pub fn is_protobuf(self, custom: bool) -> bool {
        let has_form = match self.form {
            Form::Object => !custom,
            Form::Metadata | Form::MetadataList => true,
            Form::Table | Form::Discovery => false,
        };
        self.encoding == Encoding::Protobuf && has_form
    }
}

struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut out: Vec<Clause<'_>> = Vec::new();
    for part in header.split(',').take(64) {
        let mut pieces = part.split(';').map(str::trim);
        let Some(media) = pieces.next().filter(|m| !m.is_empty()) else { continue };
        let mut quality = 1.0;
        let mut params = Vec::new();
        for piece in pieces {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            if key == "q" {
                quality = value.parse().unwrap_or(1.0);
            } else {
                params.push((key, value));
            }
        }
        out.push(Clause { media, params, quality });
    }
    // Stable: of equal quality the first named wins.
    out.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    out
}

/// Which of the server's forms fits the `Accept` header. `lists` says whether the path can also be watched.
pub fn negotiate(headers: &HeaderMap, pretty: bool, lists: bool) -> Result<Accept, Status> {
    choose(headers, pretty, lists, true, true)
}

/// The next best for what has no table.
pub fn without_tables(headers: &HeaderMap, accept: Accept) -> Result<Accept, Status> {
    choose(headers, accept.pretty, false, false, true)
}

/// The next best for custom resources, which have no protobuf form of their own.
pub fn without_protobuf(headers: &HeaderMap, accept: Accept) -> Result<Accept, Status> {
    choose(headers, accept.pretty, false, true, false)
}

fn choose(headers: &HeaderMap, pretty: bool, lists: bool, tables: bool, protobuf: bool) -> Result<Accept, Status> {
    let mut header = String::new();
    for value in headers.get_all(http::header::ACCEPT) {
        if let Ok(text) = value.to_str() {
            if !header.is_empty() {
                header.push(',');
            }
            header.push_str(text);
        }
    }
    if header.is_empty() {
        return Ok(Accept { encoding: Encoding::Json, form: Form::Object, pretty });
    }
    for clause in clauses(&header) {
        let encoding = match clause.media {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
            _ => continue,
        };
        let param = |name: &str| clause.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let form = match (param("as"), param("g"), param("v")) {
            (None, ..) => Form::Object,
            (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1"))
                if tables && encoding != Encoding::Protobuf =>
            {
                Form::Table
            }
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Form::Metadata,
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Form::MetadataList,
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Form::Discovery,
            _ => continue,
        };
        if !protobuf && (encoding, form) == (Encoding::Protobuf, Form::Object) {
            continue;
        }
        return Ok(Accept { encoding, form, pretty });
    }
    let offered = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
    ];
    if !protobuf || !tables {
        let why = format!("only the following media types are accepted: {}", offered[..3].join(", "));
        return Err(Status::new(406, "NotAcceptable", why));
    }
    Err(Status::not_acceptable(&offered[..if lists { 5 } else { 3 }]))
}

/// The media type of a request's body, without parameters; JSON if none is said, nothing if what is said is none.
pub fn content_type(headers: &HeaderMap) -> &str {
    match headers.get(http::header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or(";")) {
        None | Some("") => "application/json",
        Some(header) => header.split(';').next().unwrap_or("").trim(),
    }
}

/// How a whole object in a body is encoded.
pub fn body_encoding(headers: &HeaderMap) -> Result<Encoding, Status> {
    match content_type(headers) {
        "application/json" | "*/*" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expected: Option<(Encoding, Form)>) {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, header.parse().unwrap());
        let got = negotiate(&headers, false, false).ok().map(|accept| (accept.encoding, accept.form));
        assert_eq!(got, expected, "{header}");
    }

    #[test]
    fn the_first_clause_that_fits_wins() {
        check("application/json", Some((Encoding::Json, Form::Object)));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Some((Encoding::Json, Form::Table)),
        );
        check("application/json;as=Nonsense;g=x;v=v1,application/yaml", Some((Encoding::Yaml, Form::Object)));
        check("text/html;q=0.9,application/json;q=0.1,application/yaml;q=0.5", Some((Encoding::Yaml, Form::Object)));
        check("application/vnd.kubernetes.protobuf,application/json", Some((Encoding::Protobuf, Form::Object)));
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        check(metadata, Some((Encoding::Protobuf, Form::Metadata)));
        // Tables are not made in protobuf.
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
        check(table, None);
        check(&format!("{table},application/json"), Some((Encoding::Json, Form::Object)));
        check("text/html", None);
        check("text/html, */*", Some((Encoding::Json, Form::Object)));
    }
}
