//! Versions of APIs, and which of two is preferred.
use std::cmp::Ordering;

/// How far along a version is: `v1` is done, `v1beta1` is not, and anything else is somebody's own idea.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Other,
    Alpha,
    Beta,
    Stable,
}

/// The order that Kubernetes prefers versions in, the preferred one first: `v10`, `v2`, `v11beta2`, `v3alpha1`, `bar`, `foo`.
///
/// ```
/// use conductor_machinery::version::by_preference;
/// let mut versions = ["foo", "v1beta1", "v1", "v2", "v1alpha1"];
/// versions.sort_by(|a, b| by_preference(a, b));
/// assert_eq!(versions, ["v2", "v1", "v1beta1", "v1alpha1", "foo"]);
/// ```
pub fn by_preference(a: &str, b: &str) -> Ordering {
    let (left, right) = (parts(a), parts(b));
    right.cmp(&left).then_with(|| a.cmp(b))
}

fn parts(version: &str) -> (Stage, u64, u64) {
    let other = (Stage::Other, 0, 0);
    let Some(rest) = version.strip_prefix('v') else { return other };
    let (major, rest) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
    let (stage, minor) = match (rest, rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        ("", ..) => (Stage::Stable, "0"),
        (_, Some(minor), _) => (Stage::Beta, minor),
        (_, _, Some(minor)) => (Stage::Alpha, minor),
        _ => return other,
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match (number(major), number(minor)) {
        (Some(major), Some(minor)) => (stage, major, minor),
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::by_preference;

    #[test]
    fn the_preferred_version_is_first() {
        let sorted = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut versions = sorted;
        versions.reverse();
        versions.sort_by(|a, b| by_preference(a, b));
        assert_eq!(versions, sorted);
        for odd in ["", "v", "vx", "v1beta", "v1gamma1", "v+1", "v99999999999999999999999999", "beta1"] {
            assert_eq!(by_preference("v1alpha1", odd), std::cmp::Ordering::Less, "{odd}");
        }
    }
}
