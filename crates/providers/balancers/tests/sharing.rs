//! Claims that share a balancer: nobody loses what they have to another, whatever the other does.

use std::collections::BTreeSet;

use conductor_balancers::config::{Setting, render};
use conductor_balancers::endpoints::Network;
use conductor_balancers::holdings::Holdings;
use conductor_balancers::routes::{CLAIM, Claim, HEALTH, Plan, Rules, plan};
use proptest::prelude::*;
use serde_json::{Value, json};

const RULES: Rules = Rules { http: 80, https: 443, external_names: false, claims: 8 };

/// Claims `front` of namespaces `a` and `b`; the first is the older.
fn claims() -> [Claim; 2] {
    ["a", "b"].map(|namespace| Claim {
        uid: format!("uid-{namespace}"),
        namespace: namespace.into(),
        name: "front".into(),
    })
}

fn meta(namespace: &str, name: &str, day: u8) -> Value {
    json!({"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "annotations": {CLAIM: "front"},
        "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")})
}

fn ingress(namespace: &str, name: &str, day: u8, hosts: &[&str], path: &str) -> Value {
    let rule = |host: &&str| {
        json!({"host": host, "http": {"paths": [
            {"path": path, "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}})
    };
    json!({"metadata": meta(namespace, name, day), "spec": {"rules": hosts.iter().map(rule).collect::<Vec<_>>()}})
}

fn service(namespace: &str, name: &str, day: u8, ports: &[u16]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port})).collect();
    json!({"metadata": meta(namespace, name, day), "spec": {"ports": ports}})
}

/// What Ingresses lead to; names no claim.
fn backend(namespace: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": {"ports": [{"port": 80}]}})
}

fn planned(ingresses: &[Value], services: &[Value], held: &Holdings) -> Plan {
    let mut services = services.to_vec();
    services.extend(["a", "b"].map(backend));
    plan(&claims(), &Network { ingresses, services: &services, ..Network::default() }, &RULES, held)
}

fn file(plan: &Plan, name: &str) -> String {
    let directory = std::path::PathBuf::from("/d");
    let address = "127.1.2.3".parse().expect("an address");
    let setting = Setting { owner: "x", directory: &directory, address, rules: RULES, connections: 100, account: None };
    render(plan, &setting).files.into_iter().find(|(n, _)| n == name).expect("is there").1
}

/// The backends that requests for a host can reach.
fn reaches(plan: &Plan, host: &str) -> BTreeSet<String> {
    plan.routes.iter().filter(|r| r.host == host).map(|r| r.backend.clone()).collect()
}

fn refusals(plan: &Plan, name: &str) -> String {
    plan.verdicts.iter().find(|v| v.name == name).expect("has a verdict").refusals.join("; ")
}

#[test]
fn the_oldest_that_asks_has_it_whoever_has_the_older_claim() {
    let ingresses = [ingress("a", "late", 2, &["shop.example"], "/"), ingress("b", "early", 1, &["shop.example"], "/")];
    let services = [service("a", "late-db", 2, &[5432]), service("b", "early-db", 1, &[5432])];
    let made = planned(&ingresses, &services, &Holdings::default());
    assert_eq!(reaches(&made, "shop.example"), BTreeSet::from(["b_web_80".to_owned()]));
    assert_eq!(made.listeners[&5432], "b_early-db_5432");
    for late in ["late", "late-db"] {
        let why = refusals(&made, late);
        assert!(why.contains("another namespace") && !why.contains("early") && !why.contains("front"), "{why}");
    }
    // in the same second by name
    let same = [ingress("a", "x", 1, &["x.example"], "/"), ingress("b", "x", 1, &["x.example"], "/")];
    assert_eq!(planned(&same, &[], &Holdings::default()).held.hosts["x.example"], "uid-a");
}

#[test]
fn an_old_ingress_or_service_that_is_edited_takes_nothing_from_others() {
    let before = [ingress("a", "old", 1, &["a.example"], "/"), ingress("b", "new", 9, &["shop.example"], "/")];
    let ports = [service("a", "old-db", 1, &[1]), service("b", "new-db", 9, &[5432])];
    let held = planned(&before, &ports, &Holdings::default()).held;
    let after = [ingress("a", "old", 1, &["a.example", "shop.example"], "/"), before[1].clone()];
    let ports = [service("a", "old-db", 1, &[1, 5432]), ports[1].clone()];
    let made = planned(&after, &ports, &held);
    assert_eq!(reaches(&made, "shop.example"), BTreeSet::from(["b_web_80".to_owned()]));
    assert_eq!(made.listeners[&5432], "b_new-db_5432");
    assert_eq!(refusals(&made, "new") + &refusals(&made, "new-db"), "");
    assert!(refusals(&made, "old").contains("had it first"));
    // its backend is gone for a while, and it keeps its host
    let network = Network { ingresses: &after, services: &ports, ..Network::default() };
    let without = plan(&claims(), &network, &RULES, &made.held);
    assert_eq!(without.held.hosts["shop.example"], "uid-b");
    // it lets go of it, and the other has it
    let made = planned(&after[..1], &ports[..1], &made.held);
    assert_eq!((&*made.held.hosts["shop.example"], &*made.held.ports[&5432]), ("uid-a", "uid-a"));
}

#[test]
fn a_wildcard_leaves_the_hosts_that_others_had_and_covers_those_that_come() {
    let one = [ingress("a", "one", 1, &["www.example"], "/")];
    let held = planned(&one, &[], &Holdings::default()).held;
    let two = [one[0].clone(), ingress("b", "wide", 2, &["*.example"], "/")];
    let both = planned(&two, &[], &held);
    assert_eq!(refusals(&both, "one") + &refusals(&both, "wide"), "");
    // again, and with everything held: nothing moves
    let again = planned(&two, &[], &both.held);
    assert_eq!(again, both);
    let three = [two[0].clone(), two[1].clone(), ingress("a", "more", 1, &["new.example"], "/")];
    let made = planned(&three, &[], &both.held);
    assert!(refusals(&made, "more").contains("*.example"));
    // a certificate for the wildcard is not for the host that another has
    let mut tls = two.clone();
    tls[1]["spec"]["tls"] =
        json!([{"hosts": ["*.example"], "secretName": "tls"}, {"hosts": [""], "secretName": "tls"}]);
    let secret = json!({"metadata": {"namespace": "b", "name": "tls"}, "data": {
        "tls.crt": "LS0tLS1CRUdJTiBD", "tls.key": "LS0tLS1CRUdJTiBD"}});
    let (services, secrets) = (["a", "b"].map(backend), [secret]);
    let network = Network { ingresses: &tls, services: &services, secrets: &secrets, ..Network::default() };
    let made = plan(&claims(), &network, &RULES, &both.held);
    assert_eq!(made.certificates[0].hosts, [["*.example", "!www.example"]]);
}

#[test]
fn what_no_path_of_a_host_leads_to_reaches_nobody_elses_backend() {
    let ingresses = [
        ingress("a", "one", 1, &["www.example"], "/api"),
        ingress("b", "wide", 2, &["*.example", ""], "/"),
        ingress("a", "rest", 3, &["*.other"], "/"),
    ];
    let made = planned(&ingresses, &[], &Holdings::default());
    assert_eq!(file(&made, "hosts.map"), "*.example 1\n*.other 0\nwww.example 0\n");
    let config = file(&made, "haproxy.cfg");
    let lines: Vec<&str> = config.lines().map(str::trim).collect();
    let at = |line: &str| lines.iter().position(|l| *l == line).unwrap_or_else(|| panic!("no {line} in {config}"));
    let rest = at("http-request set-var(txn.claim) str(1)");
    let wide = at("http-request set-var(txn.claim) var(txn.wide),map_str(hosts.map)");
    let own = at("http-request set-var(txn.claim) var(txn.host),map_str(hosts.map)");
    assert!(rest < wide && wide < own, "the last that holds counts: {config}");
    assert_eq!(
        file(&made, "beginnings.map"),
        "0|www.example|/api/ a_web_80\n1|*.example|/ b_web_80\n0|*.other|/ a_web_80\n1||/ b_web_80\n"
    );
    // as many as there are, a request goes through the same few lines
    let many: Vec<String> = (0..1000).map(|n| format!("h{n}.test")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let more = planned(&[ingress("a", "many", 1, &many, "/")], &[], &Holdings::default());
    let one = planned(&[ingress("a", "many", 1, &many[..1], "/")], &[], &Holdings::default());
    assert_eq!(file(&more, "haproxy.cfg").lines().count(), file(&one, "haproxy.cfg").lines().count());
}

#[test]
fn nobody_asks_for_more_than_a_balancer_can_carry() {
    let names: Vec<String> = (0..5000).map(|n| format!("h{n}.example")).collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    // HAProxy takes 2047 hosts for a certificate on one line, and refuses everyone's configuration for one more
    let mut greedy = ingress("a", "greedy", 1, &hosts[..1], "/");
    greedy["spec"]["tls"] = json!([{"hosts": hosts[..3000], "secretName": "tls"}]);
    let mut wide = ingress("b", "wide", 2, &["*.example"], "/");
    wide["spec"]["tls"] = json!([{"hosts": ["*.example", "b.test"], "secretName": "tls"}]);
    let secret = |namespace: &str| {
        json!({"metadata": {"namespace": namespace, "name": "tls"}, "data": {
        "tls.crt": "LS0tLS1CRUdJTiBD", "tls.key": "LS0tLS1CRUdJTiBD"}})
    };
    let (services, secrets) = (["a", "b"].map(backend), ["a", "b"].map(secret));
    let ingresses = [greedy, wide];
    let network = Network { ingresses: &ingresses, services: &services, secrets: &secrets, ..Network::default() };
    let made = plan(&claims(), &network, &RULES, &Holdings::default());
    let of = |name: &str| made.certificates.iter().find(|c| c.name == name).expect("is there").hosts.clone();
    assert_eq!(of("a_tls").concat().len(), 3000);
    assert!(of("a_tls").iter().all(|line| line.len() <= 200));
    assert_eq!(of("b_tls"), [["b.test"]], "a wildcard over too many hosts of others");
    assert!(refusals(&made, "wide").contains("*.example"));

    // paths, and words about them that are longer than what says them can hold
    let mut greedy = ingress("a", "greedy", 1, &[], "/");
    let path = |n: usize| json!({"path": format!("/{n}"), "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}});
    let paths: Vec<Value> = (0..5000).map(path).collect();
    greedy["spec"]["rules"] = json!([{"host": "a.example", "http": {"paths": paths}}]);
    let long = ingress("b", "long", 2, &["b.example"], &format!("/{}", "\u{1}".repeat(100_000)));
    let longer = ingress("b", "longer", 2, &["b.example"], &format!("/{}", "a".repeat(100_000)));
    let made = planned(&[greedy, long, longer], &[], &Holdings::default());
    assert_eq!(made.routes.len(), 2048);
    assert!(refusals(&made, "greedy").contains("no more paths"));
    let longest = made.verdicts.iter().flat_map(|v| &v.refusals).map(String::len).max();
    assert!(longest.is_some_and(|longest| longest < 2000), "{longest:?}");
    assert!(made.verdicts.iter().all(|v| v.refusals.len() <= 100));
}

/// Someone adds, edits or deletes an Ingress with hosts, or a Service with ports.
#[derive(Clone, Debug)]
struct Change {
    namespace: usize,
    name: u8,
    hosts: Vec<usize>,
    ports: Vec<u16>,
    delete: bool,
}

fn change() -> impl Strategy<Value = Change> {
    let lists = (
        prop::collection::vec(0..HOSTS.len(), 0..3),
        prop::collection::vec(prop_oneof![Just(80), 1000..1003u16], 0..3),
    );
    (0..2usize, 0..3u8, lists, any::<bool>()).prop_map(|(namespace, name, (hosts, ports), delete)| Change {
        namespace,
        name,
        hosts,
        ports,
        delete,
    })
}

const HOSTS: [&str; 5] = ["", "*.example", "a.example", "b.example", "c.other"];

/// The claim that a plan's owner lines give a host to.
fn owner(plan: &Plan, host: &str) -> Option<usize> {
    let wide = host.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default();
    [host, &wide, ""].into_iter().find_map(|host| plan.hosts.get(host)).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // whatever is added, edited and deleted in whatever order: who has something and still asks for it keeps it, and nobody is answered by
    // another's backend
    #[test]
    fn nobody_loses_what_they_have(changes in prop::collection::vec(change(), 1..40), days in prop::array::uniform6(1..9u8)) {
        let (mut ingresses, mut services): (Vec<Value>, Vec<Value>) = Default::default();
        let mut held = Holdings::default();
        for change in changes {
            let namespace = ["a", "b"][change.namespace];
            let (name, day) = (format!("n{}", change.name), days[change.namespace * 3 + usize::from(change.name)]);
            let other = |o: &Value| o["metadata"]["uid"] != *format!("{namespace}-{name}");
            ingresses.retain(other);
            services.retain(other);
            if !change.delete {
                let hosts: Vec<&str> = change.hosts.iter().map(|at| HOSTS[*at]).collect();
                ingresses.push(ingress(namespace, &name, day, &hosts, "/"));
                services.push(service(namespace, &name, day, &change.ports));
            }
            let made = planned(&ingresses, &services, &held);
            let claims = claims();
            let asks = |uid: &str, fine: &dyn Fn(&Value) -> bool| {
                let mut all = ingresses.iter().chain(&services);
                all.any(|o| format!("uid-{}", o["metadata"]["namespace"].as_str().unwrap_or_default()) == uid && fine(o))
            };
            let lists = |o: &Value, list: &str, key: &str, value: Value| {
                o["spec"][list].as_array().is_some_and(|all| all.iter().any(|one| one[key] == value))
            };
            for (host, uid) in &held.hosts {
                if asks(uid, &|o| lists(o, "rules", "host", json!(host))) {
                    prop_assert_eq!(made.held.hosts.get(host), Some(uid), "{}", host);
                }
            }
            for (port, uid) in &held.ports {
                if asks(uid, &|o| lists(o, "ports", "port", json!(port))) {
                    prop_assert_eq!(made.held.ports.get(port), Some(uid), "{}", port);
                }
            }
            for route in &made.routes {
                let claim = &claims[route.claim];
                prop_assert_eq!(&made.held.hosts[&route.host], &claim.uid);
                let own = route.backend.split('_').next() == Some(&claim.namespace);
                prop_assert!(own, "{:?}", route);
            }
            for (port, backend) in &made.listeners {
                prop_assert!(*port != 80);
                prop_assert_eq!(backend.split('_').next(), made.held.ports[port].strip_prefix("uid-"));
            }
            // a host that someone has by name is never answered by who has the wildcard or the rest
            for (host, claim) in &made.hosts {
                prop_assert_eq!(owner(&made, host), Some(*claim));
            }
            // nothing of it is left to chance: the same again is the same
            let again = planned(&ingresses, &services, &made.held);
            prop_assert_eq!((&again.held, &again.routes, &again.listeners), (&made.held, &made.routes, &made.listeners));
            for verdict in &made.verdicts {
                let said = verdict.refusals.join(" ");
                prop_assert!(!said.contains("front"), "another namespace's claim is not named: {}", said);
            }
            held = made.held;
        }
    }
}

#[test]
fn servers_are_asked_how_they_are_as_each_says_who_sends_requests_to_them() {
    let mut ingresses: Vec<Value> =
        (1..=5).map(|n| ingress("a", &format!("i{n}"), n, &[&format!("{n}.example")], "/")).collect();
    for (at, health) in [(1, "/nope"), (2, "/healthz?full=1&x=y"), (3, "/nope"), (4, "no path")] {
        ingresses[at]["metadata"]["annotations"][HEALTH] = json!(health);
    }
    let mut tcp = service("a", "db", 6, &[5432]);
    tcp["metadata"]["annotations"][HEALTH] = json!("/alive");
    let made = planned(&ingresses, &[tcp], &Holdings::default());
    let of = |n: u8| reaches(&made, &format!("{n}.example"));
    assert_eq!(of(1), BTreeSet::from(["a_web_80".to_owned()]), "a connection is enough");
    assert!(of(2) == of(4) && of(2) != of(1) && of(3) != of(1) && of(3) != of(2), "each path has its own: {made:?}");
    assert_eq!(of(5), of(1));
    assert!(refusals(&made, "i5").contains("health path \"no path\""), "{}", refusals(&made, "i5"));
    for fine in ["i1", "i2", "i3", "i4", "db"] {
        assert_eq!(refusals(&made, fine), "");
    }
    let config = file(&made, "haproxy.cfg");
    let asked = |path: &str| config.matches(&format!("option httpchk GET '{path}'\n")).count();
    assert_eq!((asked("/nope"), asked("/healthz?full=1&x=y"), asked("/alive")), (1, 1, 1), "{config}");
}

#[test]
fn a_service_with_several_ports_is_asked_how_it_is_where_it_speaks_http() {
    let check = |ports: Value, expected: &[u16], said: &str| {
        let mut service = service("a", "app", 1, &[]);
        service["metadata"]["annotations"][HEALTH] = json!("/alive");
        service["spec"]["ports"] = ports.clone();
        let made = planned(&[], &[service], &Holdings::default());
        let asked = |port: &&u16| !made.backends[&made.listeners[*port]].health.is_empty();
        let asked: Vec<u16> = made.listeners.keys().filter(asked).copied().collect();
        assert_eq!(asked, expected, "{ports}");
        let why = refusals(&made, "app");
        assert!(if said.is_empty() { why.is_empty() } else { why.contains(said) }, "{ports}: {why}");
    };
    check(json!([{"port": 8080}]), &[8080], "");
    check(json!([{"name": "web", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]), &[8080], "only TCP");
    let database = json!({"name": "db", "port": 5432});
    check(json!([{"name": "http", "port": 8080}, database]), &[8080], "");
    check(json!([{"name": "http-admin", "port": 8080}, {"name": "https", "port": 8443}, database]), &[8080], "");
    check(json!([{"name": "web", "port": 8080, "appProtocol": "http"}, database]), &[8080], "");
    check(
        json!([{"name": "http", "port": 8080, "appProtocol": "kubernetes.io/h2c"}, database]),
        &[],
        "none of several",
    );
    check(json!([{"name": "web", "port": 8080}, database]), &[], "none of several");
}
