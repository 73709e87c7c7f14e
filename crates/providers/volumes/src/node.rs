//! This machine as a Node, so that volumes can say where they are.

use std::fs;

use conductor_local::Trouble;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The name of this machine's Node: its host name, as a name may be.
pub fn name() -> String {
    named(&fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default())
}

fn named(host: &str) -> String {
    let host = host.trim().to_ascii_lowercase();
    let plain: String = host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let short: String = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric()).chars().take(63).collect();
    let short = short.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if short.is_empty() { "localhost".into() } else { short }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Memory in KiB, as `/proc/meminfo` says.
fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn wanted(name: &str) -> (Value, Value) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = format!("{}Ki", memory(&read("/proc/meminfo")));
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture(),
        }},
        // volumes and addresses are here; Pods are for an agent that runs them
        "spec": {"taints": [{"key": "conductor.io/runs-no-pods", "effect": "NoSchedule"}]},
    });
    let status = json!({
        "capacity": {"cpu": cpus.to_string(), "memory": memory},
        "allocatable": {"cpu": cpus.to_string(), "memory": memory},
        "addresses": [{"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": architecture(), "operatingSystem": "linux",
            "kernelVersion": read("/proc/sys/kernel/osrelease").trim(),
            "bootID": read("/proc/sys/kernel/random/boot_id").trim(),
            "machineID": read("/etc/machine-id").trim(), "systemUUID": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "osImage": "",
        },
    });
    (node, status)
}

/// Sees to it that this machine is a Node. One that is there already is someone's, and left as it is.
pub async fn register(client: &kube::Client, now: &str) -> Result<(), Trouble> {
    let nodes: Api<Node> = Api::all(client.clone());
    let name = name();
    if nodes.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let (node, mut status) = wanted(&name);
    let node: Node = serde_json::from_value(node).map_err(|e| Trouble::new("Invalid", e.to_string()))?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
        outcome => drop(outcome?),
    }
    status["conditions"] = json!([{
        "type": "Ready", "status": "True", "reason": "ConductorRuns", "lastTransitionTime": now, "lastHeartbeatTime": now,
        "message": "conductor provides volumes and addresses of this machine",
    }]);
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_become_names() {
        let check = |host: &str, expected: &str| assert_eq!(named(host), expected, "{host}");
        check("vm\n", "vm");
        check("My_Host.example.COM", "my-host.example.com");
        check("", "localhost");
        check("--", "localhost");
        check(&"a".repeat(70), &"a".repeat(63));
    }

    #[test]
    fn memory_is_read() {
        assert_eq!(memory("MemTotal:       24689764 kB\nMemFree: 1 kB"), 24_689_764);
        assert_eq!(memory(""), 0);
    }
}
