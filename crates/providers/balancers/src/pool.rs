//! Address pools: which addresses there are to give, who has which, and which are to rest before they are given again. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

/// A pool is never larger: it is gone through one by one.
const MOST: u128 = 1 << 20;

/// Consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: u128,
    last: u128,
    v4: bool,
}

fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), true),
        IpAddr::V6(v6) => (u128::from(v6), false),
    }
}

impl Range {
    /// `10.0.0.7`, `10.0.0.7-10.0.0.9` or `10.0.0.0/24`, of which the first and last are not given.
    pub fn parse(text: &str) -> Result<Range, String> {
        let wrong = || format!("{text:?} is no address, FIRST-LAST or ADDRESS/BITS");
        let address = |text: &str| text.trim().parse::<IpAddr>().map(number).map_err(|_| wrong());
        let range = if let Some((first, last)) = text.split_once('-') {
            let ((first, v4), (last, other)) = (address(first)?, address(last)?);
            if v4 != other {
                return Err(wrong());
            }
            Range { first, last, v4 }
        } else if let Some((base, bits)) = text.split_once('/') {
            let (base, v4) = address(base)?;
            let width = if v4 { 32u32 } else { 128 };
            let bits: u32 = bits.trim().parse().ok().filter(|bits| *bits >= 1 && *bits <= width).ok_or_else(wrong)?;
            let size = 1u128 << (width - bits);
            let first = base & !(size - 1);
            match size {
                1 | 2 => Range { first, last: first + size - 1, v4 },
                _ => Range { first: first + 1, last: first + size - 2, v4 },
            }
        } else {
            let (only, v4) = address(text)?;
            Range { first: only, last: only, v4 }
        };
        match range.last.checked_sub(range.first) {
            None => Err(format!("{text:?} ends before it begins")),
            Some(size) if size >= MOST => Err(format!("{text:?} is too large: at most {MOST} addresses")),
            Some(_) => Ok(range),
        }
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.v4 {
            true => IpAddr::V4(Ipv4Addr::from(number as u32)),
            false => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }

    /// Every address, in order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (self.first..=self.last).map(|number| self.address(number))
    }

    fn contains(&self, address: IpAddr) -> bool {
        let (number, v4) = number(address);
        v4 == self.v4 && (self.first..=self.last).contains(&number)
    }
}

/// What can be given: an address, or a port of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The address.
    pub address: IpAddr,
    /// The port, where the pool gives ports.
    pub port: Option<u16>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => std::net::SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

/// What is asked of a pool.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// One specific address.
    pub address: Option<IpAddr>,
    /// One specific port.
    pub port: Option<u16>,
}

/// Why nothing is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pool is not as it must be.
    #[error("address pool {0} cannot be used: {1}")]
    Invalid(String, String),
    /// The address is not the pool's.
    #[error("{1} is not in address pool {0}: it has {2}")]
    NotIn(String, String, String),
    /// Someone has it; who that is, is not for everyone who asks (the pool's status has it).
    #[error("{0} is taken: it is given when it is free again, or ask for another")]
    Taken(String),
    /// It rests.
    #[error("{0} was in use until a moment ago and is given again at {1}")]
    Cooling(String, String),
    /// Nothing is free.
    #[error("address pool {0} has nothing free: {1} in use, {2} resting; add addresses to it")]
    Empty(String, usize, usize),
    /// Someone who is not Conductor listens there.
    #[error("another program of this machine uses {0}: stop it, or ask for another address")]
    Occupied(String),
}

/// One pool as the API has it.
#[derive(Clone, Debug)]
pub struct Pool {
    name: String,
    ranges: Vec<Range>,
    texts: String,
    ports: Option<(u16, u16)>,
    /// Seconds an address rests.
    hold: i64,
    /// Place and uid and words for its holder.
    held: Vec<(String, String, String)>,
    /// Place and when it may be given again.
    cooling: Vec<(String, i64)>,
    /// Whether something rested for too long.
    shortened: bool,
}

fn seconds(text: &str) -> i64 {
    text.parse::<conductor_machinery::time::Time>().map_or(0, |time| time.seconds)
}

fn stamp(seconds: i64) -> String {
    conductor_machinery::time::Time::new(seconds, 0).map(|t| t.to_string()).unwrap_or_default()
}

/// `30s`, `5m`, `1h`, or a number of seconds.
fn span(text: &str) -> Result<i64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let number = number.parse::<u32>().map_err(|_| format!("holdFor is {text:?}: say 30s, 5m or 1h"))?;
    Ok(i64::from(number) * unit)
}

