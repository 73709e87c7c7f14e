//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Context, Cost, Decl, Outcome};
use crate::error::EvalError;
use crate::value::Value;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, not necessarily the first of the network.
    pub address: IpAddr,
    /// Number of leading bits that count.
    pub prefix: u8,
}

fn bits(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    }
}

impl Cidr {
    /// Reads `address/bits`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.rsplit_once('/').ok_or_else(|| {
            format!("network address parse error during conversion from string: no '/' in \"{text}\"")
        })?;
        let address = parse_ip(address)?;
        let valid = !prefix.is_empty()
            && prefix.bytes().all(|b| b.is_ascii_digit())
            && (prefix == "0" || !prefix.starts_with('0'));
        match prefix.parse::<u8>() {
            Ok(prefix) if valid && prefix <= bits(address).1 => Ok(Self { address, prefix }),
            _ => Err(format!(
                "network address parse error during conversion from string: bad bits after slash: \"{prefix}\""
            )),
        }
    }

    fn masked_bits(&self) -> u128 {
        let (value, width) = bits(self.address);
        let host = u32::from(width - self.prefix);
        value.checked_shr(host).unwrap_or(0).checked_shl(host).unwrap_or(0)
    }

    /// The network with all bits cleared that do not count.
    pub fn masked(&self) -> Self {
        let masked = self.masked_bits();
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(masked as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(masked)),
        };
        Self { address, prefix: self.prefix }
    }

    /// Whether the address is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.address.is_ipv4()
            && Self { address: ip, prefix: self.prefix }.masked_bits() == self.masked_bits()
    }

    /// Whether the other network is part of this one.
    pub fn contains_cidr(&self, other: &Self) -> bool {
        other.prefix >= self.prefix && self.contains(other.address)
    }
}

/// Reads an address; zones and IPv4 within IPv6 are refused, as in Kubernetes.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') && text.contains(':') {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )
    })?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        ip => Ok(ip),
    }
}

pub(crate) const IP: &[Decl] = &[
    Decl { name: "ip", overloads: &[("string_to_ip", "(string) -> IP")], cost: Cost::Parse, code: to_ip },
    Decl {
        name: "isIP",
        overloads: &[("is_ip", "(string) -> bool")],
        cost: Cost::Parse,
        code: |_, a| text(a, |s| Ok(Value::Bool(parse_ip(s).is_ok()))),
    },
    Decl {
        name: "ip.isCanonical",
        overloads: &[("ip_is_canonical", "(string) -> bool")],
        cost: Cost::ParseTwice,
        code: |_, a| text(a, |s| parse_ip(s).map(|ip| Value::Bool(ip.to_string() == s)).map_err(EvalError::failed)),
    },
    Decl {
        name: "family",
        overloads: &[("ip_family", "IP.() -> int")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
    },
    Decl {
        name: "isUnspecified",
        overloads: &[("ip_is_unspecified", "IP.() -> bool")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Bool(ip.is_unspecified())),
    },
    Decl {
        name: "isLoopback",
        overloads: &[("ip_is_loopback", "IP.() -> bool")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Bool(ip.is_loopback())),
    },
    Decl {
        name: "isLinkLocalMulticast",
        overloads: &[("ip_is_link_local_multicast", "IP.() -> bool")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Bool(link_local_multicast(ip))),
    },
    Decl {
        name: "isLinkLocalUnicast",
        overloads: &[("ip_is_link_local_unicast", "IP.() -> bool")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Bool(link_local(ip))),
    },
    Decl {
        name: "isGlobalUnicast",
        overloads: &[("ip_is_global_unicast", "IP.() -> bool")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::Bool(global_unicast(ip))),
    },
    Decl {
        name: "string",
        overloads: &[("ip_to_string", "(IP) -> string")],
        cost: Cost::One,
        code: |_, a| of_ip(a, |ip| Value::string(ip.to_string())),
    },
];

pub(crate) const CIDR: &[Decl] = &[
    Decl {
        name: "cidr",
        overloads: &[("string_to_cidr", "(string) -> CIDR")],
        cost: Cost::Parse,
        code: |_, a| text(a, |s| Cidr::parse(s).map(Value::Cidr).map_err(EvalError::failed)),
    },
    Decl {
        name: "isCIDR",
        overloads: &[("is_cidr", "(string) -> bool")],
        cost: Cost::Parse,
        code: |_, a| text(a, |s| Ok(Value::Bool(Cidr::parse(s).is_ok()))),
    },
    Decl {
        name: "containsIP",
        overloads: &[
            ("cidr_contains_ip_string", "CIDR.(string) -> bool"),
            ("cidr_contains_ip_ip", "CIDR.(IP) -> bool"),
        ],
        cost: Cost::ContainsIp,
        code: contains_ip,
    },
    Decl {
        name: "containsCIDR",
        overloads: &[
            ("cidr_contains_cidr_string", "CIDR.(string) -> bool"),
            ("cidr_contains_cidr", "CIDR.(CIDR) -> bool"),
        ],
        cost: Cost::ContainsCidr,
        code: contains_cidr,
    },
    Decl {
        name: "ip",
        overloads: &[("cidr_ip", "CIDR.() -> IP")],
        cost: Cost::One,
        code: |_, a| of_cidr(a, |c| Value::Ip(c.address)),
    },
    Decl {
        name: "prefixLength",
        overloads: &[("cidr_prefix_length", "CIDR.() -> int")],
        cost: Cost::One,
        code: |_, a| of_cidr(a, |c| Value::Int(i64::from(c.prefix))),
    },
    Decl {
        name: "masked",
        overloads: &[("cidr_masked", "CIDR.() -> CIDR")],
        cost: Cost::One,
        code: |_, a| of_cidr(a, |c| Value::Cidr(c.masked())),
    },
    Decl {
        name: "string",
        overloads: &[("cidr_to_string", "(CIDR) -> string")],
        cost: Cost::One,
        code: |_, a| of_cidr(a, |c| Value::string(format!("{}/{}", c.address, c.prefix))),
    },
];

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local(ip) || broadcast)
}

fn text<'a>(args: &[Value<'a>], f: fn(&str) -> Outcome<'a>) -> Outcome<'a> {
    match args {
        [Value::String(s)] => f(s),
        _ => Err(EvalError::overload("address")),
    }
}

fn to_ip<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    text(args, |s| parse_ip(s).map(Value::Ip).map_err(EvalError::failed))
}

fn of_ip<'a>(args: &[Value<'a>], f: fn(IpAddr) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Ip(ip)] => Ok(f(*ip)),
        _ => Err(EvalError::overload("ip")),
    }
}

fn of_cidr<'a>(args: &[Value<'a>], f: fn(&Cidr) -> Value<'a>) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr)] => Ok(f(cidr)),
        _ => Err(EvalError::overload("cidr")),
    }
}

fn contains_ip<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr), Value::Ip(ip)] => Ok(Value::Bool(cidr.contains(*ip))),
        [Value::Cidr(cidr), Value::String(s)] => {
            Ok(Value::Bool(cidr.contains(parse_ip(s).map_err(EvalError::failed)?)))
        }
        _ => Err(EvalError::overload("containsIP")),
    }
}

fn contains_cidr<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Cidr(cidr), Value::Cidr(other)] => Ok(Value::Bool(cidr.contains_cidr(other))),
        [Value::Cidr(cidr), Value::String(s)] => {
            Ok(Value::Bool(cidr.contains_cidr(&Cidr::parse(s).map_err(EvalError::failed)?)))
        }
        _ => Err(EvalError::overload("containsCIDR")),
    }
}
