//! Services, what is behind them, and who may reach them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::format::{first_three, int_or_text, joined, labels, number, or, selector, texts};
use super::{AGE, Column, NAME, Printer, SELECTOR, age, name};
use crate::value::{annotation, get, int, list, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            Column::text("Type", "How it is reached."),
            Column::text("Cluster-IP", "Address inside the cluster."),
            Column::text("External-IP", "Addresses outside the cluster."),
            Column::text("Port(s)", "Ports it listens on, with the nodes' ports where it has some."),
            AGE,
            SELECTOR,
        ],
        cells: service,
    },
    Printer {
        group: "",
        kind: "Endpoints",
        columns: &[NAME, Column::text("Endpoints", "Addresses and ports behind the service."), AGE],
        cells: |object, now| vec![name(object), json!(endpoints(object)), age(object, now)],
    },
    Printer {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[
            NAME,
            Column::text("AddressType", "IPv4, IPv6 or names."),
            Column::text("Ports", "Ports that all its endpoints have."),
            Column::text("Endpoints", "Addresses in this slice."),
            AGE,
        ],
        cells: endpoint_slice,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[
            NAME,
            Column::text("Class", "Who serves it."),
            Column::text("Hosts", "Names it answers to."),
            Column::text("Address", "Addresses of what serves it."),
            Column::text("Ports", "Ports it listens on, by whether it has certificates."),
            AGE,
        ],
        cells: ingress,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[
            NAME,
            Column::text("Controller", "What serves the class."),
            Column::text("Parameters", "The object that configures it."),
            AGE,
        ],
        cells: ingress_class,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[NAME, Column::text("Pod-Selector", "Labels of the pods it is about."), AGE],
        cells: |object, now| vec![name(object), json!(selector(object, "spec.podSelector")), age(object, now)],
    },
    // The age has a cell and no column in Kubernetes, too.
    Printer {
        group: "networking.k8s.io",
        kind: "IPAddress",
        columns: &[NAME, Column::text("ParentRef", "The object it was given to.")],
        cells: |object, now| vec![name(object), json!(parent(object)), age(object, now)],
    },
    Printer {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[NAME, Column::text("CIDRs", "The ranges of addresses."), AGE],
        cells: |object, now| vec![name(object), json!(joined(texts(object, "spec.cidrs"))), age(object, now)],
    },
];

fn service(object: &Value, now: i64) -> Vec<Value> {
    let ports = list(object, "spec.ports").iter().map(|port| {
        let (number, protocol) = (number(port, "port"), text(port, "protocol"));
        match int(port, "nodePort") {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    let ports: Vec<String> = ports.collect();
    vec![
        name(object),
        json!(text(object, "spec.type")),
        json!(texts(object, "spec.clusterIPs").next().unwrap_or("<none>")),
        json!(external_addresses(object)),
        json!(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }),
        age(object, now),
        json!(labels(object, "spec.selector")),
    ]
}

fn external_addresses(object: &Value) -> String {
    let external = joined(texts(object, "spec.externalIPs"));
    let or = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" => or(external, "<none>"),
        "LoadBalancer" => {
            let balancer = balancers(object);
            let all = [balancer.as_str(), external.as_str()];
            or(joined(all.into_iter().filter(|text| !text.is_empty())), "<pending>")
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses of the load balancers in front of a Service or an Ingress, each once, sorted.
pub(super) fn balancers(object: &Value) -> String {
    let ingress = list(object, "status.loadBalancer.ingress");
    let addresses: BTreeSet<&str> =
        ingress.iter().map(|point| or(point, "ip", text(point, "hostname"))).filter(|text| !text.is_empty()).collect();
    joined(addresses.into_iter())
}

fn endpoints(object: &Value) -> String {
    let subsets = list(object, "subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = number(port, "port");
            all.extend(addresses().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    first_three(all)
}

fn or_unset(text: String) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

fn endpoint_slice(object: &Value, now: i64) -> Vec<Value> {
    let port = |port: &Value| match (int(port, "port"), get(port, "name").as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports = list(object, "ports").iter().map(port).collect();
    let endpoints = list(object, "endpoints").iter();
    let addresses = endpoints.flat_map(|endpoint| texts(endpoint, "addresses")).map(str::to_owned).collect();
    vec![
        name(object),
        json!(text(object, "addressType")),
        json!(or_unset(first_three(ports))),
        json!(or_unset(first_three(addresses))),
        age(object, now),
    ]
}

fn ingress(object: &Value, now: i64) -> Vec<Value> {
    vec![
        name(object),
        json!(int_or_text(get(object, "spec.ingressClassName")).unwrap_or_else(|| "<none>".to_owned())),
        json!(hosts(list(object, "spec.rules"))),
        json!(balancers(object)),
        json!(if list(object, "spec.tls").is_empty() { "80" } else { "80, 443" }),
        age(object, now),
    ]
}

/// Up to three hosts. Whatever comes after the third counts as more, rules without a host among them.
fn hosts(rules: &[Value]) -> String {
    let mut hosts = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "host").is_empty());
    let shown: Vec<(usize, &str)> = hosts.by_ref().take(3).map(|(index, rule)| (index, text(rule, "host"))).collect();
    let all = joined(shown.iter().map(|(_, host)| *host));
    match shown.as_slice() {
        [] => "*".to_owned(),
        [_, _, (third, _)] if third + 1 < rules.len() => format!("{all} + {} more...", rules.len() - 3),
        _ => all,
    }
}

fn ingress_class(object: &Value, now: i64) -> Vec<Value> {
    let mut title = text(object, "metadata.name").to_owned();
    if annotation(object, "ingressclass.kubernetes.io/is-default-class") == Some("true") {
        title.push_str(" (default)");
    }
    let parameters = get(object, "spec.parameters");
    let parameters = match (parameters.is_null(), get(parameters, "apiGroup").as_str()) {
        (true, _) => "<none>".to_owned(),
        (_, Some(group)) => format!("{}.{group}/{}", text(parameters, "kind"), text(parameters, "name")),
        (_, None) => format!("{}/{}", text(parameters, "kind"), text(parameters, "name")),
    };
    vec![json!(title), json!(text(object, "spec.controller")), json!(parameters), age(object, now)]
}

fn parent(object: &Value) -> String {
    let parent = get(object, "spec.parentRef");
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let mut path = match text(parent, "group") {
        "" => text(parent, "resource").to_lowercase(),
        group => format!("{}.{group}", text(parent, "resource")).to_lowercase(),
    };
    for step in [text(parent, "namespace")].into_iter().filter(|step| !step.is_empty()) {
        path = format!("{path}/{step}");
    }
    format!("{path}/{}", text(parent, "name"))
}
