//! A plan as HAProxy's configuration. Pure: the same plan is the same text.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;

use crate::endpoints::Backend;
use crate::routes::{Plan, Route, Rules};

/// What the configuration needs to know besides the plan.
#[derive(Clone, Debug)]
pub struct Setting<'s> {
    /// Whose it is, for whoever opens the file.
    pub owner: &'s str,
    /// The balancer's directory.
    pub directory: &'s Path,
    /// The address it listens on.
    pub address: IpAddr,
    /// Its ports.
    pub rules: Rules,
    /// The most connections at once.
    pub connections: u32,
    /// User and group of the workers; `None`: who we are.
    pub account: Option<&'s str>,
}

/// The files of a configuration, by name, and what the running process says when it is in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `haproxy.cfg` first.
    pub files: Vec<(String, String)>,
    /// A word for exactly this content.
    pub mark: String,
}

/// HAProxy's configuration file.
pub const CONFIG: &str = "haproxy.cfg";
/// What the names of frontends that carry TCP begin with; their ports follow.
pub const TCP: &str = "tcp_";

impl Setting<'_> {
    fn bind(&self, port: u16) -> String {
        match self.address {
            IpAddr::V4(v4) => format!("{v4}:{port}"),
            IpAddr::V6(v6) => format!("[{v6}]:{port}"),
        }
    }

    fn file(&self, name: &str) -> String {
        // the directory is ours, but the path to it is anyone's
        format!("'{}'", self.directory.join(name).display())
    }
}

/// Where requests go is looked up, not gone through: as many hosts as there are cost next to nothing. Files are named from where it runs.
const HOSTS: &str = "hosts.map";
const WHOLE: &str = "whole.map";
const BEGINNINGS: &str = "beginnings.map";

/// The claim that a request's host belongs to is found first: what has the host, a wildcard over it (one label, as in a certificate), or the
/// rest. Only that claim's routes are for the request, of its host, its wildcard and its rest: what no path of a host leads to does not go on
/// to another claim's. Of each, the whole path comes before the longest beginning.
fn routes(plan: &Plan, out: &mut String, files: &mut Vec<(String, String)>) {
    out.push_str(
        "    http-request set-var(txn.host) req.hdr(host),field(1,:),rtrim(.),lower\n    \
         http-request set-var(txn.wide) var(txn.host),regsub(^[^.]+,*)\n    http-request set-var(txn.path) path\n",
    );
    if let Some(claim) = plan.hosts.get("") {
        let _ = writeln!(out, "    http-request set-var(txn.claim) str({claim})");
    }
    for host in ["wide", "host"] {
        let _ = writeln!(out, "    http-request set-var(txn.claim) var(txn.{host}),map_str({HOSTS})");
    }
    for key in
        ["concat(|,txn.host,|),concat(,txn.path)", "concat(|,txn.wide,|),concat(,txn.path)", "concat(||,txn.path)"]
    {
        let _ = writeln!(
            out,
            "    http-request set-var(txn.key) var(txn.claim),{key}\n    \
             http-request set-var(txn.to) var(txn.key),map_str({WHOLE}) if !{{ var(txn.to) -m found }}\n    \
             http-request set-var(txn.to) var(txn.key),concat(/),map_beg({BEGINNINGS}) if !{{ var(txn.to) -m found }}"
        );
    }
    out.push_str("    use_backend http_%[var(txn.to)] if { var(txn.to) -m found }\n");
    let mut maps = [HOSTS, WHOLE, BEGINNINGS].map(|name| (name.to_owned(), String::new()));
    for (host, claim) in plan.hosts.iter().filter(|(host, _)| !host.is_empty()) {
        let _ = writeln!(maps[0].1, "{host} {claim}");
    }
    for Route { host, path, exact, backend, claim } in &plan.routes {
        let (map, path) = match exact {
            true => (1, path.clone()),
            // /a begins /a and /a/b, and not /ab
            false => (2, format!("{}/", path.trim_end_matches('/'))),
        };
        let _ = writeln!(maps[map].1, "{claim}|{host}|{path} {backend}");
    }
    files.extend(maps);
}

