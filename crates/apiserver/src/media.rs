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
    /// The apiVersion of tables and metadata: `meta.k8s.io/v1`, or `v1beta1` for old clients.
    pub meta: &'static str,
    /// Indented for people (`?pretty=1`).
    pub pretty: bool,
}

impl Accept {
    /// JSON, as it is.
    pub const JSON: Accept =
        Accept { encoding: Encoding::Json, form: Form::Object, meta: "meta.k8s.io/v1", pretty: false };

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

/// What can be asked for at a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    /// Tables.
    pub tables: bool,
    /// Metadata only.
    pub metadata: bool,
    /// Aggregated discovery.
    pub discovery: bool,
    /// The object itself in protobuf.
    pub protobuf: bool,
    /// The media types that Kubernetes' router asks for before anybody else looks; empty where it is not asked.
    pub router: &'static [&'static str],
}

const MEDIA: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

impl Offer {
    /// What is said about the API itself.
    pub const DOCUMENT: Offer =
        Offer { tables: false, metadata: false, discovery: false, protobuf: true, router: MEDIA.split_at(3).0 };

    /// A built-in resource; `lists` says whether the path can also be watched, `kept` whether there is something to show.
    pub fn builtin(lists: bool, kept: bool) -> Offer {
        let router = if lists { &MEDIA } else { Offer::DOCUMENT.router };
        Offer { tables: kept, metadata: true, router, ..Offer::DOCUMENT }
    }

    /// A custom resource, which has no protobuf form of its own.
    pub const CUSTOM: Offer = Offer { tables: true, metadata: true, discovery: false, protobuf: false, router: &[] };
}

/// 406: events come in a form that has a beginning and an end of its own. Kubernetes names the same of custom resources, whose
/// metadata comes in protobuf too.
pub fn no_stream() -> Status {
    let message = format!("only the following media types are accepted: {}", MEDIA[3..].join(", "));
    Status::new(406, "NotAcceptable", message)
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

/// The encoding of a media type; anything stands for JSON.
fn encoding(media: &str) -> Option<Encoding> {
    match media {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
        _ => None,
    }
}

fn header_text(headers: &HeaderMap) -> String {
    let values = headers.get_all(http::header::ACCEPT).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect::<Vec<_>>().join(",")
}

/// Whether the client wants nothing but JSON, as most do.
fn is_plain(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(http::header::ACCEPT).iter();
    values.next().is_none_or(|value| value == "application/json") && values.next().is_none()
}

/// How refusals are said: in the first encoding that the client takes as it is.
pub fn of_refusals(headers: &HeaderMap, pretty: bool) -> Accept {
    if is_plain(headers) {
        return Accept { pretty, ..Accept::JSON };
    }
    let header = header_text(headers);
    let plain = |clause: &Clause<'_>| !clause.params.iter().any(|(key, _)| matches!(*key, "as" | "g" | "v"));
    let encoding = clauses(&header).iter().filter(|clause| plain(clause)).find_map(|clause| encoding(clause.media));
    Accept { encoding: encoding.unwrap_or(Encoding::Json), pretty, ..Accept::JSON }
}

/// Whether a client takes a media type.
pub fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let header = header_text(headers);
    let clauses = clauses(&header);
    clauses.is_empty() || clauses.iter().any(|clause| [media, "*/*", "application/*"].contains(&clause.media))
}

