//! The Pod Security Standards: what a Pod may not ask for in a namespace that is `baseline` or `restricted`.
//!
//! A namespace may name the version of Kubernetes whose checks it means: those that came later are not made, and what they allowed
//! is not yet.

mod checks;

use serde_json::Value;

use self::checks::Pod;

/// How much is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    #[default]
    Privileged,
    /// Nothing that is known to give more than a Pod should have.
    Baseline,
    /// What is good practice.
    Restricted,
}

impl Level {
    /// As labels write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }

    /// Reads a label.
    pub fn read(text: &str) -> Option<Level> {
        [Level::Privileged, Level::Baseline, Level::Restricted].into_iter().find(|level| level.as_str() == text)
    }
}

/// Why a Pod does not meet a level: a reason and its detail.
pub type Violation = (String, String);

/// The newest checks.
pub const LATEST: u32 = u32::MAX;

/// All violations of the checks of Kubernetes 1.`minor`, in Kubernetes' order.
pub fn violations(level: Level, minor: u32, metadata: &Value, spec: &Value) -> Vec<Violation> {
    let pod = Pod { metadata, spec, minor };
    let restricted = level == Level::Restricted;
    let mut found = Vec::new();
    if level == Level::Privileged {
        return found;
    }
    found.extend(pod.app_armor());
    if !restricted || minor < 22 {
        found.extend(pod.capabilities_baseline());
    }
    found.extend(pod.host_namespaces());
    if !restricted {
        found.extend(pod.host_paths());
    }
    found.extend(pod.host_ports());
    if minor >= 34 {
        found.extend(pod.host_probes());
    }
    found.extend(pod.privileged());
    if !restricted || minor < 35 {
        found.extend(pod.proc_mount(false));
    }
    found.extend(pod.se_linux());
    if minor < 19 {
        found.extend(pod.seccomp_annotations());
    } else if !restricted {
        found.extend(pod.seccomp(false));
    }
    found.extend(pod.sysctls());
    found.extend(pod.host_process());
    if restricted {
        let since = |first: u32, check: &dyn Fn() -> Option<Violation>| if minor >= first { check() } else { None };
        found.extend(since(8, &|| pod.escalation()));
        found.extend(since(22, &|| pod.capabilities_restricted()));
        found.extend(since(35, &|| pod.proc_mount(true)));
        found.extend(pod.volumes());
        found.extend(pod.non_root());
        found.extend(since(23, &|| pod.user()));
        found.extend(since(19, &|| pod.seccomp(true)));
    }
    found
}

/// Violations in one text: `privileged (container "c" must not set securityContext.privileged=true), …`.
pub fn describe(violations: &[Violation]) -> String {
    let one = |(reason, detail): &Violation| {
        if detail.is_empty() { reason.clone() } else { format!("{reason} ({detail})") }
    };
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Violations in short: `host namespaces, privileged`.
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|(reason, _)| reason.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_check_says_what_is_wrong() {
        let check = |level: Level, spec: Value, expected: &str| {
            let mut own = json!({"containers": [{"name": "c", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}});
            for (field, value) in spec.as_object().unwrap() {
                own[field] = value.clone();
            }
            assert_eq!(describe(&violations(level, LATEST, &Value::Null, &own)), expected, "{spec}");
        };
        let bare = json!({"containers": [{"name": "c"}], "securityContext": {}});
        check(Level::Privileged, json!({"hostNetwork": true}), "");
        check(Level::Baseline, bare.clone(), "");
        check(Level::Restricted, json!({}), "");
        check(
            Level::Restricted,
            bare,
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
             seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
        check(
            Level::Baseline,
            json!({"hostNetwork": true, "hostPID": true}),
            "host namespaces (hostNetwork=true, hostPID=true)",
        );
        check(
            Level::Baseline,
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            "hostPath volumes (volume \"v\")",
        );
        check(
            Level::Restricted,
            json!({"volumes": [{"name": "v", "nfs": {}}, {"name": "w", "emptyDir": {}}]}),
            "restricted volume types (volume \"v\" uses restricted volume type \"nfs\")",
        );
        check(
            Level::Baseline,
            json!({"containers": [{"name": "a", "securityContext": {"privileged": true, "capabilities": {"add": ["SYS_ADMIN", "KILL"]}}}, {"name": "b", "securityContext": {"capabilities": {"add": ["NET_RAW"]}}, "ports": [{"hostPort": 80}]}]}),
            "non-default capabilities (containers \"a\", \"b\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add), \
             hostPort (container \"b\" uses hostPort 80), \
             privileged (container \"a\" must not set securityContext.privileged=true)",
        );
        check(
            Level::Baseline,
            json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}, "sysctls": [{"name": "kernel.msgmax"}], "seLinuxOptions": {"type": "x", "user": "u"}}}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set), \
             seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\"), \
             forbidden sysctls (kernel.msgmax)",
        );
    }

    #[test]
    fn checks_are_those_of_the_version_that_is_named() {
        let own = |more: Value| {
            let mut spec = json!({"containers": [{"name": "c"}], "securityContext": {"runAsNonRoot": true}});
            for (field, value) in more.as_object().unwrap() {
                spec[field] = value.clone();
            }
            spec
        };
        let proc_mount =
            json!({"hostUsers": false, "containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]});
        let sysctl = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}});
        let probe = json!({"containers": [{"name": "c", "livenessProbe": {"tcpSocket": {"host": "h"}}}]});
        for (level, spec, until, before, after) in [
            (Level::Restricted, json!({}), 8, "", "allowPrivilegeEscalation != false"),
            (
                Level::Restricted,
                json!({}),
                19,
                "allowPrivilegeEscalation != false",
                "allowPrivilegeEscalation != false, seccompProfile",
            ),
            (
                Level::Restricted,
                json!({"os": {"name": "windows"}}),
                25,
                "allowPrivilegeEscalation != false, unrestricted capabilities, seccompProfile",
                "",
            ),
            (Level::Baseline, proc_mount, 35, "procMount", ""),
            (Level::Baseline, sysctl, 32, "forbidden sysctls", ""),
            (Level::Baseline, probe, 34, "", "probe or lifecycle host"),
        ] {
            let spec = own(spec);
            let found = |minor: u32| reasons(&violations(level, minor, &Value::Null, &spec));
            assert_eq!((found(until - 1), found(until)), (before.to_owned(), after.to_owned()), "{spec}");
        }
        let metadata = json!({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}});
        assert_eq!(
            describe(&violations(Level::Baseline, 18, &metadata, &own(json!({})))),
            "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")"
        );
        assert!(violations(Level::Baseline, 19, &metadata, &own(json!({}))).is_empty());
    }
}