fn backend(name: &str, backend: &Backend, mode: &str, out: &mut String) {
    let _ = writeln!(out, "\nbackend {mode}_{name}\n    mode {mode}\n    balance roundrobin");
    if !backend.health.is_empty() {
        let _ = writeln!(out, "    option httpchk GET '{}'\n    http-check expect rstatus ^[23]", backend.health);
    }
    for endpoint in &backend.endpoints {
        let authority = endpoint.authority();
        let name: String =
            authority.chars().map(|c| if c.is_ascii_alphanumeric() || ".-:".contains(c) { c } else { '_' }).collect();
        let _ = writeln!(out, "    server {name} {authority} check");
    }
}

/// Writes the files for a plan.
pub fn render(plan: &Plan, setting: &Setting<'_>) -> Files {
    let mut body = String::new();
    let out = &mut body;
    let _ = writeln!(out, "    stats socket {} mode 600 level admin expose-fd listeners", setting.file("admin.sock"));
    let _ = writeln!(out, "    server-state-file {}", setting.file("servers"));
    let _ = writeln!(out, "    maxconn {}\n    hard-stop-after 60s", setting.connections);
    if let Some(account) = setting.account {
        let _ = writeln!(out, "    user {account}\n    group {account}");
    }
    out.push_str(
        "\ndefaults\n    mode http\n    timeout connect 3s\n    timeout client 60s\n    timeout server 60s\n    \
         timeout http-request 15s\n    timeout http-keep-alive 15s\n    timeout tunnel 1h\n    timeout check 2s\n    \
         option dontlognull\n    option redispatch 1\n    retries 3\n    retry-on conn-failure\n    \
         load-server-state-from-file global\n    default-server inter 1s fastinter 200ms downinter 500ms fall 2 rise 2 \
         observe layer4 error-limit 1 on-error mark-down init-addr last,libc,none\n",
    );
    let mut files = Vec::new();
    if plan.serves_http {
        http(plan, setting, out, &mut files);
    }
    for (port, name) in &plan.listeners {
        let _ = writeln!(
            out,
            "\nfrontend {TCP}{port}\n    mode tcp\n    bind {}\n    default_backend tcp_{name}",
            setting.bind(*port)
        );
    }
    let http: BTreeSet<&String> = plan.routes.iter().map(|r| &r.backend).collect();
    let tcp: BTreeSet<&String> = plan.listeners.values().collect();
    for (name, of) in &plan.backends {
        if http.contains(name) {
            backend(name, of, "http", out);
        }
        if tcp.contains(name) {
            backend(name, of, "tcp", out);
        }
    }
    let mut hasher = DefaultHasher::new();
    (&body, &files, setting.owner).hash(&mut hasher);
    let mark = format!("conductor-{:016x}", hasher.finish());
    let head = format!(
        "# Written by Conductor for {}. What is changed here is changed back: change the Ingress, the Service or the claim.\n\
         global\n    description {mark}\n",
        setting.owner
    );
    files.insert(0, (CONFIG.to_owned(), head + &body));
    Files { files, mark }
}

