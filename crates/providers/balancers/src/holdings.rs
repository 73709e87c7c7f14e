//! Who has which host and which port of a balancer. Pure.
//!
//! *Invariant:* what a claim has stays the claim's for as long as one of its Ingresses or Services asks for it, whatever others ask for
//! later and however old they are. What nobody has goes to the oldest that asks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::routes::Claim;

/// What claims need room for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    Hosts,
    Ports,
    Paths,
    Certificates,
}

/// How much the claims of a balancer may have in all, each its share: nobody's wishes are too much for everybody's balancer. Hosts are
/// counted by their bytes, for its status has to hold them.
const MOST: [(usize, &str); 4] = [(512 << 10, "hosts"), (4096, "ports"), (16 << 10, "paths"), (2048, "certificates")];

/// How many certificates the claims of one namespace may name, where so many claims may be.
pub(crate) fn most_certificates(claims: usize) -> usize {
    MOST[Need::Certificates as usize].0 / claims.max(1)
}

/// What the claims of a balancer have, as its status keeps it:
///
/// ```yaml
/// held:
///   - {claim: 8b1f…, hosts: [www.example, "*.shop.example"], ports: [5432]}
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Host and uid of its claim.
    pub hosts: BTreeMap<String, String>,
    /// Port and uid of its claim.
    pub ports: BTreeMap<u16, String>,
}

impl Holdings {
    /// Reads `status.held`.
    pub fn read(held: &Value) -> Holdings {
        let mut all = Holdings::default();
        for entry in held.as_array().into_iter().flatten() {
            let Some(claim) = entry["claim"].as_str() else { continue };
            let list = |key: &str| entry[key].as_array().into_iter().flatten();
            all.hosts.extend(list("hosts").filter_map(|h| Some((h.as_str()?.to_owned(), claim.to_owned()))));
            let ports = list("ports").filter_map(|p| u16::try_from(p.as_u64()?).ok());
            all.ports.extend(ports.map(|p| (p, claim.to_owned())));
        }
        all
    }

    /// `status.held`.
    pub fn status(&self) -> Value {
        let mut claims: BTreeMap<&str, (Vec<&str>, Vec<u16>)> = BTreeMap::new();
        for (host, claim) in &self.hosts {
            claims.entry(claim).or_default().0.push(host);
        }
        for (port, claim) in &self.ports {
            claims.entry(claim).or_default().1.push(*port);
        }
        let entry = |(claim, (hosts, ports))| json!({"claim": claim, "hosts": hosts, "ports": ports});
        claims.into_iter().map(entry).collect()
    }
}

/// Whether a host is another, or a wildcard over it.
pub(crate) fn covers(wide: &str, host: &str) -> bool {
    wide == host
        || wide.strip_prefix("*.").is_some_and(|rest| host.split_once('.').is_some_and(|(_, tail)| tail == rest))
}

/// What is given while a plan is made. Claims are meant by their place in the list.
pub(crate) struct Taken<'c> {
    claims: &'c [Claim],
    most_claims: usize,
    /// Host and its claim.
    pub hosts: BTreeMap<String, usize>,
    ports: BTreeMap<u16, usize>,
    /// Port and the name of the Service that is carried there.
    services: BTreeMap<u16, String>,
    /// How much each claim has of what is in [`MOST`].
    has: Vec<[usize; MOST.len()]>,
}

/// What a host takes of a status.
fn size(host: &str) -> usize {
    host.len() + 4
}

