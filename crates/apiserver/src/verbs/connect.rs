//! What connections to Pods and Services ask for. Nodes would serve them; what is wrong is said before one is needed.

use machinery::field::{self, Path};
use machinery::status::Status;
use serde_json::Value;

use crate::context::Context;
use crate::plan::View;
use crate::request::Query;

/// Checks what is asked of a Pod's log.
pub fn check_log_options(query: &Query, pod: &str) -> Result<(), Status> {
    let (tail, bytes) = (number(query, "tailLines")?, number(query, "limitBytes")?);
    let (seconds, time) = (number(query, "sinceSeconds")?, query.all("sinceTime").next());
    if let Some(time) =
        time.filter(|time| !matches!(*time, "" | "null") && time.parse::<machinery::time::Time>().is_err())
    {
        let layout = "2006-01-02T15:04:05Z07:00";
        return Err(Status::bad_request(format!(
            "parsing time {time:?} as {layout:?}: cannot parse {time:?} as \"2006\""
        )));
    }
    let mut errors = Vec::new();
    let mut at_least = |name: &str, given: Option<i64>, least: i64, detail: &str| {
        if let Some(given) = given.filter(|given| *given < least) {
            errors.push(field::Error::invalid(&Path::root(name), given, detail));
        }
    };
    at_least("tailLines", tail, 0, "must be greater than or equal to 0");
    at_least("limitBytes", bytes, 1, "must be greater than 0");
    if time.is_none() {
        at_least("sinceSeconds", seconds, 1, "must be greater than 0");
    } else if seconds.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(field::Error::forbidden(&Path::root(""), detail));
    }
    if query.all("stream").next().is_some() {
        errors.push(field::Error::forbidden(&Path::root("stream"), "may not be specified"));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("", "PodLogOptions", pod, &errors)) }
}

/// A parameter that is a whole number. What Go says of others is said alike.
fn number(query: &Query, name: &str) -> Result<Option<i64>, Status> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let Some(text) = query.all(name).next() else { return Ok(None) };
    text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            NegOverflow | PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", field::quote(text)))
    })
}

/// Refuses a Service that nobody stands behind. It is named `name`, `name:port` or `scheme:name:port`.
pub fn check_service(cx: &Context) -> Result<(), Status> {
    let id = &cx.info.name;
    let Some((name, port)) = name_and_port(id) else {
        return Err(Status::bad_request(format!("invalid service request {}", field::quote(id))));
    };
    let view = View::new(&cx.server.store);
    let service = view.stored(&cx.resource, &cx.resource.key(&cx.info.namespace, name))?;
    let Some(service) = service else {
        return Err(Status::not_found("", if port.parse::<i64>().is_ok() { "services" } else { "endpoints" }, name));
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut port = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let ports = list(&service.object["spec"]["ports"]);
        let Some(own) = ports.iter().find(|own| own["port"] == number) else {
            let what = format!("no service port {number} found for service {}", field::quote(name));
            return Err(Status::unavailable(what));
        };
        port = own["name"].as_str().unwrap_or_default().to_owned();
    }
    let nobody = |of: &str| Status::unavailable(format!("no endpoints available for service {}", field::quote(of)));
    let endpoints = match cx.server.catalog().find("", "v1", "endpoints") {
        Some(resource) => view.stored(resource, &resource.key(&cx.info.namespace, name))?,
        None => None,
    };
    let subsets = endpoints.map(|endpoints| list(&endpoints.object["subsets"])).unwrap_or_default();
    if subsets.is_empty() {
        return Err(nobody(name));
    }
    // Only Pods are spoken to.
    let is_pod = |address: &Value| address["targetRef"]["kind"] == "Pod";
    let serves = |subset: &Value| {
        let named = |own: &Value| own["name"].as_str().unwrap_or_default() == port;
        list(&subset["ports"]).iter().any(named) && list(&subset["addresses"]).iter().any(is_pod)
    };
    if subsets.iter().any(serves) { Ok(()) } else { Err(nobody(id)) }
}

/// What a Service is called in a path, and its port there.
fn name_and_port(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match *parts.as_slice() {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_with_scheme_and_port() {
        for (id, expected) in [
            ("a", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            ("https:a:web", Some(("a", "web"))),
            (":a:", Some(("a", ""))),
            ("ftp:a:80", None),
            (":80", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(name_and_port(id), expected, "{id}");
        }
    }

    #[test]
    fn what_no_log_can_give_is_refused() {
        let said = |query: &str| {
            check_log_options(&Query::parse(query), "p").err().map(|status| (status.code, status.message))
        };
        let invalid = |what: &str| Some((422, format!("PodLogOptions \"p\" is invalid: {what}")));
        for fine in ["", "tailLines=0&limitBytes=1&sinceSeconds=1", "sinceTime=2020-01-01T00:00:00Z", "follow=true"] {
            assert_eq!(said(fine), None, "{fine}");
        }
        let negative = "tailLines: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(said("tailLines=-1"), invalid(negative));
        assert_eq!(said("limitBytes=0"), invalid("limitBytes: Invalid value: 0: must be greater than 0"));
        assert_eq!(said("sinceSeconds=0"), invalid("sinceSeconds: Invalid value: 0: must be greater than 0"));
        assert_eq!(said("stream=Foo"), invalid("stream: Forbidden: may not be specified"));
        assert_eq!(said("sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z").map(|(code, _)| code), Some(422));
        let number = "strconv.ParseInt: parsing \"x\": invalid syntax";
        assert_eq!(said("tailLines=x"), Some((400, number.to_owned())));
        assert_eq!(said("sinceTime=bad").map(|(code, _)| code), Some(400));
    }
}
