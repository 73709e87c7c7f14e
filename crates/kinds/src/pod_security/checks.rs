//! What is looked at in a Pod, check by check, and what Kubernetes says of it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Violation;
use crate::strategy::{APP_ARMOR, SECCOMP};

fn quoted<'s>(items: impl IntoIterator<Item = &'s str>) -> String {
    items.into_iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

fn plural<'w>(count: usize, one: &'w str, many: &'w str) -> &'w str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names.iter().copied()))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some((reason.to_owned(), detail))
}

/// The Pod itself and containers that set something.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let mut all = Vec::new();
    if pod {
        all.push("pod".to_owned());
    }
    if !names.is_empty() {
        all.push(containers(names));
    }
    (!all.is_empty()).then(|| all.join(" and "))
}

/// A Pod that is looked at; `None` of a check is that it has nothing to object to.
pub(super) struct Pod<'p> {
    pub(super) metadata: &'p Value,
    pub(super) spec: &'p Value,
    /// Of which version the checks are.
    pub(super) minor: u32,
}

impl<'p> Pod<'p> {
    fn containers(&self) -> impl Iterator<Item = &'p Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |field| list(&spec[field]))
    }

    /// The names of containers for which something holds.
    fn named(&self, holds: impl Fn(&'p Value) -> bool) -> Vec<&'p str> {
        self.containers().filter(|own| holds(own)).map(|own| text(&own["name"])).collect()
    }

    /// Whether what only Linux has is nothing to it.
    fn windows(&self) -> bool {
        self.minor >= 25 && self.spec["os"]["name"] == "windows"
    }

    /// Whether the Pod has users of its own, so that its root is not the node's.
    fn own_users(&self) -> bool {
        self.minor >= 35 && self.spec["hostUsers"] == false
    }

    pub(super) fn host_namespaces(&self) -> Option<Violation> {
        let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| self.spec[*field] == true);
        let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
        if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
    }

    pub(super) fn privileged(&self) -> Option<Violation> {
        let bad = self.named(|own| own["securityContext"]["privileged"] == true);
        if bad.is_empty() {
            return None;
        }
        violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&bad)))
    }

    fn added(&self, allowed: &[&str]) -> (Vec<&'p str>, BTreeSet<&'p str>) {
        let mut found = BTreeSet::new();
        let mut bad = Vec::new();
        for container in self.containers() {
            let added = list(&container["securityContext"]["capabilities"]["add"]).map(text);
            let forbidden: Vec<&str> = added.filter(|own| !allowed.contains(own)).collect();
            if !forbidden.is_empty() {
                bad.push(text(&container["name"]));
                found.extend(forbidden);
            }
        }
        (bad, found)
    }

    pub(super) fn capabilities_baseline(&self) -> Option<Violation> {
        const ALLOWED: [&str; 13] = [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ];
        let (bad, found) = self.added(&ALLOWED);
        if bad.is_empty() {
            return None;
        }
        let detail =
            format!("{} must not include {} in securityContext.capabilities.add", containers(&bad), quoted(found));
        violation("non-default capabilities", detail)
    }

    pub(super) fn capabilities_restricted(&self) -> Option<Violation> {
        if self.windows() {
            return None;
        }
        let all = |own: &Value| list(&own["securityContext"]["capabilities"]["drop"]).any(|dropped| dropped == "ALL");
        let missing = self.named(|own| !all(own));
        let (bad, found) = self.added(&["NET_BIND_SERVICE"]);
        let mut details = Vec::new();
        if !missing.is_empty() {
            details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&missing)));
        }
        if !bad.is_empty() {
            details.push(format!(
                "{} must not include {} in securityContext.capabilities.add",
                containers(&bad),
                quoted(found)
            ));
        }
        if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
    }

    pub(super) fn host_paths(&self) -> Option<Violation> {
        let paths = list(&self.spec["volumes"]).filter(|volume| volume["hostPath"].is_object());
        let names: Vec<&str> = paths.map(|volume| text(&volume["name"])).collect();
        if names.is_empty() {
            return None;
        }
        let detail = format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(names.iter().copied()));
        violation("hostPath volumes", detail)
    }

    pub(super) fn volumes(&self) -> Option<Violation> {
        const ALLOWED: [&str; 9] = [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "image",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ];
        let (mut bad, mut kinds) = (Vec::new(), BTreeSet::new());
        for volume in list(&self.spec["volumes"]) {
            let Some(fields) = volume.as_object() else { continue };
            if ALLOWED.iter().any(|kind| fields.contains_key(*kind)) {
                continue;
            }
            bad.push(text(&volume["name"]));
            kinds.insert(fields.keys().map(String::as_str).find(|key| *key != "name").unwrap_or("unknown"));
        }
        if bad.is_empty() {
            return None;
        }
        let detail = format!(
            "{} {} {} {} {}",
            plural(bad.len(), "volume", "volumes"),
            quoted(bad.iter().copied()),
            plural(bad.len(), "uses", "use"),
            plural(kinds.len(), "restricted volume type", "restricted volume types"),
            quoted(kinds)
        );
        violation("restricted volume types", detail)
    }

    pub(super) fn host_ports(&self) -> Option<Violation> {
        let mut ports = BTreeSet::new();
        let mut bad = Vec::new();
        for container in self.containers() {
            let own: Vec<String> = list(&container["ports"])
                .filter_map(|port| port["hostPort"].as_i64().filter(|port| *port != 0))
                .map(|port| port.to_string())
                .collect();
            if !own.is_empty() {
                bad.push(text(&container["name"]));
                ports.extend(own);
            }
        }
        if bad.is_empty() {
            return None;
        }
        let shown: Vec<&str> = ports.iter().map(String::as_str).collect();
        let detail = format!(
            "{} {} {} {}",
            containers(&bad),
            plural(bad.len(), "uses", "use"),
            plural(ports.len(), "hostPort", "hostPorts"),
            shown.join(", ")
        );
        violation("hostPort", detail)
    }

    pub(super) fn host_probes(&self) -> Option<Violation> {
        let (mut bad, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        for container in self.containers() {
            let lifecycle = &container["lifecycle"];
            let handlers = ["livenessProbe", "readinessProbe", "startupProbe"].map(|field| &container[field]);
            for handler in handlers.into_iter().chain([&lifecycle["postStart"], &lifecycle["preStop"]]) {
                for host in ["httpGet", "tcpSocket"].map(|kind| text(&handler[kind]["host"])) {
                    if !host.is_empty() {
                        bad.insert(text(&container["name"]));
                        hosts.insert(host);
                    }
                }
            }
        }
        if bad.is_empty() {
            return None;
        }
        let names: Vec<&str> = bad.into_iter().collect();
        let detail = format!(
            "{} {} {} {}",
            containers(&names),
            plural(names.len(), "uses", "use"),
            plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
            quoted(hosts)
        );
        violation("probe or lifecycle host", detail)
    }

    pub(super) fn proc_mount(&self, restricted: bool) -> Option<Violation> {
        if !restricted && self.own_users() {
            return None;
        }
        let set = |own: &'p Value| own["securityContext"]["procMount"].as_str().filter(|mount| *mount != "Default");
        let bad = self.named(|own| set(own).is_some());
        if bad.is_empty() {
            return None;
        }
        let mounts: BTreeSet<&str> = self.containers().filter_map(set).collect();
        let detail = format!("{} must not set securityContext.procMount to {}", containers(&bad), quoted(mounts));
        violation("procMount", detail)
    }

    pub(super) fn sysctls(&self) -> Option<Violation> {
        /// And since when.
        const ALLOWED: [(&str, u32); 12] = [
            ("kernel.shm_rmid_forced", 0),
            ("net.ipv4.ip_local_port_range", 0),
            ("net.ipv4.tcp_syncookies", 0),
            ("net.ipv4.ping_group_range", 0),
            ("net.ipv4.ip_unprivileged_port_start", 0),
            ("net.ipv4.ip_local_reserved_ports", 27),
            ("net.ipv4.tcp_keepalive_time", 29),
            ("net.ipv4.tcp_fin_timeout", 29),
            ("net.ipv4.tcp_keepalive_intvl", 29),
            ("net.ipv4.tcp_keepalive_probes", 29),
            ("net.ipv4.tcp_rmem", 32),
            ("net.ipv4.tcp_wmem", 32),
        ];
        let allowed = |name: &str| ALLOWED.iter().any(|(own, since)| *own == name && self.minor >= *since);
        let all = list(&self.spec["securityContext"]["sysctls"]).map(|own| text(&own["name"]));
        let bad: Vec<&str> = all.filter(|own| !allowed(own)).collect();
        if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
    }

    pub(super) fn app_armor(&self) -> Option<Violation> {
        let set = |own: &'p Value| {
            let kind = own["securityContext"]["appArmorProfile"]["type"].as_str();
            kind.filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"))
        };
        let mut values: BTreeSet<&str> = self.containers().filter_map(set).collect();
        values.extend(set(self.spec));
        let bad = self.named(|own| set(own).is_some());
        let mut all: Vec<String> = setters(set(self.spec).is_some(), &bad).into_iter().collect();
        let mut shown: Vec<String> = values.into_iter().map(str::to_owned).collect();
        let annotations = self.metadata["annotations"].as_object().into_iter().flatten();
        let forbidden: Vec<String> = annotations
            .filter(|(key, value)| {
                let value = text(value);
                key.starts_with(APP_ARMOR)
                    && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/"))
            })
            .map(|(key, value)| format!("{key}={:?}", text(value)))
            .collect();
        if !forbidden.is_empty() {
            all.push(plural(forbidden.len(), "annotation", "annotations").to_owned());
            shown.extend(forbidden);
        }
        if all.is_empty() {
            return None;
        }
        let reason = plural(shown.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
        let values = quoted(shown.iter().map(String::as_str)).replace("\\\"", "\"");
        violation(reason, format!("{} must not set AppArmor profile type to {values}", all.join(" and ")))
    }

    pub(super) fn se_linux(&self) -> Option<Violation> {
        const ALL: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
        let allowed = |own: &str| ALL[..if self.minor >= 31 { 5 } else { 4 }].contains(&own);
        let options = |own: &'p Value| own["securityContext"].get("seLinuxOptions").filter(|own| own.is_object());
        let wrong = |own: &&'p Value| {
            !allowed(text(&own["type"])) || !text(&own["user"]).is_empty() || !text(&own["role"]).is_empty()
        };
        let pod = options(self.spec).filter(wrong);
        let bad = self.named(|own| options(own).filter(wrong).is_some());
        let setters = setters(pod.is_some(), &bad)?;
        let all: Vec<&Value> =
            pod.into_iter().chain(self.containers().filter_map(|own| options(own).filter(wrong))).collect();
        let types: BTreeSet<&str> = all.iter().map(|own| text(&own["type"])).filter(|own| !allowed(own)).collect();
        let mut details = Vec::new();
        if !types.is_empty() {
            details.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(types)));
        }
        for field in ["user", "role"] {
            if all.iter().any(|own| !text(&own[field]).is_empty()) {
                details.push(format!("{field} may not be set"));
            }
        }
        let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", details.join("; "));
        violation("seLinuxOptions", detail)
    }

    /// Before there was a field for it.
    pub(super) fn seccomp_annotations(&self) -> Option<Violation> {
        let of_containers = self.containers().map(|own| text(&own["name"]));
        let keys = of_containers.map(|name| format!("{SECCOMP}{name}"));
        let keys = keys.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
        let fine =
            |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        let bad: BTreeSet<String> = keys
            .filter_map(|key| {
                let value = self.metadata["annotations"][&key].as_str().filter(|value| !fine(value))?;
                Some(format!("{key}={value:?}"))
            })
            .collect();
        if bad.is_empty() {
            return None;
        }
        let shown = bad.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        violation("seccompProfile", format!("forbidden {} {shown}", plural(bad.len(), "annotation", "annotations")))
    }

    pub(super) fn seccomp(&self, restricted: bool) -> Option<Violation> {
        if restricted && self.windows() {
            return None;
        }
        let set = |own: &'p Value| own["securityContext"]["seccompProfile"]["type"].as_str();
        let wrong = |kind: &&str| !matches!(*kind, "RuntimeDefault" | "Localhost");
        let pod = set(self.spec);
        let bad = self.named(|own| set(own).filter(wrong).is_some());
        if let Some(setters) = setters(pod.filter(wrong).is_some(), &bad) {
            let mut values: BTreeSet<&str> = self.containers().filter_map(set).filter(wrong).collect();
            values.extend(pod.filter(wrong));
            let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(values));
            return violation("seccompProfile", detail);
        }
        let unset = if restricted && pod.is_none() { self.named(|own| set(own).is_none()) } else { Vec::new() };
        if unset.is_empty() {
            return None;
        }
        let detail = format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&unset)
        );
        violation("seccompProfile", detail)
    }

    pub(super) fn host_process(&self) -> Option<Violation> {
        let set = |own: &Value| own["securityContext"]["windowsOptions"]["hostProcess"] == true;
        let setters = setters(set(self.spec), &self.named(set))?;
        violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
    }

    pub(super) fn escalation(&self) -> Option<Violation> {
        let bad = self.named(|own| own["securityContext"]["allowPrivilegeEscalation"] != false);
        if self.windows() || bad.is_empty() {
            return None;
        }
        let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
        violation("allowPrivilegeEscalation != false", detail)
    }

    pub(super) fn non_root(&self) -> Option<Violation> {
        if self.own_users() {
            return None;
        }
        let set = |own: &Value| own["securityContext"]["runAsNonRoot"].as_bool();
        let reason = "runAsNonRoot != true";
        let bad = self.named(|own| set(own) == Some(false));
        if let Some(setters) = setters(set(self.spec) == Some(false), &bad) {
            return violation(reason, format!("{setters} must not set securityContext.runAsNonRoot=false"));
        }
        let unset = if set(self.spec) == Some(true) { Vec::new() } else { self.named(|own| set(own).is_none()) };
        if unset.is_empty() {
            return None;
        }
        violation(reason, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&unset)))
    }

    pub(super) fn user(&self) -> Option<Violation> {
        let root = |own: &Value| own["securityContext"]["runAsUser"].as_i64() == Some(0);
        if self.own_users() {
            return None;
        }
        let setters = setters(root(self.spec), &self.named(root))?;
        violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
    }
}
