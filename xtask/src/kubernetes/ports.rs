//! Ports that nobody listens on.
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

/// Where ports are looked for: below the range that the system takes for outgoing connections,
/// one of which could otherwise get the port before the server that it was chosen for.
const RANGE: std::ops::Range<u64> = 20_000..32_000;

/// `N` different free ports on loopback.
pub fn free<const N: usize>() -> anyhow::Result<[u16; N]> {
    let random = RandomState::new();
    // All are held until all are found, so no two are the same.
    let mut listeners = Vec::with_capacity(N);
    for attempt in 0..10_000_u32 {
        if listeners.len() == N {
            break;
        }
        let port = RANGE.start + random.hash_one(attempt) % (RANGE.end - RANGE.start);
        listeners.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port as u16)));
    }
    let ports = listeners.iter().map(|l| l.local_addr().map(|a| a.port())).collect::<Result<Vec<_>, _>>()?;
    ports.try_into().map_err(|_| anyhow::anyhow!("no free ports on loopback between {} and {}", RANGE.start, RANGE.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_bound() {
        let ports: [u16; 8] = free().expect("ports");
        let bound: Vec<_> = ports.iter().map(|p| TcpListener::bind((Ipv4Addr::LOCALHOST, *p))).collect();
        assert!(bound.iter().all(Result::is_ok), "{ports:?}");
    }
}