impl<'c> Taken<'c> {
    /// Begins with what is held and still asked for: hosts and ports, each with the claim's place.
    pub fn new(
        claims: &'c [Claim],
        most_claims: usize,
        held: &Holdings,
        hosts: &BTreeSet<(usize, String)>,
        ports: &BTreeSet<(usize, u16)>,
    ) -> Taken<'c> {
        let place = |uid: &String| claims.iter().position(|claim| claim.uid == *uid);
        let kept_hosts = held.hosts.iter().filter_map(|(host, uid)| Some((place(uid)?, host.clone())));
        let kept_ports = held.ports.iter().filter_map(|(port, uid)| Some((place(uid)?, *port)));
        let hosts: BTreeMap<String, usize> =
            kept_hosts.filter(|one| hosts.contains(one)).map(|(at, host)| (host, at)).collect();
        let ports: BTreeMap<u16, usize> =
            kept_ports.filter(|one| ports.contains(one)).map(|(at, port)| (port, at)).collect();
        let mut has = vec![[0; MOST.len()]; claims.len()];
        hosts.iter().for_each(|(host, at)| has[*at][Need::Hosts as usize] += size(host));
        ports.values().for_each(|at| has[*at][Need::Ports as usize] += 1);
        Taken { claims, most_claims: most_claims.max(1), hosts, ports, services: BTreeMap::new(), has }
    }

    /// Makes room for more of a claim's, if it may have that.
    pub fn room(&mut self, at: usize, need: Need, amount: usize) -> Result<(), String> {
        let (most, what) = MOST[need as usize];
        let has = &mut self.has[at][need as usize];
        if *has + amount > most / self.most_claims {
            return Err(format!("one too many: a claim may have no more {what} here"));
        }
        *has += amount;
        Ok(())
    }

    /// A claim, for another that wanted the same: only within one namespace is its name anyone's business.
    fn who(&self, holder: usize, other: usize) -> String {
        match self.claims[holder].namespace == self.claims[other].namespace {
            true => format!("claim {}", self.claims[holder].name),
            false => "a claim in another namespace".to_owned(),
        }
    }

    /// Gives a host to a claim that has it or can have it; otherwise why not.
    pub fn host(&mut self, at: usize, host: &str) -> Result<(), String> {
        if self.hosts.get(host) == Some(&at) {
            return Ok(());
        }
        let shown = match host {
            "" => "requests without a host of their own".to_owned(),
            host => format!("host {host}"),
        };
        let wide = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        for taken in [Some(host), wide.as_deref()].into_iter().flatten() {
            if let Some(holder) = self.hosts.get(taken).filter(|holder| **holder != at) {
                let through = if taken == host { String::new() } else { format!(" (through {taken})") };
                return Err(format!("{shown} is taken by {}{through}, which had it first", self.who(*holder, at)));
            }
        }
        self.room(at, Need::Hosts, size(host)).map_err(|why| format!("{shown} is {why}"))?;
        self.hosts.insert(host.to_owned(), at);
        Ok(())
    }

    /// The Service that is carried on a port.
    pub fn service(&self, port: u16) -> Option<&str> {
        self.services.get(&port).map(String::as_str)
    }

    /// Gives a port to a Service of a claim, or says why not.
    pub fn port(&mut self, at: usize, port: u16, service: &str) -> Result<(), String> {
        if let Some(holder) = self.ports.get(&port).filter(|holder| **holder != at) {
            return Err(format!("port {port} is taken by {}, which had it first", self.who(*holder, at)));
        }
        if let Some(other) = self.service(port).filter(|other| *other != service) {
            return Err(format!("port {port} is taken by Service {other}, which is older"));
        }
        if !self.ports.contains_key(&port) {
            self.room(at, Need::Ports, 1).map_err(|why| format!("port {port} is {why}"))?;
            self.ports.insert(port, at);
        }
        self.services.insert(port, service.to_owned());
        Ok(())
    }

    /// Takes ports back from Services: they are needed for something else.
    pub fn reserve(&mut self, ports: &[u16]) {
        self.ports.retain(|port, _| !ports.contains(port));
    }

    /// All that was given, to be kept.
    pub fn holdings(&self) -> Holdings {
        let uid = |at: &usize| self.claims[*at].uid.clone();
        Holdings {
            hosts: self.hosts.iter().map(|(host, at)| (host.clone(), uid(at))).collect(),
            ports: self.ports.iter().map(|(port, at)| (*port, uid(at))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holdings_are_kept_in_a_status() {
        let held = Holdings {
            hosts: [("a.example", "u1"), ("", "u2"), ("*.example", "u1")].map(|(h, c)| (h.into(), c.into())).into(),
            ports: [(5432, "u2".to_owned())].into(),
        };
        let status = held.status();
        assert_eq!(
            status,
            json!([
                {"claim": "u1", "hosts": ["*.example", "a.example"], "ports": []},
                {"claim": "u2", "hosts": [""], "ports": [5432]},
            ])
        );
        assert_eq!(Holdings::read(&status), held);
        assert_eq!(Holdings::read(&Value::Null), Holdings::default());
        assert_eq!(
            Holdings::read(&json!([7, {"claim": "u", "hosts": [7], "ports": ["x", 70000]}])),
            Holdings::default()
        );
    }

    #[test]
    fn nobody_fills_the_status_of_all() {
        let claim = |uid: &str| Claim { uid: uid.into(), namespace: uid.into(), name: "c".into() };
        let claims = [claim("a"), claim("b")];
        let mut taken = Taken::new(&claims, 2, &Holdings::default(), &BTreeSet::new(), &BTreeSet::new());
        let refused = (0..100_000).find_map(|n| taken.host(0, &format!("host-{n}.example")).err()).expect("has an end");
        assert!(refused.contains("one too many"), "{refused}");
        taken.host(1, "b.example").expect("there is room for the other");
        let refused = (1..=u16::MAX).find_map(|port| taken.port(0, port, "s").err()).expect("has an end");
        assert!(refused.contains("one too many"), "{refused}");
        taken.port(1, 65535, "s").expect("there is room for the other");
        assert!(taken.holdings().status().to_string().len() < 600 << 10);
    }
}
