//! Hosts outside that Services of type ExternalName lead to, as addresses. They are resolved here and not by whoever connects: what was
//! judged is then what is connected to, whatever a name leads to a moment later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The addresses of hosts, or why there are none to connect to.
pub type Names = BTreeMap<String, Result<Vec<IpAddr>, String>>;

/// How long an answer is good.
const FRESH: Duration = Duration::from_secs(30);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where clouds answer whoever asks from a machine with the machine's own credentials, besides 169.254.169.254.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address is one that others reach as this machine does: neither its own, nor its link's, nor its cloud's.
pub fn is_outside(address: IpAddr) -> bool {
    if METADATA.contains(&address) {
        return false;
    }
    match address {
        IpAddr::V4(v4) => {
            let own = v4.is_loopback() || v4.octets()[0] == 0 || v4.is_link_local();
            !own && !v4.is_broadcast() && !v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            let parts = v6.segments();
            let [.., high, low] = parts;
            let within = |high: u16, low: u16| {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                is_outside(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            };
            match parts {
                // ::, ::1, and IPv4 in the ways it is written into IPv6: as it is, mapped, translated, by 6to4
                [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => within(high, low),
                [0x64, 0xff9b, ..] => within(high, low),
                [0x2002, high, low, ..] => within(high, low),
                [first, ..] => first & 0xffc0 != 0xfe80 && first & 0xff00 != 0xff00,
            }
        }
    }
}

/// What a host's addresses are good for: all of them, or none.
fn judged(mut addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, String> {
    addresses.sort();
    addresses.dedup();
    match addresses.iter().find(|address| !is_outside(**address)) {
        Some(own) => {
            Err(format!("which is {own}: an ExternalName may not lead to this machine, its link or its cloud"))
        }
        None if addresses.is_empty() => Err("which has no address".into()),
        None => Ok(addresses),
    }
}

async fn look_up(host: &str) -> Result<Vec<IpAddr>, String> {
    match tokio::time::timeout(PATIENCE, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(format!("which cannot be resolved: {error}")),
        Err(_) => Err("which cannot be resolved in time".to_owned()),
    }
}

/// Resolves hosts, and remembers what they were.
#[derive(Default)]
pub struct Resolver {
    known: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Resolver {
    /// The addresses of some hosts. Those that cannot be resolved now are what they were.
    pub async fn resolve(&self, hosts: BTreeSet<String>) -> Names {
        let each = hosts.into_iter().map(|host| async move {
            let before = self.known.lock().get(&host).cloned();
            if let Some((_, addresses)) = before.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
                return (host, judged(addresses.clone()));
            }
            let found = look_up(&host).await;
            let addresses = match (found, before) {
                (Ok(found), _) => {
                    self.known.lock().insert(host.clone(), (Instant::now(), found.clone()));
                    judged(found)
                }
                (Err(_), Some((_, before))) => judged(before),
                (Err(why), None) => Err(why),
            };
            (host, addresses)
        });
        futures::future::join_all(each).await.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_this_machines_is_not_outside() {
        let check = |text: &str, expected: bool| {
            assert_eq!(is_outside(text.parse().expect("an address")), expected, "{text}");
        };
        for own in [
            "127.0.0.1",
            "127.80.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
        ] {
            check(own, false);
        }
        for other in ["203.0.113.7", "10.1.2.3", "2001:db8::1", "::ffff:203.0.113.7", "fd12::1", "64:ff9b::cb00:7107"] {
            check(other, true);
        }
    }

    #[tokio::test]
    async fn hosts_are_resolved_and_judged_however_they_are_written() {
        let resolver = Resolver::default();
        let hosts = ["localhost", "127.0.0.1", "127.1", "203.0.113.7", "no.such.host.invalid"].map(str::to_owned);
        let names = resolver.resolve(hosts.into()).await;
        for own in ["localhost", "127.0.0.1", "127.1"] {
            let why = names[own].as_ref().expect_err("is this machine");
            assert!(why.contains("may not lead"), "{own}: {why}");
        }
        assert_eq!(names["203.0.113.7"], Ok(vec!["203.0.113.7".parse().expect("an address")]));
        assert!(names["no.such.host.invalid"].is_err());
        // one good address does not excuse another
        let both = ["203.0.113.7", "127.0.0.1"].map(|a| a.parse().expect("an address"));
        assert!(judged(both.to_vec()).is_err());
    }
}