impl Pool {
    /// Reads an AddressPool.
    pub fn read(object: &Value) -> Result<Pool, Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let wrong = |why: String| Refusal::Invalid(name.clone(), why);
        let spec = &object["spec"];
        let texts: Vec<&str> = spec["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let ranges: Vec<Range> = texts.iter().map(|t| Range::parse(t)).collect::<Result<_, _>>().map_err(wrong)?;
        let ports = match spec["ports"].as_str().unwrap_or_default() {
            "" => None,
            text => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let ends = first.trim().parse::<u16>().ok().zip(last.trim().parse::<u16>().ok());
                let ends = ends.filter(|(first, last)| *first > 0 && first <= last);
                Some(ends.ok_or_else(|| wrong(format!("ports is {text:?}: say FIRST-LAST")))?)
            }
        };
        let hold = match spec["holdFor"].as_str().unwrap_or_default() {
            "" => 0,
            text => span(text).map_err(wrong)?,
        };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let list = |key: &str| object["status"][key].as_array().cloned().unwrap_or_default();
        let held = list("held").iter().map(|h| (text(&h["place"]), text(&h["uid"]), text(&h["by"]))).collect();
        let cooling = list("resting").iter().map(|c| (text(&c["place"]), seconds(&text(&c["until"])))).collect();
        Ok(Pool { ranges, texts: texts.join(", "), ports, hold, held, cooling, name, shortened: false })
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.ranges.iter().flat_map(Range::addresses).flat_map(|address| {
            let ports: Box<dyn Iterator<Item = Option<u16>>> = match self.ports {
                Some((first, last)) => Box::new((first..=last).map(Some)),
                None => Box::new(std::iter::once(None)),
            };
            ports.map(move |port| Place { address, port })
        })
    }

    /// What a holder has.
    pub fn of(&self, uid: &str) -> Option<Place> {
        let (place, ..) = self.held.iter().find(|(_, holder, _)| holder == uid)?;
        match place.parse::<std::net::SocketAddr>() {
            Ok(both) => Some(Place { address: both.ip(), port: Some(both.port()) }),
            Err(_) => Some(Place { address: place.parse().ok()?, port: None }),
        }
    }

    /// Gives a place to a holder: the one it has, the one it asks for, or the first that is free for us and for the machine.
    pub fn give(
        &mut self,
        uid: &str,
        by: &str,
        asked: &Asked,
        now: i64,
        is_free: impl Fn(Place) -> bool,
    ) -> Result<Place, Refusal> {
        let fits = |place: &Place| {
            asked.address.is_none_or(|a| a == place.address)
                && asked.port.is_none_or(|p| place.port.is_none_or(|q| p == q))
        };
        if let Some(place) = self.of(uid).filter(fits) {
            return Ok(place);
        }
        self.rest(now);
        if let Some(address) = asked.address.filter(|a| !self.ranges.iter().any(|r| r.contains(*a))) {
            return Err(Refusal::NotIn(self.name.clone(), address.to_string(), self.texts.clone()));
        }
        let mut first: Option<Refusal> = None;
        let mut found: Option<Place> = None;
        for place in self.places().filter(fits) {
            let text = place.to_string();
            let refusal = if self.held.iter().any(|(held, ..)| *held == text) {
                Refusal::Taken(text)
            } else if let Some((_, until)) = self.cooling.iter().find(|(resting, _)| *resting == text) {
                Refusal::Cooling(text, stamp(*until))
            } else if !is_free(place) {
                Refusal::Occupied(text)
            } else {
                found = Some(place);
                break;
            };
            first.get_or_insert(refusal);
        }
        if let Some(place) = found {
            // whatever it had before, under another wish
            self.take_back(uid, now);
            self.held.push((place.to_string(), uid.to_owned(), by.to_owned()));
            return Ok(place);
        }
        match first {
            Some(refusal) if asked.address.is_some() && (asked.port.is_some() || self.ports.is_none()) => Err(refusal),
            None if asked.port.is_some() => {
                let port = asked.port.unwrap_or_default();
                Err(Refusal::NotIn(self.name.clone(), format!("port {port}"), format!("{:?}", self.ports)))
            }
            _ => Err(Refusal::Empty(self.name.clone(), self.held.len(), self.cooling.len())),
        }
    }

    /// Ends the rest of what has rested for long enough; whether anything has.
    pub fn rest(&mut self, now: i64) -> bool {
        let before = self.cooling.len();
        // none rests longer than it is to rest now, whatever the clock was when it began
        let longest = now.saturating_add(self.hold);
        for (_, until) in self.cooling.iter_mut().filter(|(_, until)| *until > longest) {
            (*until, self.shortened) = (longest, true);
        }
        self.cooling.retain(|(_, until)| *until > now);
        self.cooling.len() < before
    }

    /// Gives a holder again what it had, where the pool does not know of it: whoever listens there is the holder itself.
    pub fn put_back(&mut self, uid: &str, by: &str, had: Place) {
        let text = had.to_string();
        let taken = self.held.iter().any(|(held, holder, _)| *held == text || holder == uid);
        if !taken && self.places().any(|place| place == had) {
            self.cooling.retain(|(resting, _)| *resting != text);
            self.held.push((text, uid.to_owned(), by.to_owned()));
        }
    }

    /// Takes back what a holder has; it rests. Whether it had anything.
    pub fn take_back(&mut self, uid: &str, now: i64) -> bool {
        let before = self.held.len();
        let (kept, gone) = std::mem::take(&mut self.held).into_iter().partition(|(_, holder, _)| holder != uid);
        self.held = kept;
        if self.hold > 0 {
            let gone: Vec<(String, String, String)> = gone;
            self.cooling.extend(gone.into_iter().map(|(place, ..)| (place, now + self.hold)));
        }
        self.held.len() < before
    }

    /// Whether something was found to rest for longer than it is to rest, which is to be kept.
    pub fn is_shortened(&self) -> bool {
        self.shortened
    }

    /// When the first of what rests may be given again; `None`: nothing rests.
    pub fn next(&self) -> Option<i64> {
        self.cooling.iter().map(|(_, until)| *until).min()
    }

    /// Whom it has given something, by uid.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.held.iter().map(|(place, uid, by)| (place.as_str(), uid.as_str(), by.as_str()))
    }

    /// The pool's status.
    pub fn status(&self) -> Value {
        let held: Vec<Value> =
            self.held.iter().map(|(place, uid, by)| json!({"place": place, "uid": uid, "by": by})).collect();
        let resting: Vec<Value> =
            self.cooling.iter().map(|(place, until)| json!({"place": place, "until": stamp(*until)})).collect();
        let all = self.places().take(1 << 16).count();
        json!({"held": held, "resting": resting, "free": all.saturating_sub(held.len() + resting.len())})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let check = |text: &str, expected: Option<(&str, &str, usize)>| {
            let range = Range::parse(text).ok();
            let seen = range.map(|r| {
                let all: Vec<String> = r.addresses().map(|a| a.to_string()).collect();
                (all[0].clone(), all[all.len() - 1].clone(), all.len())
            });
            assert_eq!(seen, expected.map(|(a, b, n)| (a.to_owned(), b.to_owned(), n)), "{text}");
        };
        check("10.0.0.7", Some(("10.0.0.7", "10.0.0.7", 1)));
        check("10.0.0.7-10.0.0.9", Some(("10.0.0.7", "10.0.0.9", 3)));
        check("10.0.0.5/29", Some(("10.0.0.1", "10.0.0.6", 6)));
        check("10.0.0.5/32", Some(("10.0.0.5", "10.0.0.5", 1)));
        check("fd00::/126", Some(("fd00::1", "fd00::2", 2)));
        check("10.0.0.9-10.0.0.7", None);
        check("10.0.0.9-fd00::1", None);
        check("10.0.0.0/0", None);
        check("fd00::/8", None);
        check("localhost", None);
    }

    fn pool(spec: Value) -> Pool {
        Pool::read(&json!({"metadata": {"name": "p"}, "spec": spec})).expect("is read")
    }

    #[test]
    fn what_has_rested_is_free() {
        let spec = json!({"addresses": ["10.0.0.1-10.0.0.3"], "holdFor": "10s"});
        let mut resting = pool(spec.clone());
        for uid in ["a", "b"] {
            resting.give(uid, "x", &Asked::default(), 100, |_| true).expect("is free");
        }
        resting.take_back("a", 100);
        assert_eq!(resting.status()["free"], 1);
        let mut later = again(&resting, spec);
        assert!(!later.rest(105) && later.status()["free"] == 1);
        assert!(later.rest(110) && later.status()["free"] == 2 && later.status()["resting"] == json!([]));
        assert!(!later.rest(111), "once is enough");
    }

    fn again(pool: &Pool, spec: Value) -> Pool {
        Pool::read(&json!({"metadata": {"name": "p"}, "spec": spec, "status": pool.status()})).expect("is read")
    }

    #[test]
    fn an_address_is_given_once_and_rests_before_it_is_given_again() {
        let spec = json!({"addresses": ["127.1.0.1-127.1.0.2"], "holdFor": "10s"});
        let mut p = pool(spec.clone());
        let free = |_: Place| true;
        let any = Asked::default();
        let one = |address: &str| Asked { address: address.parse().ok(), port: None };
        assert_eq!(p.give("a", "A", &any, 0, free).expect("is given").to_string(), "127.1.0.1");
        assert_eq!(p.give("a", "A", &any, 0, free).expect("is kept").to_string(), "127.1.0.1");
        let mut p = again(&p, spec.clone());
        let refusal = p.give("b", "B", &one("127.1.0.1"), 0, free).expect_err("is taken");
        assert_eq!(refusal, Refusal::Taken("127.1.0.1".into()));
        assert!(!refusal.to_string().contains('A'), "whose it is, is not said: {refusal}");
        assert!(matches!(p.give("b", "B", &one("10.0.0.1"), 0, free), Err(Refusal::NotIn(..))));
        assert!(matches!(p.give("b", "B", &one("127.1.0.2"), 0, |_| false), Err(Refusal::Occupied(_))));
        assert_eq!(p.give("b", "B", &any, 0, free).expect("is given").to_string(), "127.1.0.2");
        assert!(matches!(p.give("c", "C", &any, 0, free), Err(Refusal::Empty(_, 2, 0))));
        assert!(p.take_back("a", 100));
        assert!(!p.take_back("a", 100));
        let mut p = again(&p, spec);
        assert!(matches!(p.give("c", "C", &one("127.1.0.1"), 105, free), Err(Refusal::Cooling(..))));
        assert!(matches!(p.give("c", "C", &any, 105, free), Err(Refusal::Empty(_, 1, 1))));
        assert_eq!(p.give("c", "C", &any, 111, free).expect("is given").to_string(), "127.1.0.1");
    }

    #[test]
    fn who_had_an_address_has_it_again_in_a_pool_that_was_made_anew() {
        let spec = json!({"addresses": ["127.1.0.1-127.1.0.2"]});
        let had = |address: &str, port: Option<u16>| Place { address: address.parse().expect("one"), port };
        let (any, occupied) = (Asked::default(), |place: Place| place.address.to_string() != "127.1.0.2");
        let mut p = pool(spec.clone());
        p.put_back("a", "A", had("127.1.0.2", None));
        assert_eq!(p.give("a", "A", &any, 0, occupied).expect("is kept").to_string(), "127.1.0.2");
        // not what another has by now, nor what is not the pool's
        p.put_back("b", "B", had("127.1.0.2", None));
        p.put_back("b", "B", had("127.1.0.3", None));
        p.put_back("b", "B", had("127.1.0.1", Some(80)));
        assert_eq!(p.of("b"), None);
        p.put_back("a", "A", had("127.1.0.1", None));
        assert_eq!(p.of("a").map(|place| place.to_string()).as_deref(), Some("127.1.0.2"), "it has one");
    }

    /// The clock is set back, or the time to rest is made shorter: nothing rests for longer than is said now.
    #[test]
    fn nothing_rests_for_longer_than_it_is_to() {
        let spec = json!({"addresses": ["127.1.0.1"], "holdFor": "10s"});
        let mut p = pool(spec.clone());
        let (any, free) = (Asked::default(), |_: Place| true);
        p.give("a", "A", &any, 7200, free).expect("is given");
        assert!(p.take_back("a", 7200));
        // two hours earlier
        let mut p = again(&p, spec.clone());
        assert!(matches!(p.give("b", "B", &any, 5, free), Err(Refusal::Empty(_, 0, 1))));
        assert_eq!((p.is_shortened(), p.next()), (true, Some(15)));
        let mut p = again(&p, spec.clone());
        assert!(matches!(p.give("b", "B", &any, 12, free), Err(Refusal::Empty(..))));
        assert!(!p.is_shortened(), "once");
        let mut sooner = again(&p, json!({"addresses": ["127.1.0.1"]}));
        sooner.give("b", "B", &any, 12, free).expect("nothing is to rest any more");
        p.give("b", "B", &any, 15, free).expect("it has rested");
    }

    #[test]
    fn ports_are_given_one_by_one() {
        let mut p = pool(json!({"addresses": ["127.0.0.1"], "ports": "31000-31001"}));
        let busy = |place: Place| place.port != Some(31000);
        assert_eq!(p.give("a", "A", &Asked::default(), 0, busy).expect("is given").to_string(), "127.0.0.1:31001");
        let asked = Asked { address: None, port: Some(31000) };
        assert_eq!(p.give("b", "B", &asked, 0, |_| true).expect("is given").to_string(), "127.0.0.1:31000");
        assert_eq!(again(&p, json!({"addresses": []})).of("b").and_then(|p| p.port), Some(31000));
        let asked = Asked { address: None, port: Some(80) };
        assert!(matches!(p.give("c", "C", &asked, 0, |_| true), Err(Refusal::NotIn(..))));
    }

    #[test]
    fn a_wrong_pool_says_what_is_wrong() {
        for spec in [json!({"addresses": ["x"]}), json!({"ports": "9-1"}), json!({"holdFor": "soon"})] {
            let wrong = Pool::read(&json!({"metadata": {"name": "p"}, "spec": spec}));
            assert!(matches!(wrong, Err(Refusal::Invalid(..))), "{spec}");
        }
        assert_eq!((span("30s"), span("5m"), span("2h"), span("7")), (Ok(30), Ok(300), Ok(7200), Ok(7)));
    }
}
