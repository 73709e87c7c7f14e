//! Pods: how many containers are ready, and the one word that says how the pod is.

use serde_json::{Value, json};

use super::format::{number, or};
use super::{Column, NAME, age, condition, is_being_deleted, name, time};
use crate::value::{flag, get, has, list, text};

pub(super) static COLUMNS: &[Column] = &[
    NAME,
    Column::text("Ready", "Ready containers of all that should run."),
    Column::text("Status", "How the pod is, from its phase and its containers."),
    Column::text("Restarts", "How often its containers were restarted, and when last."),
    super::AGE,
    Column::text("IP", "Address of the pod.").wide(),
    Column::text("Node", "Node it was given to.").wide(),
    Column::text("Nominated Node", "Node that is being cleared for it.").wide(),
    Column::text("Readiness Gates", "Extra conditions that hold, of those its readiness needs.").wide(),
];

pub(super) fn cells(pod: &Value, now: i64) -> Vec<Value> {
    let mut summary = Summary::of(pod);
    let initializing = summary.init_containers(pod);
    let initialized = condition(pod, "status.conditions", "Initialized").is_some_and(is_true);
    if !initializing || initialized {
        summary.containers(pod);
    }
    if is_being_deleted(pod) {
        if text(pod, "status.reason") == "NodeLost" {
            summary.word = "Unknown".to_owned();
        } else if !matches!(text(pod, "status.phase"), "Failed" | "Succeeded") {
            summary.word = "Terminating".to_owned();
        }
    }
    let restarts = match summary.restarts {
        (0, _) | (_, None) => summary.restarts.0.to_string(),
        (restarts, Some(last)) => format!("{restarts} ({} ago)", time::ago(last, now)),
    };
    vec![
        name(pod),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.word),
        json!(restarts),
        age(pod, now),
        json!(or(list(pod, "status.podIPs").first().unwrap_or(&Value::Null), "ip", "<none>")),
        json!(or(pod, "spec.nodeName", "<none>")),
        json!(or(pod, "status.nominatedNodeName", "<none>")),
        json!(readiness_gates(pod)),
    ]
}

fn is_true(condition: &Value) -> bool {
    text(condition, "status") == "True"
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let holds = |gate: &&Value| condition(pod, "status.conditions", text(gate, "conditionType")).is_some_and(is_true);
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}

/// Restarts so far and when the last container ended.
type Restarts = (i64, Option<i64>);

fn count(restarts: &mut Restarts, status: &Value) {
    restarts.0 = restarts.0.saturating_add(number(status, "restartCount"));
    restarts.1 = restarts.1.max(time::at(status, "lastState.terminated.finishedAt"));
}

/// What is being found out about a pod.
struct Summary {
    word: String,
    ready: usize,
    total: usize,
    restarts: Restarts,
    /// Those of init containers that keep running beside the others.
    sidecar_restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let gated = list(pod, "status.conditions").iter().any(|condition| {
            text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
        });
        let word = if gated { "SchedulingGated" } else { or(pod, "status.reason", text(pod, "status.phase")) };
        let sidecars = list(pod, "spec.initContainers").iter().filter(|container| is_sidecar(container)).count();
        Summary {
            word: word.to_owned(),
            ready: 0,
            total: list(pod, "spec.containers").len() + sidecars,
            restarts: (0, None),
            sidecar_restarts: (0, None),
        }
    }

    /// Goes through the init containers up to the first that is not done; says whether there is one.
    fn init_containers(&mut self, pod: &Value) -> bool {
        let specs = list(pod, "spec.initContainers");
        for (index, status) in list(pod, "status.initContainerStatuses").iter().enumerate() {
            // The last of a name counts, as it does for the one who runs them.
            let spec = specs.iter().rfind(|spec| text(spec, "name") == text(status, "name"));
            let sidecar = spec.is_some_and(is_sidecar);
            count(&mut self.restarts, status);
            if sidecar {
                count(&mut self.sidecar_restarts, status);
            }
            let terminated = get(status, "state.terminated");
            let waiting = text(status, "state.waiting.reason");
            if !terminated.is_null() && number(terminated, "exitCode") == 0 {
                continue;
            }
            if sidecar && flag(status, "started") {
                self.ready += usize::from(flag(status, "ready"));
                continue;
            }
            self.word = if !terminated.is_null() {
                format!("Init:{}", ending(terminated))
            } else if !matches!(waiting, "" | "PodInitializing") {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            return true;
        }
        false
    }

    /// Goes through the containers; the first one with something to say has the last word.
    fn containers(&mut self, pod: &Value) {
        self.restarts = self.sidecar_restarts;
        let mut running = false;
        let mut failure = None;
        for status in list(pod, "status.containerStatuses").iter().rev() {
            count(&mut self.restarts, status);
            let terminated = get(status, "state.terminated");
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                self.word = waiting.to_owned();
            } else if !terminated.is_null() {
                self.word = ending(terminated);
                if number(terminated, "exitCode") != 0 {
                    failure = Some(self.word.clone());
                }
            } else if flag(status, "ready") && has(status, "state.running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.word == "Completed" {
            let ready = list(pod, "status.conditions")
                .iter()
                .any(|condition| text(condition, "type") == "Ready" && is_true(condition));
            if running && ready {
                self.word = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.word = failure;
            } else if running {
                self.word = "NotReady".to_owned();
            }
        }
    }
}

/// An init container that keeps running.
fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// Why a container ended.
fn ending(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