fn http(plan: &Plan, setting: &Setting<'_>, out: &mut String, files: &mut Vec<(String, String)>) {
    let _ = writeln!(out, "\nfrontend http\n    bind {}", setting.bind(setting.rules.http));
    if !plan.certificates.is_empty() {
        let mut list = String::new();
        for certificate in &plan.certificates {
            let file = format!("certificates/{}.pem", certificate.name);
            // only for hosts of its own claim: nobody can show a certificate for another's
            for hosts in &certificate.hosts {
                let _ = writeln!(list, "{} {}", setting.directory.join(&file).display(), hosts.join(" "));
            }
            files.push((file, certificate.pem.clone()));
        }
        let list_file = "certificates/list".to_owned();
        let _ = writeln!(
            out,
            "    bind {} ssl crt-list {} strict-sni alpn h2,http/1.1 ssl-min-ver TLSv1.2",
            setting.bind(setting.rules.https),
            setting.file(&list_file)
        );
        files.push((list_file, list));
    }
    out.push_str(
        "    option forwardfor\n    http-request set-header X-Forwarded-Proto https if { ssl_fc }\n    \
         http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n",
    );
    routes(plan, out, files);
    out.push_str(
        "    default_backend http_nowhere\n\nbackend http_nowhere\n    http-request return status 404 content-type text/plain \
         string \"no Ingress has this host and path\\n\"\n",
    );
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::endpoints::Network;
    use crate::holdings::Holdings;
    use crate::routes::{CLAIM, Claim};

    const RULES: Rules = Rules { http: 80, https: 443, external_names: false, claims: 8 };

    /// Where nobody has anything yet.
    fn plan(claims: &[Claim], network: &Network<'_>, rules: &Rules) -> Plan {
        crate::routes::plan(claims, network, rules, &Holdings::default())
    }

    fn ingress(namespace: &str, name: &str, claim: &str, host: &str, path: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": name, "uid": name, "annotations": {CLAIM: claim}},
            "spec": {"rules": [{"host": host, "http": {"paths": [
                {"path": path, "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
            ]}}]},
        })
    }

    fn service(namespace: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": {"ports": [{"name": "h", "port": 80}]}})
    }

    fn slice(namespace: &str, address: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "h", "port": 8080}],
            "endpoints": [{"addresses": [address]}, {"addresses": ["10.9.9.9"], "conditions": {"ready": false}}],
        })
    }

    fn claim(namespace: &str, name: &str) -> Claim {
        Claim { uid: format!("{namespace}-{name}"), namespace: namespace.into(), name: name.into() }
    }

    fn text(plan: &Plan) -> String {
        files(plan)[0].1.clone()
    }

    fn files(plan: &Plan) -> Vec<(String, String)> {
        let directory = PathBuf::from("/d");
        let setting = Setting {
            owner: "HAProxyBalancer x",
            directory: &directory,
            address: "127.1.2.3".parse().expect("an address"),
            rules: RULES,
            connections: 100,
            account: None,
        };
        render(plan, &setting).files
    }

    #[test]
    fn claims_that_share_a_balancer_keep_their_hosts() {
        let ingresses = [
            ingress("a", "one", "front", "www.example", "/"),
            ingress("b", "two", "front", "www.example", "/"),
            ingress("b", "three", "front", "other.example", "/api"),
            // of another claim, and of nobody's
            ingress("a", "four", "other", "x.example", "/"),
        ];
        let services = [service("a"), service("b")];
        let slices = [slice("a", "10.0.0.1"), slice("b", "10.0.0.2")];
        let network = Network { ingresses: &ingresses, services: &services, slices: &slices, ..Network::default() };
        let made = plan(&[claim("a", "front"), claim("b", "front")], &network, &RULES);
        let config: String = files(&made).into_iter().map(|(_, content)| content).collect();
        assert!(config.contains("\n0|www.example|/ a_web_80\n"), "{config}");
        assert!(config.contains("server 10.0.0.1:8080 10.0.0.1:8080 check"), "{config}");
        assert!(config.contains("\n1|other.example|/api/ b_web_80\n"), "{config}");
        assert!(!config.contains("10.9.9.9") && !config.contains("x.example"), "{config}");
        let of = |name: &str| made.verdicts.iter().find(|v| v.name == name).expect("has a verdict");
        assert!(of("one").refusals.is_empty() && of("one").ports == [80]);
        assert_eq!(of("two").ports, [0u16; 0]);
        let why = &of("two").refusals[0];
        assert!(
            why.contains("www.example") && why.contains("another namespace") && !why.contains("claim front"),
            "{why}"
        );
        // the order of the claims says nothing
        let turned = plan(&[claim("b", "front"), claim("a", "front")], &network, &RULES);
        assert_eq!(turned.held, made.held);
    }

    #[test]
    fn wildcards_cover_what_comes_later_and_leave_what_was_there() {
        let check = |first: &str, second: &str, refused: bool| {
            let ingresses = [ingress("a", "one", "front", first, "/"), ingress("b", "two", "front", second, "/")];
            let services = [service("a"), service("b")];
            let network = Network { ingresses: &ingresses, services: &services, ..Network::default() };
            let made = plan(&[claim("a", "front"), claim("b", "front")], &network, &RULES);
            assert_eq!(!made.verdicts[1].refusals.is_empty(), refused, "{first}, {second}: {:?}", made.verdicts);
        };
        check("*.example", "www.example", true);
        check("www.example", "*.example", false);
        check("*.example", "a.b.example", false);
        check("", "www.example", false);
        check("", "", true);
    }

    #[test]
    fn services_get_their_ports_and_http_keeps_its_own() {
        let with_port = |namespace: &str, name: &str, port: u16| {
            json!({"metadata": {"namespace": namespace, "name": name, "annotations": {CLAIM: "front"}},
                "spec": {"ports": [{"port": port}, {"port": 53, "protocol": "UDP"}]}})
        };
        let check = |ingresses: &[Value], services: &[Value], expected: &[(u16, &str)], refusals: usize| {
            let network = Network { ingresses, services, ..Network::default() };
            let made = plan(&[claim("a", "front"), claim("b", "front")], &network, &RULES);
            let seen: Vec<(u16, &str)> = made.listeners.iter().map(|(p, b)| (*p, b.as_str())).collect();
            assert_eq!(seen, expected);
            assert_eq!(made.verdicts.iter().map(|v| v.refusals.len()).sum::<usize>(), refusals, "{:?}", made.verdicts);
            made
        };
        let made = check(&[], &[with_port("a", "db", 5432)], &[(5432, "a_db_5432")], 1);
        assert!(text(&made).contains("frontend tcp_5432\n    mode tcp\n    bind 127.1.2.3:5432"));
        check(&[], &[with_port("a", "db", 5432), with_port("b", "db", 5432)], &[(5432, "a_db_5432")], 3);
    }

    #[test]
    fn the_ports_for_http_are_no_services_where_claims_share_them() {
        let with_port = |created: &str, port: u16| {
            json!({"metadata": {"namespace": "a", "name": "db", "creationTimestamp": created, "annotations": {CLAIM: "front"}},
                "spec": {"ports": [{"port": port}]}})
        };
        let mut web = ingress("a", "one", "front", "x.example", "/");
        web["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        let check = |created: &str, port: u16, ingresses: &[Value], claims: usize, carried: bool| {
            let services = [service("a"), with_port(created, port)];
            let network = Network { ingresses, services: &services, ..Network::default() };
            let made = plan(&[claim("a", "front")], &network, &Rules { claims, ..RULES });
            assert_eq!(made.listeners.contains_key(&port), carried, "{:?}", made.verdicts);
            assert_eq!(made.serves_http, !carried || port != 80);
            assert_eq!(text(&made).contains("frontend http\n"), made.serves_http);
            assert_eq!(made.routes.is_empty(), ingresses.is_empty() || !made.serves_http);
        };
        let (before, after) = ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
        let web = [web];
        for port in [80, 443] {
            check(before, port, &[], 8, false);
            check(before, port, &web, 8, false);
            check(before, port, &[], 1, true);
            check(before, port, &web, 1, true);
        }
        // of one claim's own, the older has it; the port for HTTPS is free where there is no certificate
        check(after, 80, &web, 1, false);
        check(after, 443, &web, 1, true);
    }

    #[test]
    fn certificates_are_for_hosts_of_their_claim_only() {
        use base64::Engine;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let secret = |namespace: &str| {
            json!({"metadata": {"namespace": namespace, "name": "tls"}, "data": {
            "tls.crt": encode("-----BEGIN CERTIFICATE-----"), "tls.key": encode("-----BEGIN PRIVATE KEY-----")}})
        };
        let tls = |mut ingress: Value, hosts: &[&str]| {
            ingress["spec"]["tls"] = json!([{"hosts": hosts, "secretName": "tls"}]);
            ingress
        };
        let ingresses = [
            tls(ingress("a", "one", "front", "www.example", "/"), &["www.example"]),
            tls(ingress("b", "two", "front", "b.example", "/"), &["b.example", "www.example"]),
            // without hosts it is for those of its rules
            tls(ingress("b", "two-more", "front", "c.example", "/"), &[]),
        ];
        let (services, secrets) = ([service("a"), service("b")], [secret("a"), secret("b")]);
        let network = Network { ingresses: &ingresses, services: &services, secrets: &secrets, ..Network::default() };
        let made = plan(&[claim("a", "front"), claim("b", "front")], &network, &RULES);
        let hosts: Vec<_> = made.certificates.iter().map(|c| (c.name.as_str(), c.hosts.concat().join(","))).collect();
        assert_eq!(hosts, [("a_tls", "www.example".to_owned()), ("b_tls", "b.example,c.example".to_owned())]);
        assert_eq!(made.verdicts[1].refusals.len(), 1);
        assert!(text(&made).contains("strict-sni"));
    }

    #[test]
    fn what_leads_nowhere_is_said() {
        let external = |host: &str| json!({"metadata": {"namespace": "a", "name": "web"}, "spec": {"type": "ExternalName", "externalName": host}});
        let names = crate::names::Names::from([
            ("out.example".to_owned(), Ok(vec!["203.0.113.7".parse().expect("an address")])),
            ("localhost".to_owned(), Err("which is 127.0.0.1".to_owned())),
        ]);
        let check = |services: &[Value], path: &str, rules: Rules, word: Option<&str>| {
            let ingresses = [ingress("a", "one", "front", "x.example", path)];
            let network = Network { ingresses: &ingresses, services, names: Some(&names), ..Network::default() };
            let made = plan(&[claim("a", "front")], &network, &rules);
            // names never become part of a configuration, only what they were found to be
            assert!(made.backends.values().flat_map(|b| &b.endpoints).all(|e| e.host.parse::<IpAddr>().is_ok()));
            let said = made.verdicts[0].refusals.join("; ");
            assert_eq!(said.is_empty(), word.is_none(), "{said}");
            assert!(word.is_none_or(|word| said.contains(word)), "{said}");
        };
        check(&[], "/", RULES, Some("no Service web"));
        check(&[service("a")], "/", RULES, None);
        check(&[service("a")], "/a b", RULES, Some("characters"));
        check(&[external("out.example")], "/", RULES, Some("ExternalName"));
        let allowed = Rules { external_names: true, ..RULES };
        check(&[external("out.example")], "/", allowed, None);
        check(&[external("localhost")], "/", allowed, Some("127.0.0.1"));
        check(&[external("new.example")], "/", allowed, Some("not resolved"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // whatever users write into Ingresses, a line of the configuration is one that we meant
        #[test]
        fn nobody_writes_lines_of_their_own(host in "\\PC{0,20}", path in "/?\\PC{0,20}[\\n' }]?\\PC{0,9}") {
            let ingresses = [ingress("a", "one", "front", &host, &path)];
            let services = [service("a")];
            let network = Network { ingresses: &ingresses, services: &services, ..Network::default() };
            let made = plan(&[claim("a", "front")], &network, &RULES);
            // what there is without them, and what an Ingress that asks for nothing odd adds
            let usual = [ingress("a", "one", "front", "x.example", "/")];
            let usual = plan(&[claim("a", "front")], &Network { ingresses: &usual, ..network }, &RULES);
            // and what one adds that is for every host
            let open = [ingress("a", "one", "front", "", "/")];
            let open = plan(&[claim("a", "front")], &Network { ingresses: &open, ..network }, &RULES);
            let base = text(&plan(&[], &Network::default(), &RULES)) + &text(&usual) + &text(&open);
            let config = text(&made);
            let known: Vec<&str> = base.lines().collect();
            for line in config.lines().filter(|l| !known.contains(l)) {
                prop_assert!(line.starts_with("    description "), "{line}");
            }
            // what users write is in keys of what is looked up, one on each line
            for (name, content) in files(&made).into_iter().skip(1) {
                prop_assert!(name.ends_with(".map") && content.lines().count() <= 1, "{name} {content}");
                let words: Vec<&str> = content.split_whitespace().collect();
                prop_assert!(words.is_empty() || words.len() == 2 && ["0", "a_web_80"].contains(&words[1]), "{name} {content}");
            }
        }
    }
}
