//! What is said to Windows: whose credentials, whose name, and whether on the host itself.

use conductor_machinery::field::{Errors, Path};
use conductor_machinery::names;

use super::CONTAINERS;
use crate::validate::at::{At, Report};

const CREDENTIALS_MAX_KIB: usize = 64;
const DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;
const NOT_IN_USERS: &str = "\"/\\:;|=,+*?<>@[]";
const NOT_IN_DOMAINS: &str = "\\/:*?\"<>|";

/// The Windows options of a security context.
pub(super) fn options(errors: &mut Errors, context: &At<'_>) {
    let at = context.field("windowsOptions");
    if at.has("gmsaCredentialSpecName") {
        let name = at.text("gmsaCredentialSpecName");
        errors.each(&at.at("gmsaCredentialSpecName"), name, names::dns1123_subdomain(name));
    }
    if at.has("gmsaCredentialSpec") {
        let (path, spec) = (at.at("gmsaCredentialSpec"), at.text("gmsaCredentialSpec"));
        if spec.is_empty() {
            errors.invalid(&path, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIALS_MAX_KIB * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIALS_MAX_KIB} KiB");
            errors.invalid(&path, spec, detail);
        }
    }
    if at.has("runAsUserName") {
        user_name(errors, &at.at("runAsUserName"), at.text("runAsUserName"));
    }
}

/// A user, perhaps of a domain: `DOMAIN\user`.
fn user_name(errors: &mut Errors, path: &Path, name: &str) {
    let mut refuse = |detail: &str| errors.invalid(path, name, format!("runAsUserName{detail}"));
    if name.is_empty() {
        return refuse(" cannot be an empty string");
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return refuse(" cannot contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => return refuse(" cannot contain more than one backslash"),
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_MAX {
            refuse(&format!("'s Domain length must be under {DOMAIN_MAX} characters"));
        }
        if !is_net_bios_name(domain) && !is_dns_name(domain) {
            refuse("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        return refuse("'s User cannot be empty");
    }
    if user.len() > USER_MAX {
        refuse(&format!("'s User length must not be longer than {USER_MAX} characters"));
    }
    if user.chars().all(|char| matches!(char, '.' | ' ')) {
        refuse("'s User cannot contain only periods or spaces");
    }
    if user.contains(|char| NOT_IN_USERS.contains(char)) {
        refuse("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios_name(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(|char| NOT_IN_DOMAINS.contains(char))
}

/// As in DNS, but for upper case, which is all right.
fn is_dns_name(domain: &str) -> bool {
    domain.split('.').all(|label| names::dns1123_label(&label.to_ascii_lowercase()).is_empty())
}

/// Containers that run on the host itself are among their like, and on its network.
pub(super) fn host_process(errors: &mut Errors, spec: &At<'_>) {
    const FIELD: &str = "securityContext.windowsOptions.hostProcess";
    let pod = spec.get(FIELD).as_bool();
    let (mut containers, mut on_host) = (0, 0);
    for container in CONTAINERS.iter().flat_map(|list| spec.items(list)) {
        let own = container.get(FIELD).as_bool();
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&container.at(FIELD), own, detail);
        }
        containers += 1;
        on_host += usize::from(own.or(pod) == Some(true));
    }
    if on_host == 0 {
        return;
    }
    if on_host != containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(&spec.path, "", detail);
    }
    if !spec.flag("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&spec.at("hostNetwork"), false, detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_users_may_have_a_domain() {
        let cases = [
            ("ContainerAdministrator", 0),
            ("NT AUTHORITY\\Local Service", 0),
            ("Example.COM\\bob", 0),
            ("", 1),
            ("a\tb", 1),
            ("a\\b\\c", 1),
            ("\\bob", 1),
            (".dot\\bob", 1),
            ("a.domain.of.some-length\\", 1),
            ("a.domain.of some-length\\", 2),
            (". .", 1),
            ("bob@example.com", 1),
        ];
        for (name, mistakes) in cases {
            let context = json!({"windowsOptions": {"runAsUserName": name}});
            let mut errors = Errors::new();
            options(&mut errors, &At::root(&context));
            assert_eq!(errors.len(), mistakes, "{name:?}: {errors:?}");
        }
    }
}