/// Which of the forms on offer fits the `Accept` header.
pub fn negotiate(headers: &HeaderMap, pretty: bool, offer: Offer) -> Result<Accept, Status> {
    if is_plain(headers) {
        return Ok(Accept { pretty, ..Accept::JSON });
    }
    let header = header_text(headers);
    if header.is_empty() {
        return Ok(Accept { pretty, ..Accept::JSON });
    }
    let clauses = clauses(&header);
    // The router knows no parts of names: there nobody takes `application/*`.
    let known = |clause: &Clause<'_>| clause.media == "*/*" || offer.router.contains(&clause.media);
    if !offer.router.is_empty() && !clauses.iter().any(known) {
        return Err(Status::not_acceptable(offer.router));
    }
    for clause in &clauses {
        let Some(encoding) = encoding(clause.media) else { continue };
        let param = |name: &str| clause.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let meta = match param("v") {
            Some("v1beta1") => "meta.k8s.io/v1beta1",
            _ => Accept::JSON.meta,
        };
        let form = match (param("as"), param("g"), param("v")) {
            (None, None, None) if offer.protobuf || encoding != Encoding::Protobuf => Form::Object,
            (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1"))
                if offer.tables && encoding != Encoding::Protobuf =>
            {
                Form::Table
            }
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) if offer.metadata => {
                Form::Metadata
            }
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) if offer.metadata => {
                Form::MetadataList
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) if offer.discovery => {
                Form::Discovery
            }
            _ => continue,
        };
        return Ok(Accept { encoding, form, meta, pretty: pretty || param("pretty") == Some("1") });
    }
    let why = format!("only the following media types are accepted: {}", MEDIA[..3].join(", "));
    Err(Status::new(406, "NotAcceptable", why))
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
    // Unlike those of patches, these are no matter of case, and what is said beside them has to be well said.
    match content_type(headers).to_ascii_lowercase().as_str() {
        _ if !has_whole_parameters(headers) => Err(unknown_format()),
        "application/json" | "*/*" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(unknown_format()),
    }
}

fn unknown_format() -> Status {
    Status::unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// Whether every parameter of the content type has a name and a value.
fn has_whole_parameters(headers: &HeaderMap) -> bool {
    let header = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let header = header.trim_end();
    let mut quoted = false;
    let ends = |c: char| {
        quoted ^= c == '"';
        c == ';' && !quoted
    };
    let mut parameters = header.strip_suffix(';').unwrap_or(header).split(ends).skip(1);
    parameters.all(|own| own.trim().split_once('=').is_some_and(|(name, value)| !name.is_empty() && !value.is_empty()))
}

/// Whether a client takes what is compressed: it says `gzip`, without a but.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(http::header::ACCEPT_ENCODING).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|own| own.trim_ascii() == b"gzip")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, expected: Option<(Encoding, Form)>) {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, http::HeaderValue::from_bytes(header.as_bytes()).unwrap());
        let got =
            negotiate(&headers, false, Offer::builtin(false, true)).ok().map(|accept| (accept.encoding, accept.form));
        assert_eq!(got, expected, "{header}");
    }

    #[test]
    fn an_answer_is_indented_for_who_asks_so() {
        let pretty = |header: &'static str| {
            let headers = HeaderMap::from_iter([(http::header::ACCEPT, http::HeaderValue::from_static(header))]);
            negotiate(&headers, false, Offer::builtin(false, true)).is_ok_and(|accept| accept.pretty)
        };
        assert!(pretty("application/json;pretty=1") && !pretty("application/json;pretty=0"));
        assert!(!pretty("application/json"));
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
        check("", Some((Encoding::Json, Form::Object)));
        check(";;;", None);
        check("application/*", None);
        check("application/*, application/yaml", Some((Encoding::Json, Form::Object)));
        check("\u{e9}", None);
    }

    #[test]
    fn the_type_of_a_body_is_no_matter_of_case() {
        let read = |header: &str| {
            let value = http::HeaderValue::from_bytes(header.as_bytes()).unwrap();
            body_encoding(&HeaderMap::from_iter([(http::header::CONTENT_TYPE, value)])).ok()
        };
        for (header, expected) in [
            ("", Some(Encoding::Json)),
            ("application/json", Some(Encoding::Json)),
            ("APPLICATION/JSON", Some(Encoding::Json)),
            ("Application/Yaml; charset=utf-8", Some(Encoding::Yaml)),
            ("application/json;", Some(Encoding::Json)),
            ("application/json; a=\"b;c\"", Some(Encoding::Json)),
            ("application/json;;", None),
            ("application/json;foo", None),
            ("application/json;\u{e9}", None),
            ("text/plain", None),
        ] {
            assert_eq!(read(header), expected, "{header}");
        }
    }

    #[test]
    fn only_who_takes_gzip_gets_it() {
        let takes = |header: &'static str| {
            let value = http::HeaderValue::from_static(header);
            takes_gzip(&HeaderMap::from_iter([(http::header::ACCEPT_ENCODING, value)]))
        };
        assert!(takes("gzip") && takes("deflate, gzip, br"));
        assert!(!takes("gzip;q=0") && !takes("identity") && !takes("x-gzip"));
    }
}
