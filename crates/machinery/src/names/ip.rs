//! Addresses and networks, as strict as new fields want them and as lenient as old fields always were.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Error, Errors, Path};

/// How an address is to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Only the canonical form: fields since Kubernetes 1.34.
    Canonical,
    /// Any unambiguous form: older fields.
    Strict,
    /// Leading zeros and IPv4-mapped addresses too: values that are stored already.
    Sloppy,
}

/// Zeros in front of a number, which strict parsers refuse.
fn without_zeros(number: &str) -> &str {
    let stripped = number.trim_start_matches('0');
    if stripped.is_empty() && !number.is_empty() { "0" } else { stripped }
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let octets: Vec<&str> = text.split('.').map(without_zeros).collect();
    octets.join(".").parse().ok()
}

/// Parses an address, ignoring leading zeros.
pub fn parse(text: &str) -> Option<IpAddr> {
    if text.len() > 128 {
        return None;
    }
    if !text.contains(':') {
        return parse_v4(text).map(IpAddr::V4);
    }
    let mut groups = Vec::new();
    for group in text.split(':') {
        groups.push(if group.contains('.') { parse_v4(group)?.to_string() } else { without_zeros(group).to_owned() });
    }
    groups.join(":").parse().ok().map(IpAddr::V6)
}

/// An IPv4-mapped IPv6 address is the IPv4 one.
fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// An address.
pub fn validate_ip(path: &Path, text: &str, strictness: Strictness) -> Errors {
    let Some(address) = parse(text) else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return vec![Error::invalid(path, text, detail)];
    };
    if strictness == Strictness::Sloppy {
        return Vec::new();
    }
    match text.parse::<IpAddr>() {
        Err(_) => return vec![Error::invalid(path, text, "must not have leading 0s")],
        Ok(strict) if is_mapped(strict) => {
            return vec![Error::invalid(path, text, "must not be an IPv4-mapped IPv6 address")];
        }
        Ok(_) => {}
    }
    let canonical = address.to_string();
    if strictness == Strictness::Canonical && text != canonical {
        return vec![Error::invalid(path, text, format!("must be in canonical form (\"{canonical}\")"))];
    }
    Vec::new()
}

/// Parses `address/bits`, ignoring leading zeros.
pub fn parse_cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address = parse(address)?;
    if bits.is_empty() || !bits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let bits: u32 = without_zeros(bits).parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    (bits <= width).then_some((address, bits))
}

/// The first address of a network.
pub fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

fn strict_cidr(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    if bits.len() > 1 && bits.starts_with('0') {
        return None;
    }
    Some((address, bits.parse().ok()?))
}

/// A network, `10.9.8.0/24`.
pub fn validate_cidr(path: &Path, text: &str, strictness: Strictness) -> Errors {
    let Some((address, bits)) = parse_cidr(text) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return vec![Error::invalid(path, text, detail)];
    };
    if strictness == Strictness::Sloppy {
        return Vec::new();
    }
    let detail = match strict_cidr(text) {
        None => "must not have leading 0s in IP or prefix length",
        Some((address, _)) if is_mapped(address) => "must not have an IPv4-mapped IPv6 address",
        Some((address, bits)) if masked(address, bits) != address => "must not have bits set beyond the prefix length",
        Some(_) => "",
    };
    if !detail.is_empty() {
        return vec![Error::invalid(path, text, detail)];
    }
    let canonical = format!("{}/{bits}", masked(address, bits));
    if strictness == Strictness::Canonical && text != canonical {
        return vec![Error::invalid(path, text, format!("must be in canonical form (\"{canonical}\")"))];
    }
    Vec::new()
}

/// An address with the size of its network, `10.9.8.7/24`, in canonical form.
pub fn validate_interface_address(path: &Path, text: &str) -> Errors {
    let Some((address, mut bits)) = parse_cidr(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![Error::invalid(path, text, detail)];
    };
    if is_mapped(address) && bits > 32 {
        bits = bits.saturating_sub(96);
    }
    let canonical = format!("{}/{bits}", unmapped(address));
    if text != canonical {
        return vec![Error::invalid(path, text, format!("must be in canonical form (\"{canonical}\")"))];
    }
    Vec::new()
}

/// What to say about an address that is accepted but not in the form it should have.
pub fn ip_warning(path: &Path, text: &str) -> Option<String> {
    let address = parse(text)?;
    match text.parse::<IpAddr>() {
        Ok(strict) if !is_mapped(strict) => (strict.is_ipv6() && strict.to_string() != text)
            .then(|| format!("{path}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{strict}\")")),
        _ => Some(format!("{path}: non-standard IP address \"{text}\" is invalid: use \"{}\"", unmapped(address))),
    }
}

/// What to say about a network that is accepted but not in the form it should have.
pub fn cidr_warnings(path: &Path, text: &str) -> Vec<String> {
    let Some((address, bits)) = parse_cidr(text) else { return Vec::new() };
    let network = masked(address, bits);
    let mut warnings = Vec::new();
    if network != address {
        let width = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value \"{text}\" is ambiguous in this context (should be \"{network}/{bits}\" or \
             \"{address}/{width}\"?)"
        ));
    }
    let strict = strict_cidr(text).filter(|(address, _)| !is_mapped(*address));
    if strict.is_none() {
        warnings.push(format!("{path}: non-standard CIDR value \"{text}\" is invalid: use \"{network}/{bits}\""));
    } else if warnings.is_empty() && address.is_ipv6() && format!("{address}/{bits}") != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{address}/{bits}\")"
        ));
    }
    warnings
}
